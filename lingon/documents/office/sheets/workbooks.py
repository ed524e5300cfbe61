"""Spreadsheets of Office Open XML: the texts of cells, comments, headers, footers and drawings.

The name of a column of a table is the text of its header cell, or a program reports a damaged file. So both are
translated together, or both stay as they are. A result of a formula that is the text of a cell becomes its translation:
some programs show the results that a file has until a cell changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from operator import not_
from xml.sax.saxutils import escape, quoteattr

from lingon.documents.document import Edit, edited, unescaped
from lingon.documents.inline import Node
from lingon.documents.office.parts import OfficePart, Parts
from lingon.documents.office.sheets.cells import Code, Texts, plain_text, without_codes
from lingon.documents.office.sheets.named_texts import named_texts
from lingon.documents.office.vocabularies import DRAWING
from lingon.documents.xml_tree import Attribute, attributes_of

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
    """Return how many tags of a file are kept in memory; those of cells are not, without the strings in them."""
    if _DRAWINGS.fullmatch(name) or (_TEXTS.fullmatch(name) and "sheets/" not in name):
        return content.count(b"<") + content.count(b"\n")  # a line break in a text is kept like a tag
    return content.count(b"is>") * TAGS_OF_STRING


class Workbook:
    """A spreadsheet of Office Open XML; contents: its files that match FILES, by their names."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Raises UnreadableDocument."""
        kept = named_texts(contents.values())
        self._contents = contents
        self._texts = {name: Texts(each, kept) for name, each in contents.items() if _TEXTS.fullmatch(name)}
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

    def _changed(self, nodes: Mapping[str, Sequence[Sequence[Node[Code]]]]) -> dict[str, str]:
        """Return the new texts of cells and of the names of columns; those that columns cannot have stay."""
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
        """Whether its columns may have these names: all have different ones, that are not too long."""
        each = zip(self._attributes, self.names, strict=True)
        columns = [names[name].lower() for attribute, name in each if attribute.name == b"name"]
        return len(set(columns)) == len(columns) and all(0 < len(column) <= MOST_NAME for column in columns)

    def written(self, names: Mapping[str, str]) -> bytes:
        """Return the file with other names."""
        every = zip(self._attributes, self.names, strict=True)
        changed = ((attribute, names[name]) for attribute, name in every if names[name] != name)
        return edited(self._content, (Edit(old.begin, old.end, _attribute(old.name, new)) for old, new in changed))


def _attributes(content: bytes) -> Iterator[Attribute]:
    """Yield the names of the columns of a table, and the labels of their totals."""
    for column in _TABLE_COLUMN.finditer(content):
        yield from (
            each for each in attributes_of(content, *column.span()) if each.name in (b"name", b"totalsRowLabel")
        )


def _value(attribute: Attribute) -> str:
    return without_codes(unescaped(attribute.value.decode(errors="surrogateescape")))


def _attribute(name: bytes, value: str) -> bytes:
    return b" %s=%s" % (name, quoteattr(value.replace("\n", "_x000a_")).encode(errors="surrogateescape"))
