"""Documents that are ZIP archives: those of office programs, and books."""

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
from functools import partial
from typing import Protocol

from lingon.documents.document import Document, decoded
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.paragraphs import XmlFile
from lingon.documents.vocabularies import DRAWING, OPEN_DOCUMENT, WORD, Vocabulary
from lingon.documents.xml_tree import read_tree
from lingon.html_names import VOID
from lingon.translation.v1 import translation_pb2 as pb

MOST_BYTES = 256 << 20  # of all files of an archive together, unpacked
MOST_TEXT_BYTES = 32 << 20  # of those that are translated
MOST_FILES = 10_000
MOST_TAGS = 250_000  # of those that are translated
TAG_BYTES = 110  # that a tag takes in memory, measured with paragraphs of two runs
_COMPOUND = b"\xd0\xcf\x11\xe0"  # the first bytes of older formats, and of encrypted documents
BOOK = ".epub"
_MAIN_FILES = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx"}
_MEDIA_TYPES = {
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/epub+zip": ".epub",
}
_CLOSED = re.compile(r"<(?P<name>[A-Za-z][\w:.-]*)(?P<rest>(?:\s[^<>]*)?)/>")
NCX = "http://www.daisy.org/z3986/2005/ncx/"


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


class _Page:
    """A page of a book, which is read as HTML; an element of XHTML that has no end tag gets one."""

    def __init__(self, content: bytes) -> None:
        self.texts = [_CLOSED.sub(_with_end_tag, decoded(content))]

    def written(self, translations: Sequence[str]) -> bytes:
        return "".join(translations).encode()


class _Contents:
    """The table of contents of a book (NCX)."""

    def __init__(self, content: bytes) -> None:
        root = read_tree(content, {NCX: "ncx"}, ())
        self._content = content
        waiting = [root]
        self._places: list[tuple[int, int]] = []
        self.texts: list[str] = []
        while waiting:
            each = waiting.pop()
            waiting += list(each.elements)[::-1]
            if each.name == "ncx:text" and any(map(str.isalpha, each.text)):
                self._places.append((each.content, each.content_end))
                self.texts.append(html.escape(each.text, quote=False))

    def written(self, translations: Sequence[str]) -> bytes:
        found, at = list[bytes](), 0
        for (begin, end), translation in zip(self._places, translations, strict=True):
            found += [self._content[at:begin], html.escape(html.unescape(translation), quote=False).encode()]
            at = end
        return b"".join([*found, self._content[at:]])


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
    BOOK: [(re.compile(r"(?i).*\.x?html?"), _Page), (re.compile(r".*\.ncx"), _Contents)],
}
"""By suffix: which files of an archive are translated, and what reads them."""

SUFFIXES = tuple(_FILES)


def read_archive(suffix: str, content: bytes) -> Document:
    """Return a document of an office program or a book; raises UnreadableDocument."""
    with _archive(content) as archive:
        kinds = _kinds(suffix, archive)
        contents = {name: archive.read(name) for name in kinds}
    tags = sum(each.count(b"<") for each in contents.values())
    if tags > MOST_TAGS:
        raise UnreadableDocument(f"the text files in it have {tags:,} tags; at most {MOST_TAGS:,}")
    parts = {name: read(contents[name]) for name, read in kinds.items()}
    if not parts:
        raise UnreadableDocument("the file has no text of its kind")

    def write(translations: Sequence[str]) -> bytes:
        written, begin = dict[str, bytes](), 0
        for name, part in parts.items():
            written[name] = part.written(translations[begin : begin + len(part.texts)])
            begin += len(part.texts)
        return _packed(content, written)

    options = pb.TextOptions(format=pb.TEXT_FORMAT_HTML) if suffix == BOOK else text_options()
    return Document([text for part in parts.values() for text in part.texts], options, write)


def memory_of_archive(suffix: str, content: bytes) -> int:
    """Return the bytes that a document takes in memory while it is translated, beside the file itself, at most."""
    try:
        with _archive(content) as archive:
            texts = map(archive.read, _kinds(suffix, archive))
            return sum(len(text) + TAG_BYTES * text.count(b"<") for text in texts)
    except UnreadableDocument:
        return 0  # it will not be read


def suffix_of_archive(content: bytes) -> str:
    """Return the suffix of an archive by the names of its files; .txt if none is known."""
    try:
        with _archive(content) as archive:
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
    size = sum(archive.getinfo(name).file_size for name in found)
    if size > MOST_TEXT_BYTES:
        raise UnreadableDocument(f"the text files in it have {size:,} bytes; at most {MOST_TEXT_BYTES:,}")
    return found


@contextmanager
def _archive(content: bytes) -> Iterator[zipfile.ZipFile]:
    """Open an archive; raises UnreadableDocument, also for what is wrong with a file in it."""
    if content.startswith(_COMPOUND):
        raise UnreadableDocument("the file is encrypted, or of an older format")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check(archive.infolist())
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnreadableDocument(f"the file is no archive of its kind: {error}") from None


def _check(infos: Sequence[zipfile.ZipInfo]) -> None:
    size = sum(info.file_size for info in infos)
    if len(infos) > MOST_FILES or size > MOST_BYTES:
        message = (
            f"unpacked the file has {len(infos):,} files of {size:,} bytes; at most {MOST_FILES:,} of {MOST_BYTES:,}"
        )
        raise UnreadableDocument(message)
    if any(info.flag_bits & 1 for info in infos):
        raise UnreadableDocument("the file is encrypted")


def _packed(content: bytes, written: Mapping[str, bytes]) -> bytes:
    """Return an archive with some files replaced; all have the order, the names and the times that they had."""
    packed = io.BytesIO()
    with _archive(content) as source, zipfile.ZipFile(packed, "w") as archive:
        for info in source.infolist():
            if info.filename in written:
                archive.writestr(info, written[info.filename])
            else:
                with source.open(info) as unchanged, archive.open(copy.copy(info), "w") as copied:
                    shutil.copyfileobj(unchanged, copied)
    return packed.getvalue()


def _with_end_tag(tag: re.Match[str]) -> str:
    return tag[0] if tag["name"].lower() in VOID else f"<{tag['name']}{tag['rest']}></{tag['name']}>"
