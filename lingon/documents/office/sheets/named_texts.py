"""The texts of a spreadsheet that its formulas, filters and pivot tables name, which must stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lingon.documents.document import unescaped

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
    """Yield the strings and the columns of tables that a formula names; a list of choices is one string."""
    for literal in _LITERAL.findall(formula):
        text = literal.replace('""', '"')
        yield text
        yield from map(str.strip, text.split(","))
    for column, end in _COLUMN.findall(formula):
        if end:
            yield re.sub("'(.)", r"\1", column).removeprefix("@")
