"""Documents in archives: which files of each kind have texts, and what reads them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lingon.documents.bounds import check_size, check_tags
from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.languages import NO_LANGUAGES, Languages, book_in, open_styles_in, word_styles_in
from lingon.documents.office.archives import opened, packed
from lingon.documents.office.books import Contents, Page
from lingon.documents.office.parts import OfficePart, Parts
from lingon.documents.office.sheets import FILES, Workbook, open_workbook, tags_of_workbook
from lingon.documents.office.vocabularies import DRAWING, OPEN_DOCUMENT, OPEN_OBJECT, WORD
from lingon.translation.v1 import translation_pb2 as pb

BOOK = ".epub"
_MAIN_FILES = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "xl/workbook.xml": ".xlsx"}
_MEDIA_TYPES = {
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/epub+zip": ".epub",
}


class _Texts(Protocol):
    """The files of an archive that have texts."""

    @property
    def texts(self) -> Sequence[str]:
        """To translate."""

    def written(self, translations: Sequence[str]) -> Mapping[str, bytes]:
        """Return files that change, with translations of the texts."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of archives.

    files: matches the names of the files to read
    read: reads them, by their names
    tags: returns how many tags of one are kept in memory, by its name and its content
    """

    files: re.Pattern[str]
    read: Callable[[Mapping[str, bytes]], _Texts]
    tags: Callable[[str, bytes], int] = lambda _, content: content.count(b"<")


def _word(contents: Mapping[str, bytes]) -> Parts:
    return Parts({name: OfficePart(each, DRAWING if name.count("/") > 1 else WORD) for name, each in contents.items()})


def _slides(contents: Mapping[str, bytes]) -> Parts:
    return Parts({name: OfficePart(each, DRAWING) for name, each in contents.items()})


def _book(contents: Mapping[str, bytes], languages: Languages = NO_LANGUAGES) -> Parts:
    return Parts(
        {name: Contents(each) if name.endswith(".ncx") else Page(each, languages) for name, each in contents.items()}
    )


def _open_document(contents: Mapping[str, bytes]) -> Parts:
    return Parts(
        {name: OfficePart(each, OPEN_OBJECT if "/" in name else OPEN_DOCUMENT) for name, each in contents.items()}
    )


_KINDS = {
    ".docx": _Kind(
        re.compile(r"word/((document|header|footer|footnotes|endnotes|comments)\d*|(diagrams|charts)/[^/]+)\.xml"),
        _word,
    ),
    ".pptx": _Kind(re.compile(r"ppt/(slides|notesSlides|diagrams|charts)/[^/]+\.xml"), _slides),
    ".xlsx": _Kind(FILES, Workbook, tags_of_workbook),
    ".odt": _Kind(re.compile(r"(content|styles|Object \d+/content)\.xml"), _open_document),
    ".odp": _Kind(re.compile(r"(content|Object \d+/content)\.xml"), _open_document),
    ".ods": _Kind(re.compile(r"(content|styles|Object \d+/content)\.xml"), open_workbook),
    BOOK: _Kind(re.compile(r"(?i:.*\.x?html?)|.*\.ncx"), _book),
}
_SAYING_LANGUAGE: Mapping[str, tuple[re.Pattern[str], Callable[[bytes, Languages], bytes]]] = {
    ".docx": (re.compile(r"word/styles\.xml"), word_styles_in),
    **dict.fromkeys((".odt", ".odp", ".ods"), (re.compile(r"styles\.xml"), open_styles_in)),
    BOOK: (re.compile(r".*\.(?:opf|ncx)"), book_in),
}
"""By suffix: the names of the files that say the language of a document, and what writes the target language into one.

The pages of a book say it themselves.
"""
MOST_STYLES = 4 << 20  # bytes of a file without text that says the language; those of programs have some 50 kB

SUFFIXES = tuple(_KINDS)


def read_archive(suffix: str, content: bytes, languages: Languages = NO_LANGUAGES) -> Document:
    """Return a document of an office program or a book; raises UnreadableDocument."""
    kind = _KINDS[suffix]
    with opened(content) as archive:
        contents = {name: archive.read(name) for name in _names(kind, archive)}
    check_tags(sum(kind.tags(*each) for each in contents.items()))
    if not contents:
        raise UnreadableDocument("the file has no text of its kind")
    texts = _book(contents, languages) if suffix == BOOK else kind.read(contents)
    options = pb.TextOptions(format=pb.TEXT_FORMAT_HTML) if suffix == BOOK else text_options()

    def write(translations: Sequence[str]) -> bytes:
        written = dict(texts.written(translations))
        return packed(content, written | _in_target(suffix, content, written, languages))

    return Document(texts.texts, options, write)


def _in_target(suffix: str, content: bytes, written: Mapping[str, bytes], languages: Languages) -> dict[str, bytes]:
    """Return the files of an archive that say a language, and then say the target language; written: new ones."""
    found, styles = dict[str, bytes](), _SAYING_LANGUAGE.get(suffix)
    if styles is None or not languages.target:
        return found
    names, say = styles
    with opened(content) as archive:
        for name in filter(names.fullmatch, archive.NameToInfo):
            if name not in written and archive.getinfo(name).file_size > MOST_STYLES:
                continue
            file = written[name] if name in written else archive.read(name)
            if (changed := say(file, languages)) != file:
                found[name] = changed
    return found


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


def _names(kind: _Kind, archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the files to read, each once."""
    found = list(dict.fromkeys(name for name in archive.namelist() if kind.files.fullmatch(name)))
    check_size(sum(archive.getinfo(name).file_size for name in found))
    return found
