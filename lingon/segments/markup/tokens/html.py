"""The tokens of HTML, as section 13.2.5 of the HTML standard reads them, with their places in the text.

The parser of the standard library takes more than two minutes for 1 MB of unclosed attributes, and what it reads as a
comment or a script depends on the version of Python. Here every expression is possessive, or searches an end whose
absence ends the reading, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from lingon.html_names import VOID
from lingon.segments.markup.rules import RAW_TEXT
from lingon.segments.markup.tokens.token import CLOSE, EMPTY, OPEN, REMARK, SPLIT, TEXT, Token

_HTML_TOKEN = re.compile(
    r"""
    ((?:[^<]++|<(?![A-Za-z/!?]))++)                                       # 1: text
    |<(/?)([A-Za-z][^\t\n\f\r />]*+)                                      # 2: whether an end tag, 3: name
      (?:[\t\n\f\r /]*+[^\t\n\f\r />][^\t\n\f\r />=]*+                    # name of an attribute
        (?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:"[^"]*+"|'[^']*+'|[^\t\n\f\r >"'][^\t\n\f\r >]*+)?+)?+
      )*+[\t\n\f\r /]*+>
    |<!--(?:-?>|[\s\S]*?--!?>)                                            # a comment
    |<!\[CDATA\[[\s\S]*?\]\]>                                             # a browser shows none of it either
    |<!(?!--|\[CDATA\[)[^>]*+>|<\?[^>]*+>|</(?![A-Za-z])[^>]*+>           # what a browser reads as a comment
    |(<[\s\S]*+)                                                          # 4: the rest after a tag without end
    """,
    re.VERBOSE,
)

_WITHOUT_TAGS = RAW_TEXT | {"textarea", "title"}
_HTML_LINE = re.compile(r"[^\r\n]++|[\r\n]++")


@cache
def _end_tag(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE)


def html_tokens(text: str) -> list[Token]:
    """Return the tokens of a text, which may be any; the rest after a tag or a comment without end is one of them."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        at = _until_raw_text(text, at, tokens)
        if at < len(text):  # the last token is the start tag of an element whose content has no tags
            name = tokens[-1][3]
            end = _end_tag(name).search(text, at)
            stop = end.start() if end else len(text)
            if name == "textarea":
                tokens += _lines(text, at, stop)
            elif stop > at:
                tokens.append((TEXT if name == "title" else REMARK, at, stop, ""))
            at = stop
    return tokens


def _lines(text: str, begin: int, end: int) -> Iterator[Token]:
    """Yield the lines of a text field, whose line breaks a browser shows, and what is between them."""
    for found in _HTML_LINE.finditer(text, begin, end):
        yield (SPLIT if found[0][0] in "\r\n" else TEXT, *found.span(), "")


def _until_raw_text(text: str, begin: int, tokens: list[Token]) -> int:
    """Add tokens up to the first start tag of an element whose content has no tags, and return where it ends."""
    end = begin
    for found in _HTML_TOKEN.finditer(text, begin):
        group = found.lastindex
        start, end = found.span()
        if group == 1:
            tokens.append((TEXT, start, end, ""))
        elif group == 3:
            name = found[3].lower()
            if found[2]:
                tokens.append((CLOSE, start, end, name))
            elif name in VOID:
                tokens.append((EMPTY, start, end, name))
            else:
                tokens.append((OPEN, start, end, name))
                if name in _WITHOUT_TAGS:
                    break
        else:
            tokens.append((REMARK if group is None else SPLIT, start, end, ""))
    return end
