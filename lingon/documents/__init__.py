"""Documents as texts to translate, and back; imports `errors`, `html_names` and a parser of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.markdown import memory_of_markdown, read_markdown
from lingon.documents.office import SUFFIXES as ARCHIVES
from lingon.documents.office import memory_of_archive, read_archive, suffix_of_archive
from lingon.documents.text_files import (
    memory_of_gettext,
    memory_of_subtitles,
    memory_of_xliff,
    read_gettext,
    read_page,
    read_subtitles,
    read_text,
    read_xliff,
)

__all__ = ["SUFFIXES", "Document", "UnreadableDocument", "memory_of", "read_document", "suffix_of"]

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
MEMORY: Mapping[str, Callable[[bytes], int]] = {
    **{suffix: partial(memory_of_archive, suffix) for suffix in ARCHIVES},
    ".srt": memory_of_subtitles,
    ".vtt": memory_of_subtitles,
    **dict.fromkeys(XLIFF, memory_of_xliff),
    ".po": memory_of_gettext,
    ".md": memory_of_markdown,
}
"""What the kinds take in memory that take more than the file itself."""
SUFFIXES = tuple(READERS)
"""The kinds of files, by the ends of their names."""


def memory_of(name: str, content: bytes) -> int:
    """Return the bytes that a document takes in memory while it is translated, beside the file itself, at most."""
    memory = MEMORY.get(Path(name).suffix.lower())
    return memory(content) if memory is not None else 0


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
    suffix = Path(name).suffix.lower()
    if suffix in XLIFF:
        return read_xliff(content, target)
    read = READERS.get(suffix)
    if read is None:
        shown = Path(name).suffix[:20] or "no suffix"
        raise UnreadableDocument(f"a file must end in {', '.join(SUFFIXES)}, got {shown}")
    return read(content)
