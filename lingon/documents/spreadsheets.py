"""Spreadsheets of Office Open XML and OpenDocument: the texts of cells, comments, headers, footers and drawings.

The name of a column of a table is the text of its header cell, or a program reports a damaged file. So both are
translated together, or both stay as they are. A result of a formula that is the text of a cell becomes its translation:
some programs show the results that a file has until a cell changes.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, groupby
from operator import not_
from xml.sax.saxutils import escape, quoteattr

from lingon.documents.document import MOST_FORMAT, Edit, check_marks, check_tags, edited, unescaped
from lingon.documents.inline import Around, FormattedText, InlineText, Node, Point
from lingon.documents.office_text import (
    DRAWING,
    OPEN_OBJECT,
    OPEN_SPREADSHEET,
    PREFIXES,
    ElementNames,
    OfficePart,
    Parts,
)
from lingon.documents.xml_tree import Element, XmlAttribute, attributes_of, read_elements

WORKBOOK = "xl/workbook.xml"
MOST_NAME = 255  # characters of the name of a column
_TEXTS = re.compile(r"xl/(sharedStrings|comments[^/]*|(worksheets|chartsheets|comments|threadedComments)/[^/]+)\.xml")
_CELLS = re.compile(r"xl/(sharedStrings|worksheets/[^/]+)\.xml")
_DRAWINGS = re.compile(r"xl/(drawings|charts|diagrams)/[^/]+\.xml")
_TABLE = re.compile(r"xl/tables/[^/]+\.xml")
FILES = re.compile(
    rf"{WORKBOOK}|{_TEXTS.pattern}|{_DRAWINGS.pattern}|{_TABLE.pattern}"
    r"|xl/(pivotCache/pivotCacheDefinition|queryTables/|slicerCaches/)[^/]*\.xml"
)
MOST_ROUNDS = 8  # in which tables get their old names back: those of one table may be those of others
_TABLE_COLUMN = re.compile(rb"<(?:\w++:)?+tableColumn\s[^<>]*+>")
_CALCULATION = re.compile(rb"<(?:\w++:)?+calcPr\b(?:[^<>/]++|/(?!>))*+")
_FULL = re.compile(rb"""\sfullCalcOnLoad=(?:"[^"]*+"|'[^']*+')""")
_RESULT = re.compile(
    rb"(<(?:\w++:)?+c\s(?P<cell>[^<>]*+)>\s*+<(?:\w++:)?+f\b[^<>]*+(?:(?<=/)>|>[^<]*+</(?:\w++:)?+f>)"
    rb"\s*+<(?:\w++:)?+v>)(?P<result>[^<]*+)"
)
_TEXT = re.compile(rb"""\bt=["']str["']""")
TAGS_OF_STRING = 4  # for each of the two tags around a string in a cell


def tags_of_workbook(name: str, content: bytes) -> int:
    """Return how many tags of a file are kept in memory. Those of cells are not, without the strings in them."""
    if _DRAWINGS.fullmatch(name) or (_TEXTS.fullmatch(name) and "sheets/" not in name):
        return content.count(b"<") + content.count(b"\n")  # a line break in a text is kept like a tag
    return content.count(b"is>") * TAGS_OF_STRING


