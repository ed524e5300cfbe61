"""Character references: `&amp;` is read as `&`, and what must be one in the translation is written as one again.

In a translation `&`, `<` and `>` are written as references. In HTML the no-break space is written as `&nbsp;`, because
it looks like a space in an editor. All other characters are written as themselves.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple

_OLD_NAMES = "|".join(sorted((name for name in html5 if not name.endswith(";")), key=len, reverse=True))
_OLD = re.compile(f"&(?:{_OLD_NAMES})")  # HTML reads these also without a semicolon
_IN_HTML = re.compile(rf"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{{1,31}}+;|(?:{_OLD_NAMES}))")
_IN_XML = re.compile(r"&(?:#0*+([0-9]++)|#x0*+([0-9a-fA-F]++)|([^;&]++));")  # int() refuses thousands of figures
_WINDOW = 2**14  # characters
_XML_NAMES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_HTML_ESCAPES = {**_ESCAPES, 0xA0: "&nbsp;"}


class Reference(NamedTuple):
    """A reference in a text; character is None for an entity that the document defines itself."""

    begin: int
    end: int
    characters: str | None


def html_references(text: str, begin: int, end: int) -> Iterator[Reference]:
    """Yield the references of a part of a text as a browser reads them."""
    for found in _matches(_IN_HTML, text, begin, end):
        first, last = found.span()
        written = found[0]
        if written[-1] == ";" and written[1] != "#" and written[1:] not in html5:
            old = _OLD.match(written)
            if old is None:
                continue
            written, last = old[0], first + old.end()
        yield Reference(first, last, _decoded(written))


def xml_references(text: str, begin: int, end: int) -> Iterator[Reference]:
    """Yield the references of a part of well-formed XML."""
    for found in _matches(_IN_XML, text, begin, end):
        decimal, hexadecimal, name = found.groups()
        if name:
            yield Reference(*found.span(), _XML_NAMES.get(name))
        else:
            yield Reference(*found.span(), chr(int(decimal) if decimal else int(hexadecimal, 16)))


def encode(text: str, *, in_html: bool) -> str:
    """Return a text in which everything that markup reads otherwise is a reference."""
    return text.translate(_HTML_ESCAPES if in_html else _ESCAPES)


def finished(text: str, *, in_html: bool) -> str:
    """Return `&` or `<`, and what follows it at the end of a part, so that what comes next adds nothing to it.

    A reference without a semicolon, which HTML has, gets one.
    """
    found = next(html_references(text, 0, len(text)), None) if in_html else None
    if found is None or found.begin > 0:
        return encode(text, in_html=in_html)
    written = text[: found.end]
    return f"{written.removesuffix(';')};{encode(text[found.end :], in_html=in_html)}"


def _matches(pattern: re.Pattern[str], text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """Yield what a pattern finds, in windows: one search through a megabyte would hold up other threads.

    A window ends before an ampersand, which is in no reference but at its begin.
    """
    while begin < end:
        stop = text.find("&", begin + _WINDOW, end)
        stop = end if stop < 0 else stop
        yield from pattern.finditer(text, begin, stop)
        begin = stop


def _decoded(written: str) -> str:
    if written[1] == "#" and len(written) > 10:
        return "\ufffd"  # Beyond Unicode; int() refuses numbers of more than 4,300 figures.
    return html.unescape(written)
