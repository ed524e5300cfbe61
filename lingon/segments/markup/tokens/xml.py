"""The tokens of XML with their places in the text. Expat checks that the text is well-formed.

A text may be a document, or a part of one: `Hello <b>world</b>` has no root element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.parsers import expat

from lingon.errors import MarkupError
from lingon.segments.markup.tokens.token import CLOSE, EMPTY, KEPT, OPEN, REMARK, SECTION, SPLIT, TEXT, Token

_BESIDE = r"(?:\s++|<\?[\s\S]*?\?>|<!--[\s\S]*?-->)*+"
_PROLOG = re.compile(
    rf"""
    \ufeff?{_BESIDE}
    (?:<!DOCTYPE(?:[^\[<>"']++|"[^"]*+"|'[^']*+')*+
      (?P<declarations>\[(?:[^\]"'<]++|"[^"]*+"|'[^']*+'|<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<(?!!--|\?))*+\]\s*+)?+>{_BESIDE}
    )?+
    """,
    re.VERBOSE,
)
_XML_TOKEN = re.compile(
    r"""
    ([^<]++)                                                              # 1: text
    |<(/?)([^\s/>!?][^\s/>]*+)(?:[^/>"']++|"[^"]*+"|'[^']*+'|/(?!>))*+(/?)>  # 2: end tag, 3: name, 4: without content
    |(<!\[CDATA\[[\s\S]*?\]\]>)                                           # 5: CDATA
    |<!--[\s\S]*?-->|<\?[\s\S]*?\?>                                       # a comment, a processing instruction
    """,
    re.VERBOSE,
)
_TAG = re.compile(r"<[^<>]*+>")
_XML_LINE = re.compile(".++")


def xml_tokens(text: str) -> list[Token]:
    """Return the tokens of a well-formed text; raises MarkupError, which names line and column, for another one."""
    prolog = _PROLOG.match(text)
    assert prolog is not None
    _check(text, prolog)
    tokens: list[Token] = [(SPLIT, 0, prolog.end(), "")] if prolog.end() else []
    for found in _XML_TOKEN.finditer(text, prolog.end()):
        start, end = found.span()
        group = found.lastindex
        if group == 1:
            tokens.append((TEXT, start, end, ""))
        elif group == 4:
            tokens.append((CLOSE if found[2] else EMPTY if found[4] else OPEN, start, end, found[3]))
        elif group == 5:
            tokens += _section(text, start, end)
        else:
            tokens.append((REMARK, start, end, ""))
    return tokens


def _section(text: str, begin: int, end: int) -> Iterator[Token]:
    """Yield the tokens of a CDATA section: a text of its own, or something to keep if it has nothing but tags."""
    first, last = begin + len("<![CDATA["), end - len("]]>")
    if any(map(str.isalpha, _TAG.sub("", text[first:last]))):
        yield (SPLIT, begin, first, "")
        yield (SECTION, first, last, "")
        yield (SPLIT, last, end, "")
    else:
        yield (KEPT, begin, end, "")


def _check(text: str, prolog: re.Match[str]) -> None:
    """Raise MarkupError if a text is not well-formed; it needs no root element.

    The declarations within a document type are not checked, and stay as they are. If they were read, each element would
    get all default attributes of its name, and each attribute the texts of its entities, which may take seconds for a
    megabyte. Without them, any entity may be one of the document.
    """
    before, after = text[: prolog.end()], f"{text[prolog.end() :]}</r>"
    begin, end = prolog.span("declarations")
    if begin < 0:
        _parse(before, "<r>", after)
    else:
        _parse(before[:begin] + _blank(before[begin:end]) + before[end:], "<r/>", "")
        _parse(_blank(before), "<!DOCTYPE r SYSTEM ''><r>", after)


def _parse(before: str, added: str, after: str) -> None:
    """Raise MarkupError, which names the place in the text without what is added, if it is not well-formed."""
    parser = expat.ParserCreate("utf-8")
    parser.DefaultHandler = _ignore  # With it, Expat leaves the entities of the document as they are.
    first, between, last = (part.encode("utf-8", "surrogatepass") for part in (before, added, after))
    try:
        parser.Parse(first + between + last, True)
    except expat.ExpatError as error:
        at = parser.ErrorByteIndex
        if at >= len(first):
            at = max(at - len(between), len(first))
        read = (first + last)[:at].decode("utf-8", "replace")
        line, column = read.count("\n") + 1, len(read) - read.rfind("\n")
        raise MarkupError(f"line {line}, column {column}: {expat.ErrorString(error.code)}") from None


def _blank(text: str) -> str:
    """Return as many spaces as a text has characters, in as many lines."""
    return _XML_LINE.sub(lambda line: " " * len(line[0]), text)


def _ignore(data: str) -> None:
    pass
