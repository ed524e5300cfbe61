"""The paragraphs of an XML file of an office program, and the file with their translations.

What is between paragraphs is copied byte for byte, and so is a paragraph without words. A translated one has
its text in runs of the formats that it had, and all else as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol
from xml.sax.saxutils import escape

from lingon.documents.document import MOST_FORMAT, MOST_TEXT_BYTES, UnreadableDocument
from lingon.documents.inline import Around, FormattedText, InlineText, Node, Point, has_words, paired, steps, write
from lingon.documents.xml_tree import Element, XmlText, attributes_of, read_tree

# The names of elements in the files of office programs: which hold text, and which belong to a sentence.
# Office Open XML: ISO/IEC 29500-1, chapters 17 (documents) and 21 (drawings, and so slides). OpenDocument: ISO/IEC
# 26300-1, chapters 5 and 6.

OPEN_XML = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"

PREFIXES = {
    f"{OPEN_XML}/wordprocessingml/2006/main": "w",
    f"{STRICT}/wordprocessingml/main": "w",
    f"{OPEN_XML}/drawingml/2006/main": "a",
    f"{STRICT}/drawingml/main": "a",
    f"{OPEN_XML}/spreadsheetml/2006/main": "x",
    f"{STRICT}/spreadsheetml/main": "x",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    f"{OASIS}:text:1.0": "text",
    f"{OASIS}:office:1.0": "office",
    f"{OASIS}:table:1.0": "table",
}
"""Canonical prefixes by the addresses of namespaces."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElementNames:
    """The elements of one kind of file, by canonical names.

    paragraphs: those whose text is translated as a whole
    run, properties, text: text of one format, its format, and the text in it, empty if a paragraph holds text itself
    formats: those that give their text a format
    around: those that belong to the sentence with their text, such as links
    inside: by the name of one of them, its child that has the text
    breaks: those at which a sentence ends
    left_out: those that are not written again: they say something about the text that was
    characters: by the names of those that stand for text: this text
    ranges: by the names of those at the begin and at the end of a part of a text: what both are of, the attribute that
        both have, and whether it is the begin
    untouched: those whose paragraphs are not translated
    cells: those whose own paragraphs are translated only if they are what the cell holds: no number, no result
    named: texts of cells that stay, in lower case
    """

    paragraphs: frozenset[str]
    run: str = ""
    properties: str = ""
    text: str = ""
    formats: frozenset[str] = frozenset()
    around: frozenset[str]
    inside: Mapping[str, str] = field(default_factory=dict)
    breaks: frozenset[str]
    left_out: frozenset[str]
    characters: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[str, str, bool]] = field(default_factory=dict)
    untouched: frozenset[str]
    cells: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


def _ranges(attribute: str, names: Iterable[str], begin: str, end: str) -> dict[str, tuple[str, str, bool]]:
    return {f"{name}{position}": (name, attribute, position == begin) for name in names for position in (begin, end)}


WORD = ElementNames(
    paragraphs=frozenset(["w:p"]),
    run="w:r",
    properties="w:rPr",
    text="w:t",
    around=frozenset(["w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdt"])
    | frozenset(["w:fldSimple", "w:dir", "w:bdo"]),
    inside={"w:sdt": "w:sdtContent"},
    breaks=frozenset(["w:br", "w:cr", "w:tab", "w:ptab"]),
    left_out=frozenset(["w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"]),
    characters={"w:noBreakHyphen": "-"},
    ranges=_ranges("id", ["w:bookmark", "w:commentRange", "w:perm", "w:moveToRange"], "Start", "End"),
    untouched=frozenset(["w:del", "w:moveFrom"]),
)
DRAWING = ElementNames(
    paragraphs=frozenset(["a:p"]),
    run="a:r",
    properties="a:rPr",
    text="a:t",
    around=frozenset(),
    breaks=frozenset(["a:br", "a:tab"]),
    left_out=frozenset(),
    untouched=frozenset(),
)
OPEN_DOCUMENT = ElementNames(
    paragraphs=frozenset(["text:p", "text:h"]),
    formats=frozenset(["text:span"]),
    around=frozenset(["text:a", "text:meta"]),
    breaks=frozenset(["text:line-break", "text:tab"]),
    left_out=frozenset(["text:soft-page-break"]),
    ranges={
        **_ranges("name", ["text:bookmark", "text:reference-mark"], "-start", "-end"),
        **_ranges("change-id", ["text:change"], "-start", "-end"),
        **_ranges("name", ["office:annotation"], "", "-end"),
    },
    untouched=frozenset(["text:tracked-changes"]),
)
OPEN_SPREADSHEET = replace(
    OPEN_DOCUMENT,
    untouched=OPEN_DOCUMENT.untouched | {"table:tracked-changes"},
    cells=frozenset(["table:table-cell", "table:covered-table-cell"]),
)
OPEN_OBJECT = replace(OPEN_DOCUMENT, untouched=OPEN_DOCUMENT.untouched | {"table:table"})
"""A chart inside of a document, without the copies of its data."""


