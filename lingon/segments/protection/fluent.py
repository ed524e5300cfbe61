"""The skeleton of select expressions of Fluent: `{ $n -> [one] file *[other] files }` without the texts of variants.

The syntax is that of Project Fluent, version 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lingon.segments.protection.spans import Kind, ProtectedSpan

_FLUENT_HEAD = re.compile(
    r"\{\s{0,20}+(?:\$[\w\-]{1,80}+|-[\w.\-]{1,80}+|[A-Z][A-Z0-9_\-]{0,40}+)(?:\([^(){}]{0,200}+\))?\s{0,20}+->\s{0,200}+"
    r"(?=\*?\[)"
)
_FIRST = re.compile(r"\*?\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\]\s*+")
_VARIANT = re.compile(
    r"(?:(?<=\s)(?:\*\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\]|\[\s{0,9}+(?:zero|one|two|few|many|other|\d{1,9}+)\s{0,9}+\])"
    r"|(?<=\n)[ \t]*+\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\])\s*+"
)


def variants_apart(text: str, closing: Mapping[int, int]) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeletons of all select expressions; closing: the place of the brace for each opening one.

    One whose braces do not match has no skeleton.
    """
    last = 0
    for head in _FLUENT_HEAD.finditer(text):
        if head.start() not in closing:
            continue
        end = closing[head.start()]
        first = _FIRST.match(text, head.end(), end)
        if first is None:
            continue
        yield ProtectedSpan(head.start(), first.end(), Kind.SKELETON)
        yield ProtectedSpan(end, end + 1, Kind.SKELETON)
        if end > last:  # variants of an expression within another one are found with those of the outer one
            begin = max(head.start(), last)
            for variant in _VARIANT.finditer(text, begin, end):
                yield ProtectedSpan(*variant.span(), Kind.SKELETON)
            last = end