class Workbook:
    """A spreadsheet of Office Open XML; contents: its files that match FILES, by their names."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        kept = named_texts(contents.values())
        self._contents = contents
        self._texts = {name: WorkbookTexts(each, kept) for name, each in contents.items() if _TEXTS.fullmatch(name)}
        drawings = {name: each for name, each in contents.items() if _DRAWINGS.fullmatch(name)}
        self._drawings = Parts({name: OfficePart(each, DRAWING) for name, each in drawings.items()})
        self._tables = {name: _Table(each) for name, each in contents.items() if _TABLE.fullmatch(name)}
        self._columns = {name for table in self._tables.values() for name in table.names}

    @property
    def texts(self) -> list[str]:
        """To translate, of all files."""
        return [*(text for each in self._texts.values() for text in each.texts), *self._drawings.texts]

    def written(self, translations: Sequence[str]) -> dict[str, bytes]:
        """Return the files with translations of their texts."""
        each = iter(translations)
        nodes = {name: [item.translated(next(each)) for item in texts.items] for name, texts in self._texts.items()}
        changed = self._changed(nodes)
        kept = {name for name in self._columns if changed[name] == name}
        found = self._drawings.written(list(each))
        for name, table in self._tables.items():
            found[name] = table.written(changed)
        for name, texts in self._texts.items():
            new = zip(texts.items, nodes[name], strict=True)
            stay = kept if _CELLS.fullmatch(name) else ()
            content = texts.written([item.inline.nodes if item.plain in stay else each for item, each in new])
            found[name] = _with_results(content, changed) if "worksheets/" in name else content
        return found | self._calculated()

    def _changed(self, nodes: Mapping[str, Sequence[Sequence[Node[CellCode]]]]) -> dict[str, str]:
        """Return the new texts of cells and of the names of columns. Those that columns cannot have stay."""
        found: dict[str, set[str]] = {}
        for file in filter(_CELLS.fullmatch, self._texts):
            for item, translated in zip(self._texts[file].items, nodes[file], strict=True):
                found.setdefault(item.plain, set()).add(plain_text(translated))
        changed = {name: name for name in self._columns}
        changed |= {text: each.pop() for text, each in found.items() if len(each) == 1}
        tables = list(self._tables.values())
        for _ in range(MOST_ROUNDS):
            accepting = [table.accepts(changed) for table in tables]
            if all(accepting):
                return changed
            changed |= {name: name for table in compress(tables, map(not_, accepting)) for name in table.names}
            tables = list(compress(tables, accepting))
        return changed | {name: name for name in self._columns}

    def _calculated(self) -> dict[str, bytes]:
        """Return the workbook with the demand to calculate all again, if formulas have texts as results."""
        results = any(b't="str"' in each for name, each in self._contents.items() if "worksheets/" in name)
        content = self._contents.get(WORKBOOK, b"")
        if not results or not _CALCULATION.search(content):
            return {}
        return {
            WORKBOOK: _CALCULATION.sub(lambda tag: _FULL.sub(b"", tag[0]) + b' fullCalcOnLoad="1"', content, count=1)
        }


def _with_results(content: bytes, changed: Mapping[str, str]) -> bytes:
    """Return a sheet in which the results of formulas have new texts."""

    def result(match: re.Match[bytes]) -> bytes:
        if not _TEXT.search(match["cell"]):
            return match[0]
        text = changed.get(without_codes(unescaped(match["result"].decode(errors="replace"))))
        return match[0] if text is None else match[1] + escape(text).encode()

    return _RESULT.sub(result, content)


class _Table:
    """A file with the columns of a table."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._attributes = list(_attributes(content))
        self.names = list(map(_value, self._attributes))

    def accepts(self, names: Mapping[str, str]) -> bool:
        """Return whether its columns may have these names: all have different ones, that are not too long."""
        each = zip(self._attributes, self.names, strict=True)
        columns = [names[name].lower() for attribute, name in each if attribute.name == b"name"]
        return len(set(columns)) == len(columns) and all(0 < len(column) <= MOST_NAME for column in columns)

    def written(self, names: Mapping[str, str]) -> bytes:
        """Return the file with other names."""
        every = zip(self._attributes, self.names, strict=True)
        changed = ((attribute, names[name]) for attribute, name in every if names[name] != name)
        return edited(self._content, (Edit(old.begin, old.end, _attribute(old.name, new)) for old, new in changed))


def _attributes(content: bytes) -> Iterator[XmlAttribute]:
    """Yield the names of the columns of a table, and the labels of their totals."""
    for column in _TABLE_COLUMN.finditer(content):
        yield from (
            each for each in attributes_of(content, *column.span()) if each.name in (b"name", b"totalsRowLabel")
        )


def _value(attribute: XmlAttribute) -> str:
    return without_codes(unescaped(attribute.value.decode(errors="surrogateescape")))


def _attribute(name: bytes, value: str) -> bytes:
    return b" %s=%s" % (name, quoteattr(value.replace("\n", "_x000a_")).encode(errors="surrogateescape"))


# The texts of a spreadsheet of Office Open XML: of cells, comments, and what is printed above and below a page.
# ISO/IEC 29500-1: rich text is in 18.4.8, the codes of headers and footers in 18.3.1.46.

CELLS = ("x:si", "x:is")
COMMENT, THREAD = "x:text", "tc:threadedComment"
HEADERS = tuple(f"x:{pages}{position}" for pages in ("odd", "even", "first") for position in ("Header", "Footer"))
WANTED = (*CELLS, COMMENT, THREAD, *HEADERS)
MOST_HEADER = 255  # characters; a program refuses a file with a longer one
MOST_CELL = 32_767  # characters
_CODE = re.compile(r"(?:_x000[Dd]_|\r)?\n|_x[0-9A-Fa-f]{4}_")
_CODED = re.compile(r"_x((?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})_")  # half a character of UTF-16 stays a code
_HEADER_CODE = re.compile(r'&(?:&|"[^"]*+"|K(?:[0-9A-Fa-f]{6}|\d\d[+-]\d{3})|\d++|.)|\n')
_SIZE = re.compile(r"&\d++\Z")
_SECTIONS = ("&L", "&C", "&R", "\n")