# The fields of a Word document whose results stay as they are: what a program fills in is no text of the author.
# ISO/IEC 29500-1, 17.16. The result of a merge field, a date, a page number or a citation is data. That of a
# reference or of a table of contents repeats text of the document, and is translated as that is.

FIELD_ATTRIBUTES = ("w:fldCharType", "w:instr")
TRANSLATED = frozenset(
    ["AUTOTEXT", "AUTOTEXTLIST", "FORMTEXT", "GLOSSARY", "HYPERLINK", "IF", "INCLUDETEXT", "INDEX", "QUOTE", "REF"]
) | frozenset(["STYLEREF", "TOA", "TOC"])
"""The kinds of fields whose results are text of the document."""

_KIND = re.compile(r"\s*+(\S*+)")
_PARTS = frozenset(["w:fldChar", "w:fldSimple", "w:instrText"])
_CODE_CHARACTERS = 100  # of the code of a field that are read: its kind is at the begin


@dataclass(slots=True)
class _Field:
    """A complex field that has begun.

    begin: its position; code: as far as it was read; separated: whether the code has ended
    """

    begin: int
    code: str = ""
    separated: bool = False


class KeptText:
    """The positions in a file whose text belongs to the code of a field, or to a result that stays."""

    def __init__(self, root: Element | None) -> None:
        """root: of the file, or None for one without fields, which is not looked through."""
        positions = sorted(_positions(root)) if root is not None else []
        self._begins, self._ends = list[int](), list[int]()
        for begin, end in positions:
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def has(self, element: Element) -> bool:
        """Return whether an element is at one of the positions."""
        position = bisect_right(self._begins, element.begin) - 1
        return position >= 0 and element.begin < self._ends[position]


def is_text(code: str) -> bool:
    """Return whether the result of a field with this code is text of the document. One without a code is no field."""
    kind = _KIND.match(code)
    assert kind is not None
    return not kind[1] or kind[1].upper() in TRANSLATED


def _positions(root: Element) -> Iterator[tuple[int, int]]:
    """Yield the positions of the codes of fields, and of the fields that stay. One that does not end has none."""
    fields = list[_Field]()
    for element in _fields_in(root):
        kind = element.attributes.get("w:fldCharType", "")
        if element.name == "w:fldSimple":
            if not is_text(element.attributes.get("w:instr", "")):
                yield element.begin, element.end
        elif element.name == "w:instrText":
            if fields and not fields[-1].separated:
                fields[-1].code += element.text[: _CODE_CHARACTERS - len(fields[-1].code)]
        elif kind == "begin":
            fields.append(_Field(element.begin))
        elif kind == "separate" and fields:
            fields[-1].separated = True
            yield fields[-1].begin, element.end
        elif kind == "end" and fields:
            field = fields.pop()
            if not is_text(field.code) or not field.separated:
                yield field.begin, element.end


def _fields_in(root: Element) -> Iterator[Element]:
    """Yield the parts of fields in the order of the file."""
    waiting = [iter(root.elements)]
    while waiting:
        element = next(waiting[-1], None)
        if element is None:
            waiting.pop()
            continue
        if element.name in _PARTS:
            yield element
        waiting.append(element.elements)


