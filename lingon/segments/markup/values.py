"""Texts that are not between tags: the values of attributes, and CDATA sections of XML. They have no tags inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from lingon.segments.markup.structure import Structure
from lingon.segments.markup.text_map import Piece
from lingon.segments.markup.tokens.token import EMPTY, OPEN, attributes_of, says_translate

_BUTTONS = frozenset(["button", "reset", "submit"])  # types of a field that show their value
_DESCRIPTIONS = re.compile(
    r"description|keywords|(?:og|twitter):(?:title|description|site_name|image:alt)", re.IGNORECASE
)
_WITH_LABELS = frozenset(["menuitem", "optgroup", "option", "track"])
_STYLES = frozenset(["link", "style"])  # their titles are names that programs use
_PLAIN = re.compile(r"[^&<>\"'\xa0]++|.", re.DOTALL)
_SECTION = re.compile(r"(?:[^\]]++|\](?!\]>))++|\]\]>")


class Spelling(Enum):
    """How a text is written: between tags, in a CDATA section, or as the value of an attribute."""

    ELEMENT = "element"
    SECTION = "section"
    DOUBLE = "double"
    SINGLE = "single"
    UNQUOTED = "unquoted"


_OF_QUOTES = {'"': Spelling.DOUBLE, "'": Spelling.SINGLE}


def values_of(text: str, structure: Structure, names: frozenset[str]) -> Iterator[tuple[int, int, int, Spelling]]:
    """Yield the place of each tag with such attributes, and those of their values, without the quotation marks.

    names: of attributes, in lower case for HTML. In HTML some stand for a text in some elements only, such as value.
    """
    if not names:
        return
    html = structure.html
    for place, (kind, begin, end, name) in enumerate(structure.tokens):
        if kind not in (OPEN, EMPTY) or structure.untouched[place] or structure.kept[place]:
            continue
        found = [
            (each if not html else each._replace(name=each.name.lower())) for each in attributes_of(text, begin, end)
        ]
        if not any(each.name in names for each in found) or says_translate(text[begin:end]) is False:
            continue
        others = {each.name: text[each.begin : each.end].lower() for each in reversed(found)} if html else {}
        for each in found:
            if each.name in names and (not html or _is_text(name, each.name, others)):
                yield begin, each.begin, each.end, _OF_QUOTES.get(text[each.begin - 1], Spelling.UNQUOTED)


def _is_text(element: str, name: str, attributes: dict[str, str]) -> bool:
    """Whether an attribute of an element of HTML is a text; attributes: all of the element, in lower case."""
    if name == "value":
        return element == "input" and attributes.get("type") in _BUTTONS
    if name == "content":
        what = attributes.get("name") or attributes.get("property") or ""
        return element == "meta" and _DESCRIPTIONS.fullmatch(what) is not None
    if name == "label":
        return element in _WITH_LABELS
    return not (name == "title" and element in _STYLES)


def write_value(value: str, spelling: Spelling, at: int, *, in_html: bool) -> tuple[str, list[Piece]]:
    """Return a text as it is written, with new quotation marks if it had none, and where its characters are.

    at: where it begins in the result
    """
    parts, pieces, length = list[str](), list[Piece](), 0
    start = '"' if spelling is Spelling.UNQUOTED else ""
    at += len(start)
    for part, written in _written(value, spelling, in_html=in_html):
        pieces.append((length, length + len(part), at, at + len(written)))
        parts.append(written)
        length, at = length + len(part), at + len(written)
    return f"{start}{''.join(parts)}{start}", pieces


def _written(value: str, spelling: Spelling, *, in_html: bool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a value and how each is written."""
    if spelling is Spelling.SECTION:
        for found in _SECTION.finditer(value):
            yield found[0], "]]]]><![CDATA[>" if found[0] == "]]>" else found[0]
        return
    references = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    references |= {"'": "&#39;"} if spelling is Spelling.SINGLE else {'"': "&quot;"}
    references |= {"\xa0": "&nbsp;"} if in_html else {}
    for found in _PLAIN.finditer(value):
        yield found[0], references.get(found[0], found[0])
