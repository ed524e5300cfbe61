"""The fields of a Word document whose results stay as they are: what a program fills in is no text of the author.

ISO/IEC 29500-1, 17.16. The result of a merge field, a date, a page number or a citation is data; that of a reference or
of a table of contents repeats text of the document, and is translated as that is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from lingon.documents.xml_tree import Element

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

    begin: its place; code: as far as it was read; separated: whether the code has ended
    """

    begin: int
    code: str = ""
    separated: bool = False


class KeptText:
    """The places in a file whose text belongs to the code of a field, or to a result that stays."""

    def __init__(self, root: Element | None) -> None:
        """root: of the file; None for one without fields, which is not looked through."""
        places = sorted(_places(root)) if root is not None else []
        self._begins, self._ends = list[int](), list[int]()
        for begin, end in places:
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def has(self, element: Element) -> bool:
        """Whether an element is at one of the places."""
        place = bisect_right(self._begins, element.begin) - 1
        return place >= 0 and element.begin < self._ends[place]


def is_text(code: str) -> bool:
    """Whether the result of a field with this code is text of the document; one without a code is no field."""
    kind = _KIND.match(code)
    assert kind is not None
    return not kind[1] or kind[1].upper() in TRANSLATED


def _places(root: Element) -> Iterator[tuple[int, int]]:
    """Yield the places of the codes of fields, and of the fields that stay; one that does not end has none."""
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