ATTRIBUTES = (*FIELD_ATTRIBUTES, "text:c", "office:value-type", "office:string-value", "table:formula")
_PROPERTIES = frozenset(["w:smartTagPr", "w:customXmlPr", "w:fldData"])
MOST_FIELDS = 3  # inside each other
MOST_TABS = 8  # in a text of a run that end a sentence: they are no tags, which are counted
_LINKS = frozenset(["text:a", "w:hyperlink"])
_LINK = re.compile(rb"<(?:\w++:)?+hlinkClick\b[^<>]*+>")
_SPACES = re.compile(" {2,}")
_EMPTY = re.compile(rb"<[\w:]++\s*+(?:/>|></[\w:]++>)")
# What a spelling checker has noted in the properties of a run: elements, and attributes of the properties.
_SPELLING = frozenset(["lang", "noProof"])
_SPELLING_ATTRIBUTES = frozenset([b"lang", b"altLang", b"dirty", b"err", b"noProof", b"smtClean"])

Fragment = tuple["bytes | Paragraph", ...]
"""A part of a file: bytes that are copied, and paragraphs."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph with words; begin, end: its tags."""

    begin: bytes
    inline: InlineText[Fragment]
    end: bytes
    writer: Writer


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer of the text of a paragraph.

    prefix: of its names in the file, in bytes
    ends: the end tags of formats of OpenDocument
    """

    vocabulary: ElementNames
    prefix: bytes
    ends: Mapping[bytes, bytes]

    def text(self, piece: FormattedText) -> bytes:
        """Return a run with this text."""
        content = escape(piece.text).encode()
        if not self.vocabulary.run:
            return self._with_spaces(piece, content)
        run, text = (self.prefix + _local(name) for name in (self.vocabulary.run, self.vocabulary.text))
        space = b' xml:space="preserve"' if self.vocabulary.run == "w:r" else b""
        return b"<%s>%s<%s%s>%s</%s></%s>" % (run, piece.format, text, space, content, text, run)

    def _with_spaces(self, piece: FormattedText, content: bytes) -> bytes:
        """Return the same in OpenDocument, where a run of spaces is one space."""
        spaces = _SPACES.sub(
            lambda run: f' <{self.prefix.decode()}s {self.prefix.decode()}c="{len(run[0]) - 1}"/>', content.decode()
        )
        return piece.format + spaces.encode() + self.ends[piece.format]


class XmlFile:
    """A file, and what is to be translated of it."""

    def __init__(self, content: bytes, vocabulary: ElementNames) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        self._content, self._vocabulary = content, vocabulary
        self._parts: dict[int, Fragment] = {}  # of paragraphs, by the positions of their begin
        self._ends = {b"": b""}  # the end tags of formats of OpenDocument
        self._format_bytes = 0  # that are written with the parts of texts
        root = read_tree(content, PREFIXES, ATTRIBUTES)
        self._kept = KeptText(root if b"fld" in content else None)
        self._whole = (content[: root.content], *self._fragment(root.elements, root.content, root.content_end))
        self._whole += (content[root.content_end :],)
        self._parts.clear()
        self.paragraphs = list(_translated(self._whole))

    def written(self, translations: Mapping[int, str]) -> bytes:
        """Return the file with translations, by the identities of paragraphs."""
        return _written(self._whole, translations)

    def _fragment(self, elements: Iterable[Element], begin: int, end: int) -> Fragment:
        """Return bytes of the file, with the paragraphs in the elements that are there."""
        found: list[bytes | Paragraph] = []
        for each in _outermost(elements, self._vocabulary):
            if parts := self._parts_of(each):
                found += [self._content[begin : each.begin], *parts]
                begin = each.end
        return (*found, self._content[begin:end])

    def _parts_of(self, element: Element) -> Fragment:
        """Return a paragraph, or the parts of one without words that has others in it, nothing if it is only copied."""
        found = self._parts.get(element.begin)
        if found is None:
            found = self._parts[element.begin] = self._read(element)
        return found

    def _read(self, element: Element) -> Fragment:
        writer = Writer(self._vocabulary, element.written[: element.written.rfind(b":") + 1], self._ends)
        nodes = self._nodes(element, b"", writer)
        begin, end = self._content[element.begin : element.content], self._content[element.content_end : element.end]
        if has_words(nodes):
            return (Paragraph(begin, InlineText(nodes), end, writer),)
        inside = self._fragment(element.elements, element.content, element.content_end)
        return (begin, *inside, end) if len(inside) > 1 else ()

    def _nodes(self, element: Element, format: bytes, writer: Writer, begin: int = 0) -> list[Node[Fragment]]:
        """Return the nodes of an element; format: of its text, in OpenDocument; begin: of the elements to read."""
        names, found = self._vocabulary, list[Node[Fragment]]()
        for child in element.children:
            if isinstance(child, Element) and child.begin < begin:
                continue
            if isinstance(child, XmlText):
                found += [] if names.run else [FormattedText(" ".join(re.split(r"\s+", child.text)), format)]
            elif child.name == names.run:
                found += self._run(child, writer)
            elif child.name in names.formats and child.content - child.begin + len(format) <= MOST_FORMAT:
                inside = format + self._content[child.begin : child.content]
                self._ends[inside] = b"</%s>%s" % (child.written, self._ends[format])
                found += self._nodes(child, inside, writer)
            elif child.name == "text:s":
                found.append(FormattedText(" " * _number(child.attributes.get("text:c", "1")), format))
            elif child.name in names.around and not self._kept.has(child):
                found.append(self._around(child, writer))
            elif child.name not in names.left_out:
                found.append(self._point(child, format, self._ends[format]))
            self._count(format)
        return _with_links(_with_ranges(_with_fields(found, writer)))

    def _around(self, element: Element, writer: Writer) -> Around[Fragment]:
        inside = element.child(self._vocabulary.inside.get(element.name, "")) or element
        begin = _after_properties(inside)
        before, after = self._content[element.begin : begin], self._content[inside.content_end : element.end]
        link = element.name in _LINKS or (element.name == "w:fldSimple" and b"HYPERLINK" in before)
        return Around((before,), self._nodes(inside, b"", writer, begin), (after,), link)

    def _run(self, run: Element, writer: Writer) -> Iterator[Node[Fragment]]:
        """Yield the nodes of a run of Office Open XML. What is no text is in a run of its own."""
        names = self._vocabulary
        properties = run.child(names.properties)
        format = b"" if properties is None else self._without_spelling(properties)
        if len(format) > MOST_FORMAT:
            yield self._point(run, b"", b"")
            return
        for child in run.elements:
            self._count(format)
            if child.name == names.text and not self._kept.has(child):
                yield from _with_tabs(child.text, format, writer)
            elif child.name in names.characters and not self._kept.has(child):
                yield FormattedText(names.characters[child.name], format)
            elif child is not properties and child.name not in names.left_out:
                yield self._point(child, b"<%s>%s" % (run.written, format), b"</%s>" % run.written)

    def _without_spelling(self, properties: Element) -> bytes:
        """Return the properties of a run without what a spelling checker has noted, empty if they say nothing else."""
        found, at = list[bytes](), properties.begin
        for begin, end in _of_spelling(properties, self._content):
            found.append(self._content[at:begin])
            at = end
        format = b"".join([*found, self._content[at : properties.end]])
        return b"" if _EMPTY.fullmatch(format) else format

    def _count(self, format: bytes) -> None:
        """Count a part of a text, which is written with its format."""
        self._format_bytes += len(format)
        if self._format_bytes > MOST_TEXT_BYTES:
            raise UnreadableDocument(
                f"the parts of the texts in a file have formats of {self._format_bytes:,} bytes; at most"
                f" {MOST_TEXT_BYTES:,}"
            )

    def _point(self, element: Element, before: bytes, after: bytes) -> Point[Fragment]:
        content = (before, *self._fragment([element], element.begin, element.end), after)
        splits = element.name in self._vocabulary.breaks
        if element.name == "w:fldChar":
            return FieldMark(content, splits, element.attributes.get("w:fldCharType", ""))
        if element.name in self._vocabulary.ranges:
            kind, attribute, begins = self._vocabulary.ranges[element.name]
            attributes = attributes_of(self._content, element.begin, element.content)
            value = next((each.value for each in attributes if each.local == attribute.encode()), b"")
            return RangeMark(content, splits, (kind, value), begins)
        return Point(content, splits)


def _after_properties(element: Element) -> int:
    """Return where the text of an element begins: after its properties, which must be first in it."""
    first = next(element.elements, None)
    return first.end if first is not None and first.name in _PROPERTIES else element.content


@dataclass(frozen=True, slots=True)
class FieldMark(Point[Fragment]):
    """A mark of a complex field: kind is begin, separate or end (ISO/IEC 29500-1, 17.16.18)."""

    kind: str = ""


@dataclass(frozen=True, slots=True)
class RangeMark(Point[Fragment]):
    """A mark at the begin or the end of what a bookmark or a comment is about; key: what both marks have in common."""

    key: tuple[str, bytes] = ("", b"")
    begins: bool = False


def _with_ranges(nodes: list[Node[Fragment]]) -> list[Node[Fragment]]:
    """Return nodes in which what is between two marks is one node: as points their order could change.

    Marks around all words or none stay points.
    """
    if not any(isinstance(node, RangeMark) for node in nodes):
        return nodes
    words = [0, *accumulate(has_words([node]) for node in nodes)]
    begins, divide = dict[object, int](), set[object]()
    for position, node in enumerate(nodes):
        if isinstance(node, RangeMark) and node.begins:
            begins[node.key] = position
        elif isinstance(node, RangeMark) and 0 < words[position] - words[begins.get(node.key, position)] < words[-1]:
            divide.add(node.key)

    def mark(point: Point[Fragment]) -> tuple[object, bool] | None:
        return (point.key, point.begins) if isinstance(point, RangeMark) and point.key in divide else None

    return paired(nodes, mark)


def _with_links(nodes: list[Node[Fragment]]) -> list[Node[Fragment]]:
    """Return nodes in which each link of a slide, where links are formats of text, is one node if there are several."""
    links = [_LINK.search(node.format) if isinstance(node, FormattedText) else None for node in nodes]
    if len({link[0] for link in links if link}) < 2:
        return nodes
    found, last = list[Node[Fragment]](), b""
    for node, link in zip(nodes, links, strict=True):
        if link is None:
            found.append(node)
        elif link[0] == last and isinstance(found[-1], Around):
            found[-1] = replace(found[-1], nodes=[*found[-1].nodes, node])
        else:
            found.append(Around((), [node], (), link=True))
        last = link[0] if link else b""
    return found


def _with_tabs(text: str, format: bytes, writer: Writer) -> Iterator[Node[Fragment]]:
    """Yield the text of a run. A tab, which slides have as a character, ends a sentence."""
    for position, part in enumerate(text.split("\t", MOST_TABS)):
        if position:
            yield Point((writer.text(FormattedText("\t", format)),), splits=True)
        yield FormattedText(part, format)


def _with_fields(nodes: list[Node[Fragment]], writer: Writer) -> list[Node[Fragment]]:
    """Return nodes in which a complex field is what is around its result, or a point if that has no words."""
    levels: list[list[Node[Fragment]]] = [[]]
    for node in nodes:
        if isinstance(node, FieldMark) and node.kind == "begin" and len(levels) <= MOST_FIELDS:
            levels.append([])
        levels[-1].append(node)
        if isinstance(node, FieldMark) and node.kind == "end" and len(levels) > 1:
            field = levels.pop()
            levels[-1].append(_field(field, writer))
    return [node for level in levels for node in level]


def _field(nodes: list[Node[Fragment]], writer: Writer) -> Node[Fragment]:
    """Return a field; nodes: its begin, its code, a mark, its result and its end."""
    marks = [position for position, node in enumerate(nodes) if isinstance(node, FieldMark) and node.kind == "separate"]
    first = marks[0] + 1 if marks else len(nodes) - 1
    before, result, after = nodes[:first], nodes[first:-1], nodes[-1:]
    if not has_words(result):
        return Point(_fragment_of(nodes, writer))
    written = _fragment_of(before, writer)
    link = any(isinstance(part, bytes) and b"HYPERLINK" in part for part in written)
    return Around(written, _with_ranges(result), _fragment_of(after, writer), link)


def _fragment_of(nodes: Sequence[Node[Fragment]], writer: Writer) -> Fragment:
    return _contents(nodes, lambda piece: (writer.text(piece),))


def _outermost(elements: Iterable[Element], vocabulary: ElementNames) -> Iterator[Element]:
    """Yield the paragraphs among elements and inside of them that are in no other one."""
    waiting = list(elements)[::-1]
    while waiting:
        each = waiting.pop()
        if each.name in vocabulary.paragraphs:
            yield each
        elif each.name in vocabulary.cells and not _holds_text(each, vocabulary):
            waiting += [child for child in each.elements if child.name not in vocabulary.paragraphs][::-1]
        elif each.name not in vocabulary.untouched:
            waiting += list(each.elements)[::-1]


def _holds_text(cell: Element, vocabulary: ElementNames) -> bool:
    """Return whether the paragraphs of a cell of OpenDocument are what it holds, and no formula names this text."""
    kind = cell.attributes.get("office:value-type", "string")
    if kind != "string" or "office:string-value" in cell.attributes or "table:formula" in cell.attributes:
        return False
    paragraphs = (child.whole_text for child in cell.elements if child.name in vocabulary.paragraphs)
    return not vocabulary.named or "\n".join(paragraphs).lower() not in vocabulary.named


def _translated(fragment: Fragment) -> Iterator[Paragraph]:
    """Yield the paragraphs, with those inside of them."""
    for part in fragment:
        if isinstance(part, Paragraph):
            yield part
            yield from _translated(_contents(part.inline.nodes))


def _contents(nodes: Sequence[Node[Fragment]], text: Callable[[FormattedText], Fragment] = lambda _: ()) -> Fragment:
    """Return what is in the points of nodes and around nodes; text: writes pieces."""
    found: list[bytes | Paragraph] = []
    for node, nesting in steps(nodes):
        if isinstance(node, FormattedText):
            found += text(node)
        elif isinstance(node, Point):
            found += node.content
        else:
            found += node.before if nesting > 0 else node.after
    return tuple(found)


def _written(fragment: Fragment, translations: Mapping[int, str]) -> bytes:
    return b"".join(part if isinstance(part, bytes) else _paragraph(part, translations) for part in fragment)


def _paragraph(paragraph: Paragraph, translations: Mapping[int, str]) -> bytes:
    nodes = paragraph.inline.translated(translations[id(paragraph)])
    inside = write(nodes, paragraph.writer.text, lambda fragment: _written(fragment, translations))
    return paragraph.begin + inside + paragraph.end


def _of_spelling(properties: Element, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the positions of what a spelling checker has noted in properties."""
    waiting = [properties]
    while waiting:
        each = waiting.pop()
        if each.name.partition(":")[2] in _SPELLING:
            yield each.begin, each.end
            continue
        for attribute in attributes_of(content, each.begin, each.content):
            if attribute.name in _SPELLING_ATTRIBUTES:
                yield attribute.begin, attribute.end
        waiting += list(each.elements)[::-1]


