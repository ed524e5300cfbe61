"""The borders within a line: tabs, runs of blanks, and line breaks and tabs that are written as escapes.

What is on one side of a border is translated without the other side, and the border is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.boundaries import LINE_BREAKS, Span
from lingon.segments.layout.marks import BLANKS

MANY = 3  # blanks that separate columns; two are often between sentences
LONGEST_WORD = 64  # characters on each side of an escape that tell whether it is in a path

_BORDER = re.compile(rf"[{BLANKS}]{{2,}}+|\t|(?P<escape>(?:\\{{1,2}}+(?:r\\{{1,2}}+n|[nNrt]))++)")
_COLLAPSING = re.compile(r"[ \t]++")  # white space of HTML, which browsers show as one space
_DRIVE = re.compile(r"(?:\A|[\W_]|(?<=\\[nrt]))[A-Za-z]:\\")  # C:\, also right after an escape
_PATH = re.compile(r"[\W_]{0,3}(?:\\\\[\w.$-]{1,64}+\\(?!\\)|~\\|\.{1,2}\\|%\w{1,64}+%\\)")  # \\server\ ~\ ..\ %TEMP%\
_PART = re.compile(
    r"\\++(?![abefhnrtuvxN])[A-Za-z]"  # docs\main: no language has such an escape
    r"|\\[\w-]{1,64}+\.[a-z][a-z0-9]{1,4}+[^\w\s]{0,3}+\Z"  # docs\new.txt
)
_COMMAND = re.compile(  # of TeX
    r"\\(?:[a-z]{2,32}+\{|(?:nabla|neq?|newline|newpage|noindent|nonumber|notag|nu|rangle|rho|right|rightarrow|rm"
    r"|tau|theta|times)(?![A-Za-z]))"
)


def borders(text: str, begin: int, end: int, *, collapses: bool) -> Iterator[Span]:
    """Yield the borders within a span, in order.

    collapses: whether spaces and tabs are white space of any width, as in HTML; then only hard blanks are a border
    """
    path = begin  # the end of a path that an escape was found in
    for found in _BORDER.finditer(text, begin, end):
        if found["escape"]:
            if found.start() >= path:
                path = _path_end(text, begin, end, found.start())
            if found.start() >= path:
                yield found.span()
        elif _is_gap(text, found.start(), found.end(), collapses=collapses):
            yield found.span()


def _is_gap(text: str, first: int, last: int, *, collapses: bool) -> bool:
    """Whether blanks are between columns; those beside a line break are the indentation of a line."""
    if text[first - 1 : first] in LINE_BREAKS or text[last : last + 1] in LINE_BREAKS:
        return False
    blanks = text[first:last]
    if collapses:
        return len(_COLLAPSING.sub("", blanks)) >= MANY
    return "\t" in blanks or len(blanks) >= MANY


def _path_end(text: str, begin: int, end: int, escape: int) -> int:
    r"""Return how far a path goes on that a backslash is in, as far as it is read; else the place of the backslash.

    Such as C:\new\readme; a command of TeX, such as \noindent, is taken for a path.
    """
    if command := _COMMAND.match(text, escape, end):
        return command.end()
    before = text[max(begin, escape - LONGEST_WORD) : escape].rsplit(None, 1)
    after = text[escape : min(end, escape + LONGEST_WORD)].split(None, 1)
    head = before[-1] if before and not text[escape - 1].isspace() else ""
    word = head + after[0]
    is_path = _DRIVE.search(f"{head}\\") or _PATH.match(word) or _PART.search(word)
    return escape + len(after[0]) if head and is_path else escape
