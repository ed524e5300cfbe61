"""What other kinds of Markdown than CommonMark indent: the bodies of notes, tabs, footnotes and definitions.

CommonMark reads lines that are indented by four blanks as code. Lines of such a body are given to the parser without
these blanks; their text is found in the lines of the file as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

INDENT = 4  # blanks
MOST_INSIDE = 16  # bodies inside each other
_NOTE = re.compile(
    r'([ \t]*+)(?:!!!|\?\?\?\+?|===[!+]?)[ \t]+(?:[\w-]++[ \t]*+)*+(?:"(?P<title>[^"\r\n]*+)")?[ \t]*+(?:\r?\n|\r|\Z)'
)
_OTHERS = re.compile(r"([ \t]*+)(?:\[\^[^\[\]\s]++\]:|:)[ \t]")
_TITLED = re.compile(r"[ \t>]*+:{3,}[ \t]*+[\w-]++(?:[ \t]++|\[)(?P<title>[^\W\d_][^\r\n\[\]{}]*+)")
_FENCE = re.compile(r"[ \t>]*+(```|~~~)")


@dataclass(slots=True)
class Contained:
    """The lines of a file for the parser, and the titles of its notes.

    titles: the number of a line, and the begin and the end of the title in it
    """

    lines: list[str] = field(default_factory=list)
    titles: list[tuple[int, int, int]] = field(default_factory=list)


def contained(lines: Sequence[str]) -> Contained:
    """Return the lines of a file with the bodies of notes as the text around them; each line has its place."""
    found, bodies, fence = Contained(), list[int](), ""
    for number, line in enumerate(lines):
        if not line.strip():
            found.lines.append(line)
            continue
        indent = len(line) - len(line.lstrip(" \t"))
        while bodies and not fence and indent < bodies[-1]:
            bodies.pop()
        shown = line[min(indent, INDENT * len(bodies)) :]
        mark = _FENCE.match(shown)
        if fence or mark:
            fence = "" if mark and fence == mark[1] else fence or (mark[1] if mark else "")
            found.lines.append(shown)
            continue
        note = _NOTE.match(shown)
        if note is not None and len(note[1]) < INDENT and len(bodies) < MOST_INSIDE:
            bodies.append(indent + INDENT)
            if note["title"]:
                begin = len(line) - len(shown) + note.start("title")
                found.titles.append((number, begin, begin + len(note["title"])))
            found.lines.append(line[len(line.rstrip("\r\n")) :])
            continue
        if (title := _TITLED.match(line)) is not None:
            begin, end = title.span("title")
            found.titles.append((number, begin, begin + len(line[begin:end].rstrip())))
        elif (other := _OTHERS.match(shown)) is not None and len(other[1]) < INDENT and len(bodies) < MOST_INSIDE:
            bodies.append(indent + INDENT)
        found.lines.append(shown)
    return found