CellCode = FormattedText
"""A code that is no text, with the format of the text around it."""


class Item:
    """One text of a file; begin, end: its position.

    plain: the text without its formats, as the names of columns have it
    """

    def __init__(self, element: Element, content: bytes) -> None:
        self._prefix = element.written[: element.written.rfind(b":") + 1]
        self._kind, self.begin, self.end = element.name, element.content, element.content_end
        self.inline = InlineText(self._nodes(element, content))
        self.plain = plain_text(self.inline.nodes)

    def _nodes(self, element: Element, content: bytes) -> list[Node[CellCode]]:
        if self._kind in HEADERS:
            return list(_header_nodes(element.text))
        if self._kind == THREAD:
            text = element.child("tc:text")
            if text is None or element.child("tc:mentions"):  # which count the characters before a name
                return []
            self.begin, self.end = text.content, text.content_end
            return list(_nodes(text.text, b""))
        runs = list(_runs(element, content))
        if any(len(format) > MOST_FORMAT for _, format in runs):
            return []
        return [node for text, format in runs for node in _nodes(text, format)]

    def translated(self, translation: str) -> list[Node[CellCode]]:
        """Return the text of a translation. The text as it was if a program would not read a longer one."""
        nodes = self.inline.translated(translation)
        most = MOST_HEADER if self._kind in HEADERS else MOST_CELL
        return nodes if len(self._text(nodes)) <= most else self.inline.nodes

    def written(self, nodes: Sequence[Node[CellCode]]) -> bytes:
        """Return the content of its element."""
        if self._kind in HEADERS or self._kind == THREAD:
            return escape(self._text(nodes)).encode()
        pieces = _joined(_pieces(nodes))
        if not any(piece.format for piece in pieces):
            return self._element(b"t", pieces[0].text)
        return b"".join(
            b"<%sr>%s%s</%sr>" % (self._prefix, piece.format, self._element(b"t", piece.text), self._prefix)
            for piece in pieces
        )

    def _element(self, name: bytes, text: str) -> bytes:
        tag = self._prefix + name
        return b'<%s xml:space="preserve">%s</%s>' % (tag, escape(text).encode(), tag)

    def _text(self, nodes: Sequence[Node[CellCode]]) -> str:
        if self._kind not in HEADERS:
            return "".join(piece.text for piece in _pieces(nodes))
        found, size = list[str](), False
        for node, piece in zip(nodes, _pieces(nodes), strict=True):
            text = piece.text if isinstance(node, Point) else piece.text.replace("&", "&&")
            if size and text[:1].isdigit():  # which would be read as the size of the letters
                found.append(" ")
            found.append(text)
            size = bool(_SIZE.search(text))
        return "".join(found)


class WorkbookTexts:
    """The texts of one file of a workbook. Those in `kept`, in lower case, are not translated."""

    def __init__(self, content: bytes, kept: Container[str]) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        self._content = content
        elements = read_elements(content, PREFIXES, (), WANTED)
        check_marks(sum(sum(map(element.whole_text.count, ("\n", "_x", "&"))) for element in elements))
        items = [Item(element, content) for element in elements]
        check_tags(sum(len(item.inline.nodes) for item in items))
        self.items = [item for item in items if item.inline.text and item.plain.lower() not in kept]

    @property
    def texts(self) -> list[str]:
        """To translate."""
        return [item.inline.text for item in self.items]

    def written(self, translations: Sequence[Sequence[Node[CellCode]]]) -> bytes:
        """Return the file; translations: the nodes of each item."""
        every = zip(self.items, translations, strict=True)
        changed = ((item, nodes) for item, nodes in every if nodes is not item.inline.nodes)
        return edited(self._content, (Edit(item.begin, item.end, item.written(nodes)) for item, nodes in changed))


def plain_text(nodes: Sequence[Node[CellCode]]) -> str:
    """Return the text of nodes without formats."""
    return without_codes("".join(piece.text for piece in _pieces(nodes)))


def without_codes(text: str) -> str:
    """Return a text with the characters that its codes stand for. A line break is one character."""
    return _CODED.sub(lambda code: chr(int(code[1], 16)), text).replace("\r", "")


