"""The elements of an XML file with their positions in it, so that what is not translated is copied byte for byte."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from lingon import xml_parser
from lingon.documents.document import UnreadableDocument

# Their repetitions give nothing back, or each would take 100 bytes until the end: a tag may have millions of blanks.
_TAG = re.compile(rb"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")
_ATTRIBUTE = re.compile(rb"""(?<!\s)\s++([^\s=<>"']++)\s*+=\s*+("[^"]*+"|'[^']*+')""")
MOST_DEPTH = 64  # of elements inside each other; a document of an office program has about 20
MOST_TAG_BYTES = 1 << 20  # of a start tag: its attributes take 30 times as much in memory
MOST_ENTITIES = 1000  # that a file may declare, where it may
MOST_ENTITY = 1000  # characters of one: the parser repeats it in the values of attributes
ENTITY, COMMENT, INSTRUCTION = "&", "!", "?"
"""The names of the elements for references to entities, comments and instructions, where these are kept."""
MOST_NAMES = 10_000  # that are kept: a document of an office program has some hundreds
FED_BYTES = MOST_TAG_BYTES >> 2  # that the parser gets at once: it starts again with a tag that is not whole
_NO_ATTRIBUTES: dict[str, str] = {}


@dataclass(slots=True)
class XmlText:
    """Text between two tags, with its references resolved."""

    text: str


@dataclass(slots=True)
class Element:
    """An element.

    name: with a canonical prefix of its namespace, see `read_tree`
    written: the name as the file has it, in bytes
    attributes: those that were asked for
    begin, end: of the element in the bytes of the file
    content, content_end: of what is between its tags. Both are `end` for an element without an end tag
    """

    name: str
    written: bytes
    attributes: Mapping[str, str]
    begin: int
    content: int
    content_end: int = 0
    end: int = 0
    children: list[Element | XmlText] = field(default_factory=list)

    @property
    def elements(self) -> Iterator[Element]:
        """Its children that are elements."""
        return (each for each in self.children if isinstance(each, Element))

    @property
    def text(self) -> str:
        """The text of its children that are text."""
        return "".join(each.text for each in self.children if isinstance(each, XmlText))

    @property
    def whole_text(self) -> str:
        """The text in it and in the elements inside of it."""
        found, waiting = list[str](), [iter(self.children)]
        while waiting:
            child = next(waiting[-1], None)
            if child is None:
                waiting.pop()
            elif isinstance(child, XmlText):
                found.append(child.text)
            else:
                waiting.append(iter(child.children))
        return "".join(found)

    def child(self, name: str) -> Element | None:
        """Return the first child of this name."""
        return next((each for each in self.elements if each.name == name), None)


@dataclass(frozen=True, slots=True)
class XmlAttribute:
    """An attribute as the file has it; begin, end: its position in the file, with the blanks before it."""

    name: bytes
    value: bytes
    begin: int
    end: int

    @property
    def local(self) -> bytes:
        """Its name without a prefix."""
        return self.name.rpartition(b":")[2]


def attributes_of(content: bytes, begin: int, end: int) -> Iterator[XmlAttribute]:
    """Yield the attributes of the start tag that has this position in a file."""
    for each in _ATTRIBUTE.finditer(content, begin, end):
        yield XmlAttribute(each[1], each[2][1:-1], *each.span())


def read_tree(
    content: bytes,
    prefixes: Mapping[str, str],
    attributes: Container[str],
    most_depth: int = MOST_DEPTH,
    *,
    marks: bool = False,
) -> Element:
    """Return the root of an XML file in UTF-8. Raises UnreadableDocument.

    prefixes: canonical prefixes by the addresses of namespaces. Names of other namespaces have the prefix "?"
    attributes: the names of those to keep
    most_depth: of elements inside each other
    marks: whether entities may be declared, and comments, instructions and references to entities are elements
    """
    return _read(content, _TreeBuilder(content, prefixes, attributes, most_depth, marks=marks))[0]


def read_elements(
    content: bytes, prefixes: Mapping[str, str], attributes: Container[str], wanted: Container[str]
) -> list[Element]:
    """Return the elements of these names that are in no other such one, as `read_tree` does. Others take no memory."""
    return _read(content, _TreeBuilder(content, prefixes, attributes, MOST_DEPTH, wanted))


def _read(content: bytes, reader: _TreeBuilder) -> list[Element]:
    if b"\x00" in content[:4]:
        raise UnreadableDocument("the XML in the file is not UTF-8")
    parser, at = reader.parser, 0
    try:
        while at < len(content):
            end = _end_of_piece(content, at)
            parser.Parse(content[at:end], False)
            at = end
            if at - reader.position > MOST_TAG_BYTES:
                end = _end_of_comment(content, reader.position, at)
                reader.skipped += end - at
                at = end
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        position = f"line {error.lineno}, column {error.offset + 1}"
        raise UnreadableDocument(f"the XML in the file is not well-formed at {position}") from None
    finally:
        del reader.parser  # its handlers refer to the reader, and the elements would stay until the next collection
    return reader.found


def _end_of_piece(content: bytes, begin: int) -> int:
    """Return where a piece of a file ends: with a tag if it can, or a text would be divided."""
    end = begin + FED_BYTES
    return (content.rfind(b">", begin, end) + 1 or end) if end < len(content) else len(content)


def _end_of_comment(content: bytes, begin: int, at: int) -> int:
    """Return where the mark at the end of a long comment or instruction is: the parser need not read to it.

    begin: of the comment, at: what was read. Raises UnreadableDocument if a tag is there.
    """
    marks = {b"<!--": b"-->", b"<?": b"?>"}
    mark = next((mark for start, mark in marks.items() if content.startswith(start, begin)), None)
    if mark is None:
        _check_tag(at - begin)
    assert mark is not None
    end = content.find(mark, at - len(mark) + 1)
    return max(end, at) if end >= 0 else len(content)


def _check_tag(size: int) -> None:
    if size > MOST_TAG_BYTES:
        raise UnreadableDocument(f"the XML in the file has a tag of more than {MOST_TAG_BYTES:,} bytes, got {size:,}")


def guarded_parser(encoding: str | None = None) -> expat.XMLParserType:
    """Return a parser as `xml_parser.guarded_parser` does. It raises UnreadableDocument."""
    return xml_parser.guarded_parser(UnreadableDocument, encoding)


class _TreeBuilder:
    """A builder of elements from the events of a parser."""

    def __init__(
        self,
        content: bytes,
        prefixes: Mapping[str, str],
        attributes: Container[str],
        most_depth: int,
        wanted: Container[str] | None = None,
        *,
        marks: bool = False,
    ) -> None:
        """wanted: names of the elements to keep with what is in them, or None for the root; marks: see `read_tree`."""
        self.parser = guarded_parser("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        if marks:
            self._keep_marks()
        self.found: list[Element] = []
        self._content, self._prefixes, self._attributes = content, prefixes, attributes
        self._most_depth, self._wanted = most_depth, wanted
        self._names: dict[str, str] = {}  # canonical ones, each kept once
        self._written: dict[bytes, bytes] = {}
        self._open: list[Element] = []
        self._entities = 0  # that are declared
        self.skipped = 0  # bytes of comments that the parser did not get

    @property
    def position(self) -> int:
        """Where in the file the parser is: what it has not read whole begins there."""
        return self.parser.CurrentByteIndex + self.skipped

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and self._wanted is not None and self._named(name) not in self._wanted:
            return
        begin = self.position
        tag = _TAG.match(self._content, begin)
        if tag is None:
            raise UnreadableDocument("the XML in the file is not UTF-8")
        _check_tag(tag.end() - begin)
        if len(self._open) >= self._most_depth:
            raise UnreadableDocument(f"the XML in the file has elements in more than {self._most_depth} others")
        written = re.split(rb"[\s/>]", tag[0][1:], maxsplit=1)[0]
        written = self._written.setdefault(written, written)
        kept = {self._named(each): value for each, value in attributes.items() if self._named(each) in self._attributes}
        element = Element(self._named(name), written, kept or _NO_ATTRIBUTES, begin, tag.end())
        if tag[0].endswith(b"/>"):
            element.content_end = element.end = tag.end()
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.found.append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        if not self._open:
            return
        element = self._open.pop()
        if not element.end:
            element.content_end = self.position
            element.end = self._content.index(b">", element.content_end) + 1

    def _keep_marks(self) -> None:
        self.parser.StartDoctypeDeclHandler = None
        self.parser.DefaultHandler = _pass  # with one, references to entities of the file are not expanded
        self.parser.SkippedEntityHandler = lambda name, parameter: self._mark(ENTITY, b"&", b";")
        self.parser.CommentHandler = lambda text: self._mark(COMMENT, b"<!--", b"-->")
        self.parser.ProcessingInstructionHandler = lambda name, text: self._mark(INSTRUCTION, b"<?", b"?>")
        self.parser.EntityDeclHandler = self._declare
        self.parser.AttlistDeclHandler = _refuse_attributes

    def _mark(self, name: str, start: bytes, end: bytes) -> None:
        """Add an element for what is no element and no text."""
        if not self._open:
            return
        begin = self.position
        if not self._content.startswith(start, begin):
            raise UnreadableDocument(
                f"the XML in the file has a comment of more than {MOST_TAG_BYTES:,} bytes in a text"
            )
        at = self._content.index(end, begin + len(start)) + len(end)
        self._open[-1].children.append(Element(name, b"", _NO_ATTRIBUTES, begin, at, at, at))

    def _declare(self, name: str, parameter: int, value: str | None, *_: str | None) -> None:
        """Refuse a declaration of an entity that is not a short text of its own."""
        self._entities += 1
        if self._entities > MOST_ENTITIES:
            raise UnreadableDocument(f"the XML in the file declares more than {MOST_ENTITIES:,} entities")
        if parameter or value is None or "&" in value or len(value) > MOST_ENTITY:
            bound = f"which is no text of at most {MOST_ENTITY:,} characters without references"
            raise UnreadableDocument(f"the XML in the file declares the entity {name[:40]}, {bound}")

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1].children.append(XmlText(text))

    def _named(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            address, _, local = name.rpartition(" ")
            found = f"{self._prefixes.get(address, '?')}:{local}" if address else local
            if len(self._names) < MOST_NAMES:
                self._names[name] = found
        return found


def _refuse_attributes(element: str, *_: object) -> None:
    """Refuse a declaration of an attribute: the parser would repeat its default in each element of this name."""
    raise UnreadableDocument(
        f"the XML in the file declares attributes of the element {element[:40]}; only entities may be"
    )


def _pass(_: str) -> None:
    """Ignore what has no handler of its own."""
