"""Documents as texts to translate, and back. Imports `segments`, tables of names and parsers of other projects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lingon.documents.apple_files import read_apple_strings, read_catalogue, read_stringsdict
from lingon.documents.document import Document, UnreadableDocument
from lingon.documents.gettext import read_gettext
from lingon.documents.json_files import is_json, read_arb, read_json
from lingon.documents.office import SUFFIXES as ARCHIVES
from lingon.documents.office import read_archive, suffix_of_archive
from lingon.documents.pages import FileLanguages, charset_of, read_page, read_text
from lingon.documents.properties import read_properties
from lingon.documents.subtitles import read_substation, read_subtitles
from lingon.documents.tables import read_table
from lingon.documents.xml_files import SUFFIXES as XML
from lingon.documents.xml_files import read_xml_file

__all__ = [
    "SUFFIXES",
    "Document",
    "UnreadableDocument",
    "charset_of",
    "check_suffix",
    "read_document",
    "says_target",
    "suffix_of",
    "translated_suffix",
]

_CUE = re.compile(rb"\d{1,9}[ \t]*+\r?\n[ \t]*+\d{1,4}:\d\d:\d\d[,.]\d{1,3}[ \t]*+-->")  # the first of SubRip
_MESSAGE = re.compile(rb"(?:\A|\n)msgid[ \t]*+\"[^\n]*+\n(?:[ \t]*+\"[^\n]*+\n)*+msg(?:str|id_plural)\b")


def _read_yaml(content: bytes, target: str) -> Document:
    from lingon.documents.yaml_files import read_yaml  # 50 ms, which other files do not need

    return read_yaml(content, target)


def _read_fluent(content: bytes, target: str) -> Document:
    from lingon.documents.fluent_files import read_fluent  # 15 ms, which other files do not need

    return read_fluent(content, target)


def _read_markdown(content: bytes) -> Document:
    from lingon.documents.markdown import read_markdown  # loads the parser, which takes a while

    return read_markdown(content)


TARGETED: Mapping[str, Callable[[bytes, str], Document]] = {
    ".po": read_gettext,
    ".pot": read_gettext,
    **{suffix: partial(read_xml_file, suffix) for suffix in XML},
    ".json": read_json,
    ".arb": read_arb,
    ".properties": read_properties,
    ".stringsdict": read_stringsdict,
    ".xcstrings": read_catalogue,
    ".yml": _read_yaml,
    ".yaml": _read_yaml,
    ".ftl": _read_fluent,
}
"""The readers of files that say their target language, or have as many forms of a text as that has."""

TABLES: Mapping[str, Callable[[bytes, str, str], Document]] = {
    ".csv": read_table,
    ".tsv": partial(read_table, tabs=True),
}
"""The readers of tables, which take the target language and a column."""

PAGES: Mapping[str, Callable[[bytes, FileLanguages], Document]] = {
    ".html": read_page,
    ".htm": read_page,
    **{suffix: partial(read_archive, suffix) for suffix in ARCHIVES},
}
"""The readers of files that say their language, which is replaced if it was the source language."""

READERS: Mapping[str, Callable[[bytes], Document]] = {
    ".txt": read_text,
    ".srt": read_subtitles,
    ".vtt": read_subtitles,
    ".ass": read_substation,
    ".ssa": read_substation,
    ".md": _read_markdown,
    ".strings": read_apple_strings,
}
ROOTS = {b"<xliff": ".xlf", b"<tmx": ".tmx", b"<ts ": ".ts", b"<!doctype ts>": ".ts", b"<resources": ".xml"}
"""The suffixes of files of XML by the begins of their roots, in small letters. Those of other files are .xml."""

SUFFIXES = tuple(dict.fromkeys([".txt", *PAGES, *READERS, *TARGETED, *TABLES]))
"""The kinds of files, by the ends of their names."""


def suffix_of(content: bytes) -> str:
    """Return the suffix of a file without a name, by what it begins with or has; .txt if it tells nothing.

    Raises UnreadableDocument for an archive of another kind.
    """
    start = content[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    for mark, suffix in ((b"webvtt", ".vtt"), (b"[script info]", ".ass")):
        if start.startswith(mark):
            return suffix
    if _CUE.match(start):
        return ".srt"
    if _MESSAGE.search(start):
        return ".po"
    if start.startswith((b"{", b"[")) and is_json(content):
        return ".json"
    if start.startswith(b"pk"):
        suffix = suffix_of_archive(content)
        if suffix == ".txt" and start.startswith(b"pk\x03\x04"):
            raise UnreadableDocument("the file has no suffix, and is an archive of no known kind")
        return suffix
    found = (suffix for root, suffix in ROOTS.items() if root in start)
    return next(found, ".xml" if start.startswith((b"<?xml", b"<!doctype")) else ".txt")


def says_target(name: str) -> bool:
    """Return whether the translation of a file says the language that it is in, or has forms of words that depend on
    it.
    """
    return Path(name).suffix.lower() in (*TARGETED, *TABLES)


def translated_suffix(name: str) -> str:
    """Return the suffix of the translation of a file: its own, but that of a catalogue for a template of gettext."""
    suffix = Path(name).suffix
    return ".po" if suffix.lower() == ".pot" else suffix


def read_document(name: str, content: bytes, target: str = "", source: str = "", column: str = "") -> Document:
    """Return the document of a file. Raises UnreadableDocument for a kind that is not known and for a broken file.

    target: the language to translate to, for files that say it, empty if it is not known
    source: that of the texts. If it is not known, it is that which the file says
    column: of a table, its name or its number. See `read_table`
    """
    check_suffix(name)
    suffix = Path(name).suffix.lower()
    if suffix in TABLES:
        return TABLES[suffix](content, target, column)
    if column:
        raise UnreadableDocument(f"a column is for files that end in {', '.join(TABLES)}, got {suffix}")
    if suffix in TARGETED:
        return TARGETED[suffix](content, target)
    return PAGES[suffix](content, FileLanguages(source, target)) if suffix in PAGES else READERS[suffix](content)


def check_suffix(name: str) -> None:
    """Raise UnreadableDocument for the name of a file of a kind that is not known."""
    if Path(name).suffix.lower() not in SUFFIXES:
        shown = Path(name).suffix[:20] or "no suffix"
        raise UnreadableDocument(f"a file must end in {', '.join(SUFFIXES)}, got {shown}")