def _local(name: str) -> bytes:
    return name.partition(":")[2].encode()


def _number(text: str) -> int:
    return min(int(text.lstrip("0")[:4] or 0), 1000) if text.isascii() and text.isdigit() else 1


# The files of an archive that have texts.


class ArchivePart(Protocol):
    """A file of an archive that has texts."""

    @property
    def texts(self) -> Sequence[str]:
        """To translate."""

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""


class OfficePart:
    """A file of paragraphs."""

    def __init__(self, content: bytes, vocabulary: ElementNames) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        self._file = XmlFile(content, vocabulary)
        self.texts = [paragraph.inline.text for paragraph in self._file.paragraphs]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""
        return self._file.written(dict(zip(map(id, self._file.paragraphs), translations, strict=True)))


class Parts:
    """Several files, by their names, that are translated one after the other."""

    def __init__(self, parts: Mapping[str, ArchivePart]) -> None:
        self._parts = parts

    @property
    def texts(self) -> list[str]:
        """To translate, of all files."""
        return [text for part in self._parts.values() for text in part.texts]

    def written(self, translations: Sequence[str]) -> dict[str, bytes]:
        """Return the files with translations of their texts."""
        found, begin = dict[str, bytes](), 0
        for name, part in self._parts.items():
            found[name] = part.written(translations[begin : begin + len(part.texts)])
            begin += len(part.texts)
        return found
