"""Documents in archives: which files of each kind have texts, and what reads them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from lingon.documents.bounds import check_size, check_tags, memory_of_markup
from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.office.archives import opened, packed
from lingon.documents.office.books import Contents, Page
from lingon.documents.office.paragraphs import XmlFile
from lingon.documents.office.vocabularies import DRAWING, OPEN_DOCUMENT, WORD, Vocabulary
from lingon.translation.v1 import translation_pb2 as pb

BOOK = ".epub"
_MAIN_FILES = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx"}
_MEDIA_TYPES = {
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/epub+zip": ".epub",
}


class _Part(Protocol):
    """A file of an archive that has texts."""

    @property
    def texts(self) -> Sequence[str]:
        """To translate."""

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""


class _Office:
    def __init__(self, content: bytes, vocabulary: Vocabulary) -> None:
        self._file = XmlFile(content, vocabulary)
        self.texts = [paragraph.inline.text for paragraph in self._file.paragraphs]

    def written(self, translations: Sequence[str]) -> bytes:
        return self._file.written(dict(zip(map(id, self._file.paragraphs), translations, strict=True)))


_FILES: Mapping[str, Sequence[tuple[re.Pattern[str], Callable[[bytes], _Part]]]] = {
    ".docx": [
        (
            re.compile(r"word/(document|header|footer|footnotes|endnotes|comments)\d*\.xml"),
            partial(_Office, vocabulary=WORD),
        )
    ],
    ".pptx": [
        (re.compile(r"ppt/(slides|notesSlides|diagrams|charts)/[^/]+\.xml"), partial(_Office, vocabulary=DRAWING))
    ],
    ".odt": [(re.compile(r"(content|styles)\.xml"), partial(_Office, vocabulary=OPEN_DOCUMENT))],
    ".odp": [(re.compile(r"content\.xml"), partial(_Office, vocabulary=OPEN_DOCUMENT))],
    BOOK: [(re.compile(r"(?i).*\.x?html?"), Page), (re.compile(r".*\.ncx"), Contents)],
}
"""By suffix: which files of an archive are translated, and what reads them."""

SUFFIXES = tuple(_FILES)


def read_archive(suffix: str, content: bytes) -> Document:
    """Return a document of an office program or a book; raises UnreadableDocument."""
    with opened(content) as archive:
        kinds = _kinds(suffix, archive)
        contents = {name: archive.read(name) for name in kinds}
    check_tags(sum(each.count(b"<") for each in contents.values()))
    parts = {name: read(contents[name]) for name, read in kinds.items()}
    if not parts:
        raise UnreadableDocument("the file has no text of its kind")

    def write(translations: Sequence[str]) -> bytes:
        written, begin = dict[str, bytes](), 0
        for name, part in parts.items():
            written[name] = part.written(translations[begin : begin + len(part.texts)])
            begin += len(part.texts)
        return packed(content, written)

    options = pb.TextOptions(format=pb.TEXT_FORMAT_HTML) if suffix == BOOK else text_options()
    return Document([text for part in parts.values() for text in part.texts], options, write)


def memory_of_archive(suffix: str, content: bytes) -> int:
    """Return the bytes that a document takes in memory while it is translated, beside the file itself, at most."""
    try:
        with opened(content) as archive:
            texts = map(archive.read, _kinds(suffix, archive))
            return memory_of_markup((len(text), text.count(b"<")) for text in texts)
    except UnreadableDocument:
        return 0  # it will not be read


def suffix_of_archive(content: bytes) -> str:
    """Return the suffix of an archive by the names of its files; .txt if none is known."""
    try:
        with opened(content) as archive:
            names = set(archive.namelist())
            kind = archive.open("mimetype").read(100).decode("ascii", "replace") if "mimetype" in names else ""
    except UnreadableDocument:
        return ".txt"
    found = [suffix for name, suffix in _MAIN_FILES.items() if name in names]
    return next(iter(found), _MEDIA_TYPES.get(kind.strip(), ".txt"))


def _kinds(suffix: str, archive: zipfile.ZipFile) -> dict[str, Callable[[bytes], _Part]]:
    """Return the names of the files that are translated, each with what reads it."""
    found: dict[str, Callable[[bytes], _Part]] = {}
    for name in archive.namelist():
        for pattern, read in _FILES[suffix]:
            if pattern.fullmatch(name):
                found[name] = read
    check_size(sum(archive.getinfo(name).file_size for name in found))
    return found
