"""The skeleton of ICU messages: `{n, plural, one {# file} other {# files}}` without the texts of its arms.

The syntax is that of MessageFormat in the ICU user guide, "Formatting Messages"; quoted braces count as braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lingon.segments.protection.spans import Kind, ProtectedSpan

_ICU_HEAD = re.compile(
    r"\{\s{0,20}+[\w.\-]{1,80}+\s{0,20}+,\s{0,20}+(plural|selectordinal|select)\s{0,20}+,(?:\s{0,20}+offset:\d{1,9}+)?"
)
_ARM = re.compile(r"\s*+(?:=\d{1,9}+|[\w\-]{1,80}+)\s*+\{")
_END = re.compile(r"\s*+\}")


def arms_apart(text: str, closing: Mapping[int, int]) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeletons, and each `#` in an arm of a plural.

    A message whose braces do not match, or without arms, has no skeleton.
    closing: the place of the closing brace for each opening one
    """
    counted_to = 0  # each # is yielded once, although messages nest
    for head in _ICU_HEAD.finditer(text):
        spans = _skeleton(text, head, closing)
        yield from spans
        if spans and head[1] != "select":
            for found in re.compile("#").finditer(text, max(head.end(), counted_to), spans[-1].end):
                yield ProtectedSpan(*found.span(), Kind.PLACEHOLDER)
            counted_to = max(counted_to, spans[-1].end)


def _skeleton(text: str, head: re.Match[str], closing: Mapping[int, int]) -> list[ProtectedSpan]:
    """Return the parts of one message around its arms; none if it is no message."""
    spans, begin, at = [], head.start(), head.end()
    while arm := _ARM.match(text, at):
        opening = arm.end() - 1
        if opening not in closing:
            return []
        spans.append(ProtectedSpan(begin, arm.end(), Kind.SKELETON))
        begin = closing[opening]
        at = begin + 1
    end = _END.match(text, at)
    return [*spans, ProtectedSpan(begin, end.end(), Kind.SKELETON)] if spans and end else []
