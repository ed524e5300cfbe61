"""The skeleton of complex messages of MessageFormat 2: `.match $n one {{# file}} * {{files}}` without its patterns.

The syntax is that of Unicode Technical Standard 35, part 9: a message that begins with a declaration or a matcher has
its texts in doubled braces. A text has one at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.protection.spans import Kind, ProtectedSpan

_BEGIN = re.compile(r"(?<!\S)\.(?:input\s{0,9}+\{|local\s{1,9}+\$|match\s{1,9}+[$|{])")
_BRACE = re.compile(r"\\[\\{}|]|\{\{|\}\}|[{}]")
_KEYS = re.compile(r"\s*+(?:(?:[\w.*+\-]{1,80}+|\|[^|{}]{0,80}+\|)\s++)*+(?=\{\{)")
_BLANKS = re.compile(r"\s*+")


def patterns_apart(text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeleton of the first such message of a text; none if its braces do not match.

    The message ends with the last pattern before which there are only keys.
    """
    begin = _BEGIN.search(text)
    if begin is None:
        return
    patterns, depth, opened, inside = list[tuple[int, int]](), 0, 0, False
    for brace in _BRACE.finditer(text, begin.start()):
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
            if not _KEYS.match(text, brace.end()):
                break
        elif mark == "}}" and depth == 1:  # the end of a placeholder, and a brace that belongs to none
            return
        else:
            depth += {"{": 1, "}": -1, "{{": 2, "}}": -2}[mark]
        if depth < 0:
            return
    if inside or depth or not patterns:
        return
    at = begin.start()
    for first, last in patterns:
        blanks = _BLANKS.match(text, first, last)
        yield ProtectedSpan(at, blanks.end() if blanks and blanks.end() < last else first, Kind.SKELETON)
        at = last
    yield ProtectedSpan(at, at + 2, Kind.SKELETON)
