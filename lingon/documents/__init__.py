"""Documents as texts to translate, and back: office documents, books, subtitles; imports `errors`, `html_names`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.office import SUFFIXES as ARCHIVES
from lingon.documents.office import memory_of_archive, read_archive, suffix_of_archive
from lingon.documents.text_files import read_page, read_subtitles, read_text

__all__ = ["SUFFIXES", "Document", "UnreadableDocument", "memory_of", "read_document", "suffix_of"]

READERS: Mapping[str, Callable[[bytes], Document]] = {
    ".txt": read_text,
    ".html": read_page,
    ".htm": read_page,
    **{suffix: partial(read_archive, suffix) for suffix in ARCHIVES},
    ".srt": read_subtitles,
    ".vtt": read_subtitles,
}
SUFFIXES = tuple(READERS)
"""The kinds of files, by the ends of their names."""


def memory_of(name: str, content: bytes) -> int:
    """Return the bytes that a document takes in memory while it is translated, beside the file itself, at most."""
    suffix = Path(name).suffix.lower()
    return memory_of_archive(suffix, content) if suffix in ARCHIVES else 0


def suffix_of(content: bytes) -> str:
    """Return the suffix of a file without a name, by what it begins with or has; .txt if it tells nothing."""
    start = content[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    if start.startswith(b"webvtt"):
        return ".vtt"
    return suffix_of_archive(content) if start.startswith(b"pk") else ".txt"


def read_document(name: str, content: bytes) -> Document:
    """Return the document of a file; raises UnreadableDocument for a kind that is not known and for a broken file."""
    read = READERS.get(Path(name).suffix.lower())
    if read is None:
        shown = Path(name).suffix[:20] or "no suffix"
        raise UnreadableDocument(f"a file must end in {', '.join(SUFFIXES)}, got {shown}")
    return read(content)
