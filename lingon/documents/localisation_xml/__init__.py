"""Files of XML that hold the texts of programs, and the pairs of translators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lingon.documents.document import Document
from lingon.documents.localisation_xml.any_xml import read_named_xml, read_xml
from lingon.documents.localisation_xml.encodings import read_recoded
from lingon.documents.localisation_xml.qt import read_qt
from lingon.documents.localisation_xml.resources import read_resources
from lingon.documents.localisation_xml.tmx import read_memory
from lingon.documents.localisation_xml.xliff import read_xliff

__all__ = ["SUFFIXES", "read_localisation"]


def _resources(content: bytes, _: str) -> Document:
    return read_resources(content)


_READERS: Mapping[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys((".xliff", ".xlf", ".sdlxliff", ".mxliff", ".mqxliff"), read_xliff),
    ".tmx": read_memory,
    ".ts": read_qt,
    **dict.fromkeys((".resx", ".resw"), _resources),
    ".xml": read_xml,
    **{suffix: partial(read_named_xml, suffix) for suffix in (".svg", ".dita")},
}
SUFFIXES = tuple(_READERS)


def read_localisation(suffix: str, content: bytes, target: str = "") -> Document:
    """Return a file of this suffix; raises UnreadableDocument. target: to translate to; empty if it is not known."""
    document = read_recoded(content, lambda text: _READERS[suffix](text, target))
    if not document.texts:
        document.notes.append("nothing in the file is to be translated, and it is written as it is")
    return document
