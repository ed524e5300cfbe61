"""The tokens of XML with their places in the text. Expat checks that the text is well-formed.

A text may be a document, or a part of one: `Hello <b>world</b>` has no root element.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from lingon.errors import MarkupError
from lingon.segments.markup.tokens.token import CLOSE, EMPTY, KEPT, OPEN, REMARK, SPLIT, TEXT, Token

_PROLOG = re.compile(
    r"""
    \ufeff?(?:\s++|<\?[\s\S]*?\?>|<!--[\s\S]*?-->
    |<!DOCTYPE(?:[^\[<>"']++|"[^"]*+"|'[^']*+')*+
      (?:\[(?:[^\]"'<]++|"[^"]*+"|'[^']*+'|<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<(?!!--|\?))*+\]\s*+)?+>)*+
    """,
    re.VERBOSE,
)
_TOKEN = re.compile(
    r"""
    ([^<]++)                                                              # 1: text
    |<(/?)([^\s/>!?][^\s/>]*+)(?:[^/>"']++|"[^"]*+"|'[^']*+'|/(?!>))*+(/?)>  # 2: end tag, 3: name, 4: without content
    |(<!\[CDATA\[[\s\S]*?\]\]>)                                           # 5: CDATA
    |<!--[\s\S]*?-->|<\?[\s\S]*?\?>                                       # a comment, a processing instruction
    """,
    re.VERBOSE,
)
_ROOT, _ROOT_END = b"<r>", b"</r>"


def xml_tokens(text: str) -> list[Token]:
    """Return the tokens of a well-formed text; raises MarkupError, which names line and column, for another one."""
    prolog = _PROLOG.match(text)
    assert prolog is not None
    _check(text, prolog.end())
    tokens: list[Token] = [(SPLIT, 0, prolog.end(), "")] if prolog.end() else []
    for found in _TOKEN.finditer(text, prolog.end()):
        start, end = found.span()
        group = found.lastindex
        if group == 1:
            tokens.append((TEXT, start, end, ""))
        elif group == 4:
            tokens.append((CLOSE if found[2] else EMPTY if found[4] else OPEN, start, end, found[3]))
        else:
            tokens.append((KEPT if group == 5 else REMARK, start, end, ""))
    return tokens


def _check(text: str, body: int) -> None:
    """Raise MarkupError if a text is not well-formed; body: where its content begins, which may have no root."""
    parser = expat.ParserCreate("utf-8")
    parser.DefaultHandler = _ignore  # With it, Expat leaves the entities of the document as they are.
    before, after = (part.encode("utf-8", "surrogatepass") for part in (text[:body], text[body:]))
    try:
        parser.Parse(before + _ROOT + after + _ROOT_END, True)
    except expat.ExpatError as error:
        at = parser.ErrorByteIndex
        if at >= len(before):
            at = max(at - len(_ROOT), len(before))
        read = (before + after)[:at].decode("utf-8", "replace")
        line, column = read.count("\n") + 1, len(read) - read.rfind("\n")
        raise MarkupError(f"line {line}, column {column}: {expat.ErrorString(error.code)}") from None


def _ignore(data: str) -> None:
    pass
