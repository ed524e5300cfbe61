"""The tokens of a marked-up text: what HTML and XML have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

TEXT: Final = 0
OPEN: Final = 1  # a start tag
CLOSE: Final = 2  # an end tag
EMPTY: Final = 3  # a tag of an element without content
REMARK: Final = 4  # a comment, a declaration, or a processing instruction
KEPT: Final = 5  # text that is left as it is, such as CDATA of nothing but tags
SECTION: Final = 7  # text of a CDATA section, which has no references
SPLIT: Final = 6  # anything else that is not text; it is left as it is

Token = tuple[int, int, int, str]
"""What it is, its begin and end in the text, and the name of a tag, in HTML in lower case.

The tokens of a text follow one another without a gap. They are plain tuples, which the garbage collector does not visit
again and again: a million named ones take seconds.
"""

_NAME = re.compile(r"<[^\t\n\f\r />]*+")
_ATTRIBUTE = re.compile(
    r"([^\t\n\f\r />][^\t\n\f\r />=]*+)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >]++)))?+"
)


class Attribute(NamedTuple):
    """An attribute of a tag; begin, end: of its value in the text, without the quotation marks."""

    name: str
    begin: int
    end: int


def attributes_of(text: str, begin: int, end: int) -> Iterator[Attribute]:
    """Yield the attributes with values of the start tag that has this place in a text."""
    name = _NAME.match(text, begin, end)
    assert name is not None
    for found in _ATTRIBUTE.finditer(text, name.end(), end - 1):
        value = found.lastindex or 1
        if value > 1:
            yield Attribute(found[1], *found.span(value))


def says_translate(tag: str) -> bool | None:
    """Whether the attributes of a start tag say that its content is translated; None if they do not say.

    They are `translate` and `its:translate` with "yes" or "no", the class `notranslate`, and `translatable` with "true"
    or "false" as in the resources of Android.
    """
    if "translat" not in tag.lower():
        return None
    answer = None
    name_of_tag = _NAME.match(tag)
    assert name_of_tag is not None
    for found in _ATTRIBUTE.finditer(tag, name_of_tag.end(), len(tag) - 1):
        name, value = found[1].lower(), (found[2] or found[3] or found[4] or "").lower()
        if name in ("translate", "its:translate", "translatable") and value in ("no", "false"):
            return False
        if name == "class" and "notranslate" in value.split():
            return False
        if name in ("translate", "its:translate", "translatable") and value in ("yes", "true", ""):
            answer = True
    return answer