def _runs(element: Element, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the text of the runs of rich text, each with its format. Readings of Japanese words are left out."""
    for child in element.elements:
        if child.name == "x:t":
            yield child.text, b""
        elif child.name == "x:r":
            properties, text = child.child("x:rPr"), child.child("x:t")
            if text is not None:
                yield text.text, b"" if properties is None else content[properties.begin : properties.end]


def _nodes(text: str, format: bytes) -> Iterator[Node[CellCode]]:
    """Yield the text of a run. Line breaks and other codes are points."""
    at = 0
    for code in _CODE.finditer(text):
        yield FormattedText(text[at : code.start()], format)
        yield Point(FormattedText(code[0], format), splits=code[0].endswith("\n"))
        at = code.end()
    yield FormattedText(text[at:], format)


def _header_nodes(text: str) -> Iterator[Node[CellCode]]:
    at = 0
    for code in _HEADER_CODE.finditer(text):
        yield FormattedText(text[at : code.start()])
        yield FormattedText("&") if code[0] == "&&" else Point(FormattedText(code[0]), splits=code[0] in _SECTIONS)
        at = code.end()
    yield FormattedText(text[at:])


def _pieces(nodes: Sequence[Node[CellCode]]) -> Iterator[FormattedText]:
    for node in nodes:
        assert not isinstance(node, Around)
        yield node.content if isinstance(node, Point) else node


def _joined(pieces: Iterator[FormattedText]) -> list[FormattedText]:
    alike = groupby(pieces, key=lambda piece: piece.format)
    return [FormattedText("".join(piece.text for piece in each), format) for format, each in alike]


# The texts of a spreadsheet that its formulas, filters and pivot tables name, which must stay as they are.

_FORMULA = re.compile(
    rb"<(?:\w++:)?+(?:f|formula[12]?|definedName|calculatedColumnFormula|totalsRowFormula)\b[^<>]*+>([^<]++)</"
)
_NAME = re.compile(
    rb"<(?:\w++:)?+(?:cacheField|queryTableField|filter|customFilter|slicerCacheDefinition)\s[^<>]*?"
    rb"""\b(?:name|val|sourceName)=("[^"<]*+"|'[^'<]*+')"""
)
_OPEN_FORMULA = re.compile(
    rb"""\s(?:table|calcext|style):(?:formula|condition|expression|value)=("[^"<]*+"|'[^'<]*+')"""  # rules of cells too
)
_OPEN_NAME = re.compile(rb"""\stable:(?:value|source-field-name|member-name)=("[^"<]*+"|'[^'<]*+')""")
_LITERAL = re.compile(r'"((?:[^"]++|"")*+)"')
_COLUMN = re.compile(r"\[((?:'.|[^\[\]'])++)(\]?)")  # with one that has no end, or its end would be looked for often


def named_texts(contents: Iterable[bytes]) -> set[str]:
    """Return the texts that the XML files of a workbook name, in lower case: a program compares without case."""
    found = set[str]()
    for content in contents:
        for formula in _FORMULA.finditer(content):
            found.update(_of_formula(unescaped(formula[1].decode(errors="replace"))))
        found.update(_values(_NAME, content))
    return {text.lower() for text in found}


def named_open_texts(content: bytes) -> set[str]:
    """Return the same of the content of a spreadsheet of OpenDocument."""
    found = set(_values(_OPEN_NAME, content))
    for formula in _values(_OPEN_FORMULA, content):
        found.update(_of_formula(formula))
    return {text.lower() for text in found}


def _values(pattern: re.Pattern[bytes], content: bytes) -> Iterator[str]:
    for attribute in pattern.finditer(content):
        yield unescaped(attribute[1][1:-1].decode(errors="replace"))


def _of_formula(formula: str) -> Iterator[str]:
    """Yield the strings and the columns of tables that a formula names. A list of choices is one string."""
    for literal in _LITERAL.findall(formula):
        text = literal.replace('""', '"')
        yield text
        yield from map(str.strip, text.split(","))
    for column, end in _COLUMN.findall(formula):
        if end:
            yield re.sub("'(.)", r"\1", column).removeprefix("@")


# Spreadsheets of OpenDocument.


def open_workbook(contents: Mapping[str, bytes]) -> Parts:
    """Return the texts of the files of a spreadsheet, by their names. Raises UnreadableDocument."""

    def vocabulary(name: str, content: bytes) -> ElementNames:
        return OPEN_OBJECT if "/" in name else replace(OPEN_SPREADSHEET, named=frozenset(named_open_texts(content)))

    return Parts({name: OfficePart(content, vocabulary(name, content)) for name, content in contents.items()})
