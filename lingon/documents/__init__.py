"""Documents as texts to translate, and back; imports `errors`, `html_names`, `segments` and a parser of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.markdown import read_markdown
from lingon.documents.office import SUFFIXES as ARCHIVES
from lingon.documents.office import read_archive, suffix_of_archive
from lingon.documents.text_files import (
    read_gettext,
    read_page,
    read_subtitles,
    read_text,
    read_xliff,
)

__all__ = ["SUFFIXES", "Document", "UnreadableDocument", "check_suffix", "read_document", "suffix_of"]

XLIFF = (".xliff", ".xlf")
READERS: Mapping[str, Callable[[bytes], Document]] = {
    ".txt": read_text,
    ".html": read_page,
    ".htm": read_page,
    **{suffix: partial(read_archive, suffix) for suffix in ARCHIVES},
    ".srt": read_subtitles,
    ".vtt": read_subtitles,
    **dict.fromkeys(XLIFF, read_xliff),
    ".po": read_gettext,
    ".md": read_markdown,
}
SUFFIXES = tuple(READERS)
"""The kinds of files, by the ends of their names."""


def suffix_of(content: bytes) -> str:
    """Return the suffix of a file without a name, by what it begins with or has; .txt if it tells nothing."""
    start = content[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    if start.startswith(b"webvtt"):
        return ".vtt"
    if b"<xliff" in start:
        return ".xlf"
    return suffix_of_archive(content) if start.startswith(b"pk") else ".txt"


def read_document(name: str, content: bytes, target: str = "") -> Document:
    """Return the document of a file; raises UnreadableDocument for a kind that is not known and for a broken file.

    target: the language to translate to, for files that say it; empty if it is not known
    """
    check_suffix(name)
    suffix = Path(name).suffix.lower()
    return read_xliff(content, target) if suffix in XLIFF else READERS[suffix](content)


def check_suffix(name: str) -> None:
    """Raise UnreadableDocument for the name of a file of a kind that is not known."""
    if Path(name).suffix.lower() not in READERS:
        shown = Path(name).suffix[:20] or "no suffix"
        raise UnreadableDocument(f"a file must end in {', '.join(SUFFIXES)}, got {shown}")
