"""The texts of files of XML: elements as nodes, and the edits that write their contents and attributes.

A text may be written with references or in CDATA. In both, tags of HTML, which belong to the text of many programs,
are marks. So are elements, references to entities of the file, comments and instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from lingon.documents.document import Edit
from lingon.documents.inline import Node, Point, named_tag, pieces, tags_of, with_breaks, without_marks, write
from lingon.documents.xml_tree import Element, attributes_of
from lingon.language_tags import is_same_language

Marks = dict[bytes, tuple[str, bool]]
"""By the bytes of a start or an end: what the two have in common, and whether it is a start."""

_CDATA, _CDATA_END = b"<![CDATA[", b"]]>"
_BLOCKS = "blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p table tbody td th thead tr ul"
_SPLITTING = frozenset(_BLOCKS.split())
"""Tags of HTML that end a sentence."""


@dataclass(frozen=True, slots=True)
class XmlTextFile:
    """A file, and how texts are written in it.

    line_end: of its first line
    greater: whether it writes the sign > as a reference
    quotes: whether it writes quotation marks as references
    braces: whether its texts have codes such as {1> and <1}, as Memsource writes them
    """

    content: bytes
    line_end: str = "\n"
    greater: bool = True
    quotes: bool = False
    braces: bool = False

    @classmethod
    def of(cls, content: bytes, *, quotes: bool = False, braces: bool = False) -> XmlTextFile:
        """Return a file; quotes: whether its program writes them as references."""
        at = content.find(b"\n")
        line_end = "\r\n" if at > 0 and content[at - 1 : at] == b"\r" else "\n"
        return cls(content, line_end, b"&gt;" in content or b"&lt;" not in content, quotes, braces)


@dataclass(frozen=True, slots=True)
class Writing:
    """How the text of an element is written.

    begin, end: of the text in the file: of what is in CDATA if that is all, else of the content of the element
    cdata: whether it is in CDATA
    """

    file: XmlTextFile
    begin: int
    end: int
    cdata: bool

    @classmethod
    def of(cls, element: Element, file: XmlTextFile) -> Writing:
        """Return how the text of an element of a file is written."""
        begin, end = element.content, element.content_end
        whole = file.content[begin:end]
        inside = whole.strip()
        if inside.startswith(_CDATA) and inside.find(_CDATA_END) == len(inside) - len(_CDATA_END):
            begin += whole.find(_CDATA) + len(_CDATA)
            return cls(file, begin, begin + len(inside) - len(_CDATA + _CDATA_END), True)
        return cls(file, begin, end, False)

    def escaped(self, text: str) -> str:
        """Return a text with references where it needs them."""
        text = text if self.file.line_end == "\n" else text.replace("\n", self.file.line_end)
        if self.cdata:
            return text.replace("]]>", "]]]]><![CDATA[>")
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        text = text.replace(">", "&gt;") if self.file.greater else text.replace("]]>", "]]&gt;")
        return text.replace('"', "&quot;").replace("'", "&apos;") if self.file.quotes else text

    def line_break(self, text: str) -> bytes:
        """Return line breaks and control characters. A parser would read a lone carriage return as a line feed."""
        lines = text.split("\n")
        if not self.cdata:
            lines = [line.replace("\r", "&#13;") for line in lines]
        return self.file.line_end.join(lines).encode()

    def content(self, nodes: list[Node[bytes]], codes: Mapping[bytes, bytes] | None = None) -> bytes:
        """Return what is between `begin` and `end` for these nodes; codes: what to write instead of some codes."""
        replaced = codes or {}
        written = write(nodes, lambda piece: self.escaped(piece.text).encode(), lambda code: replaced.get(code, code))
        return without_marks(written.decode()).encode()

    def whole(self, text: bytes, element: Element) -> bytes:
        """Return the content of the element with this text, with the marks of CDATA."""
        content = self.file.content
        return b"%s%s%s" % (content[element.content : self.begin], text, content[self.end : element.content_end])

    @property
    def cdata_text(self) -> str:
        """The text that is in CDATA."""
        text = self.file.content[self.begin : self.end].decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")


def text_nodes(text: str, writing: Writing, marks: Marks) -> Iterator[Node[bytes]]:
    """Yield a text in which tags of HTML and line breaks are points. Adds the tags with an end to the marks."""
    at = 0
    for tag in tags_of(text):
        yield from with_breaks(text[at : tag.start()], writing.line_break)
        yield tag_point(tag[0], writing.escaped, marks)
        at = tag.end()
    yield from with_breaks(text[at:], writing.line_break)


def tag_point(tag: str, escaped: Callable[[str], str], marks: Marks) -> Point[bytes]:
    """Return a tag of HTML as a point, which ends a sentence if it is that of a block.

    It is added to the marks if it has an end, or is one, within a sentence.
    """
    code, named = escaped(tag).encode(), named_tag(tag)
    splits = tag.strip("</>").split(maxsplit=1)[0].rstrip("/").lower() in _SPLITTING
    if named is not None and not splits:  # a pair is a part of one sentence
        marks[code] = (f"tag {named[0]}", named[1])
    return Point(code, splits=splits)


def plain_text(nodes: list[Node[bytes]]) -> str:
    """Return the text of nodes, without codes."""
    return "".join(piece.text for piece in pieces(nodes))


# The edits of a file of XML that set the attributes and the content of an element.


def start_tag(tag: bytes, attributes: Mapping[str, str], removed: frozenset[bytes] = frozenset()) -> bytes:
    """Return a start tag, which is not empty, with these attributes at its end.

    tag: a start tag, also an empty one
    removed: the names of attributes to leave out, beside those that are set
    """
    names = removed | {name.encode() for name in attributes}
    found, at = list[bytes](), 0
    for each in attributes_of(tag, 0, len(tag)):
        if each.name in names:
            found.append(tag[at : each.begin])
            at = each.end
    found.append(tag[at:].rstrip(b"/> \t\r\n"))
    return b"".join([*found, *(_written(name, value) for name, value in attributes.items()), b">"])


def set_attribute(element: Element, content: bytes, name: str, value: str) -> Edit[bytes]:
    """Return the edit that sets an attribute of an element: where it is, or as the first one."""
    for each in attributes_of(content, element.begin, element.content):
        if each.name == name.encode():
            quoted = quoteattr(value).encode()
            return Edit(each.end - len(each.value) - 2, each.end, quoted)
    at = element.begin + 1 + len(element.written)
    return Edit(at, at, _written(name, value))


def indent_of(element: Element, content: bytes, begin: int) -> bytes:
    """Return the blanks before an element; begin: of what is before it."""
    before = content[begin : element.begin]
    return before[len(before.rstrip()) :]


def filled(element: Element, content: bytes, text: bytes, attributes: Mapping[str, str]) -> Edit[bytes]:
    """Return the edit that gives an element a content and attributes, also one without an end tag."""
    tag = start_tag(content[element.begin : element.content], attributes)
    return Edit(element.begin, element.end, b"%s%s</%s>" % (tag, text, element.written))


def _written(name: str, value: str) -> bytes:
    return f" {name}={quoteattr(value)}".encode()


# The target language that a file says, beside the one that it is translated to.


def notes_of_language(language: str, target: str) -> list[str]:
    """Return a line for a file that says another language than that of its new translations, or none without
    languages.
    """
    if not target or not any(map(str.isalpha, language)) or is_same_language(language, target):
        return []
    return [
        f"the file says that its target language is {language[:40]}, and stays so; new translations are in {target}"
    ]
