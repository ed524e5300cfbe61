"""Documents in ZIP archives, of office programs and books: which files have texts, and what reads them."""

from __future__ import annotations

import copy
import html
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from lingon.documents.document import Document, Edit, UnreadableDocument, check_size, check_tags, decoded, edited
from lingon.documents.inline import text_options
from lingon.documents.office_text import DRAWING, OPEN_DOCUMENT, OPEN_OBJECT, WORD, OfficePart, Parts
from lingon.documents.pages import NO_LANGUAGES, FileLanguages, book_in, open_styles_in, page_in, word_styles_in
from lingon.documents.spreadsheets import FILES, Workbook, open_workbook, tags_of_workbook
from lingon.documents.xml_tree import read_tree
from lingon.segments.markup_tokens import VOID
from lingon.translation.v1 import translation_pb2 as pb

# Documents in archives: which files of each kind have texts, and what reads them.

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


def _book(contents: Mapping[str, bytes], languages: FileLanguages = NO_LANGUAGES) -> Parts:
    return Parts(
        {
            name: Contents(each) if name.endswith(".ncx") else BookPage(each, languages)
            for name, each in contents.items()
        }
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
_SAYING_LANGUAGE: Mapping[str, tuple[re.Pattern[str], Callable[[bytes, FileLanguages], bytes]]] = {
    ".docx": (re.compile(r"word/styles\.xml"), word_styles_in),
    **dict.fromkeys((".odt", ".odp", ".ods"), (re.compile(r"styles\.xml"), open_styles_in)),
    BOOK: (re.compile(r".*\.(?:opf|ncx)"), book_in),
}
"""By suffix: the names of the files that say the language of a document, and what writes the target language into one.

The pages of a book say it themselves.
"""
MOST_STYLES = 4 << 20  # bytes of a file without text that says the language; those of programs have some 50 kB

SUFFIXES = tuple(_KINDS)


def read_archive(suffix: str, content: bytes, languages: FileLanguages = NO_LANGUAGES) -> Document:
    """Return a document of an office program or a book. Raises UnreadableDocument."""
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


def _in_target(suffix: str, content: bytes, written: Mapping[str, bytes], languages: FileLanguages) -> dict[str, bytes]:
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


# ZIP archives: opened within bounds, and packed again with some files replaced.

MOST_BYTES = 256 << 20  # of all files of an archive together, unpacked
MOST_FILES = 10_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of all kinds' standards; others have errors of their own
_MANIFEST = "META-INF/manifest.xml"
MOST_MANIFEST_BYTES = 1 << 20  # that are read of it
_COMPOUND = b"\xd0\xcf\x11\xe0"  # the first bytes of older formats, and of encrypted documents


@contextmanager
def opened(content: bytes) -> Iterator[zipfile.ZipFile]:
    """Open an archive. Raises UnreadableDocument, also for what is wrong with a file in it."""
    if content.startswith(_COMPOUND):
        raise UnreadableDocument("the file is encrypted, or of an older format")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check(archive.infolist())
            _check_manifest(archive)
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UnreadableDocument(f"the file is no archive of its kind: {error}") from None


def packed(content: bytes, written: Mapping[str, bytes]) -> bytes:
    """Return an archive with some files replaced. All have the order, the names and the times that they had.

    Of files with one name only the last is kept, which is the one that is read.
    """
    result = io.BytesIO()
    with opened(content) as source, zipfile.ZipFile(result, "w") as archive:
        for info in source.NameToInfo.values():
            if info.filename in written:
                archive.writestr(info, written[info.filename])
            else:
                with source.open(info) as unchanged, archive.open(copy.copy(info), "w") as copied:
                    shutil.copyfileobj(unchanged, copied)
    return result.getvalue()


def _check_manifest(archive: zipfile.ZipFile) -> None:
    """Refuse an encrypted document of OpenDocument, whose archive itself is not (part 3, 4.8)."""
    if _MANIFEST in archive.NameToInfo:
        with archive.open(_MANIFEST) as manifest:
            if b"encryption-data" in manifest.read(MOST_MANIFEST_BYTES):
                raise UnreadableDocument("the file is encrypted")


def _check(infos: Sequence[zipfile.ZipInfo]) -> None:
    size = sum(info.file_size for info in infos)
    if len(infos) > MOST_FILES or size > MOST_BYTES:
        message = (
            f"unpacked the file has {len(infos):,} files of {size:,} bytes; at most {MOST_FILES:,} of {MOST_BYTES:,}"
        )
        raise UnreadableDocument(message)
    if any(info.flag_bits & 1 for info in infos):
        raise UnreadableDocument("the file is encrypted")
    if any(info.compress_type not in _METHODS for info in infos):
        raise UnreadableDocument("a file in the archive is compressed by another method than Deflate")


# The files of a book that have text: its pages and its table of contents.

NCX = "http://www.daisy.org/z3986/2005/ncx/"
_CLOSED = re.compile(r"<(?P<name>[A-Za-z][\w:.-]*+)(?P<rest>(?:\s(?:[^<>/]++|/(?!>))*+)?+)/>")


class BookPage:
    """A page of a book, which is read as HTML. An element of XHTML that has no end tag gets one."""

    def __init__(self, content: bytes, languages: FileLanguages = NO_LANGUAGES) -> None:
        self._languages = languages
        self.texts = [_CLOSED.sub(_with_end_tag, decoded(content))]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page of its translation."""
        return page_in("".join(translations), self._languages).encode()


class Contents:
    """The table of contents of a book (NCX)."""

    def __init__(self, content: bytes) -> None:
        root = read_tree(content, {NCX: "ncx"}, ())
        self._content = content
        waiting = [root]
        self._positions: list[tuple[int, int]] = []
        self.texts: list[str] = []
        while waiting:
            each = waiting.pop()
            waiting += list(each.elements)[::-1]
            if each.name == "ncx:text" and any(map(str.isalpha, each.text)):
                self._positions.append((each.content, each.content_end))
                self.texts.append(html.escape(each.text, quote=False))

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the table with translations of its texts."""
        texts = (html.escape(html.unescape(each), quote=False).encode() for each in translations)
        positions = zip(self._positions, texts, strict=True)
        return edited(self._content, (Edit(begin, end, text) for (begin, end), text in positions))


def _with_end_tag(tag: re.Match[str]) -> str:
    return tag[0] if tag["name"].lower() in VOID else f"<{tag['name']}{tag['rest']}></{tag['name']}>"
