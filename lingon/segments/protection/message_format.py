"""The skeleton of complex messages of MessageFormat 2: `.match $n one {{# file}} * {{files}}` without its patterns.

The syntax is that of Unicode Technical Standard 35, part 9: a message that begins with a declaration or a matcher has
its texts in doubled braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.protection.spans import Kind, ProtectedSpan

_BEGIN = re.compile(r"\s*+\.(?:input|local|match)\b")
_BRACE = re.compile(r"\\[\\{}|]|\{\{|\}\}|[{}]")
_BLANKS = re.compile(r"\s*+")


def patterns_apart(text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeleton of a text that is one such message; none if its braces do not match."""
    if not _BEGIN.match(text):
        return
    patterns, depth, opened, inside = list[tuple[int, int]](), 0, 0, False
    for brace in _BRACE.finditer(text):
        mark = brace[0]
        if mark[0] == "\\":
            continue
        if not inside:
            if mark == "{{" and depth == 0:
                inside, opened = True, brace.end()
            else:
                depth += {"{": 1, "}": -1}.get(mark, 0)
        elif mark == "}}" and depth == 0:
            patterns.append((opened, brace.start()))
            inside = False
        elif mark == "}}" and depth == 1:  # the end of a placeholder, and a brace that belongs to none
            return
        else:
            depth += {"{": 1, "}": -1, "{{": 2, "}}": -2}[mark]
        if depth < 0:
            return
    if inside or depth or not patterns:
        return
    at = 0
    for begin, end in [*patterns, (len(text), len(text))]:
        first = _BLANKS.match(text, begin, end)
        yield ProtectedSpan(at, first.end() if first and first.end() < end else begin, Kind.SKELETON)
        at = end
