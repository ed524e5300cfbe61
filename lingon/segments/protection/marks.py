"""Code and pairs of marks in a text: Markdown, reStructuredText, BBCode, tags, written quotation marks.

Code is kept. What is between two marks that belong together is translated, and stays between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from lingon.segments.protection.form import ANYTHING, TEXTS, Form
from lingon.segments.protection.patterns import searched
from lingon.segments.protection.spans import Kind, ProtectedSpan


def _pair(name: str, *examples: str, pattern: str | None = None, needs: str = "") -> Form:
    """Return a form whose pattern has two groups, the marks; without one, its marks are found by `pairs`."""
    return Form(
        name=name,
        kind=Kind.OPENING,
        examples=examples,
        pattern=re.compile(pattern) if pattern else None,
        needs=needs,
        changes=TEXTS,
        around=ANYTHING,
    )


_TARGET = r"<[^`<>\n]{1,1000}+>"
_LABEL = r"(?:[^\[\]\n]|\[[^\[\]\n]{0,200}+\]){1,500}+"
_ADDRESS = (
    r"\((?:<[^<>\n]{0,1000}+>|(?:[^()\s<>]|\([^()\s]{0,200}+\)){1,1000}+)"
    r"(?:\s{1,4}+(?:\"[^\"\n]{0,300}+\"|'[^'\n]{0,300}+'))?\)"
)

LINKS = (
    _pair(
        "role with a text and a target: reStructuredText",
        ":ref:`red car <cars>`",
        ":py:meth:`red car <cars.red>`",
        pattern=rf"(:[A-Za-z][\w.+\-]{{0,39}}+(?::[\w.+\-]{{1,40}}+)?:`)[^`<>\n]{{1,300}}?(\s{{0,4}}+{_TARGET}`)",
        needs="`",
    ),
    _pair(
        "link: reStructuredText",
        "`red car <https://example.org/a>`_",
        "`red car <cars_>`__",
        pattern=rf"(?<![`\w:])(`)[^`<>\n]{{1,300}}?(\s{{0,4}}+{_TARGET}`__?)",
        needs="`",
    ),
    _pair(
        "link or picture: Markdown",
        "[red car](https://example.org/a)",
        '![red car](/a.png "Title")',
        "[red car](#cars)",
        pattern=rf"(?<![A-Za-z0-9_])(!?\[){_LABEL}(\]{_ADDRESS})",
        needs="[",
    ),
    _pair(
        "link by a reference: Markdown",
        "[red car][cars]",
        pattern=rf"(?<![\w\])])(!?\[)(?!\s){_LABEL}(\]\[[^\[\]\n]{{1,100}}+\])",
        needs="[",
    ),
)

CODE = (
    Form(
        name="code between backticks, role or reference: Markdown, reStructuredText",
        kind=Kind.CODE,
        examples=("`os.path.join(a, b)`", "``--force``", ":ref:`guide`", "`the guide`_", "```a b```"),
        pattern=re.compile(
            r"(?<![`\\])(?::[A-Za-z][\w.+\-:]{0,64}:)?(?<!`)(`{1,3}+)(?!`)(?:(?!\1)[^\n]){1,1000}+\1(?!`)(?:__?(?!\w))?"
        ),
        needs="`",
    ),
    Form(
        name="substitution, note or reference: reStructuredText",
        kind=Kind.CODE,
        examples=("|release|", "[#note]_", "[CIT2002]_"),
        pattern=re.compile(
            r"(?<![\w|])\|[A-Za-z][\w.\-]{0,40}+\|(?:__?)?(?![\w|])|\[[#*]?[\w.\-]{0,64}+\]_{1,2}+(?!\w)"
        ),
        needs="|]",
    ),
)

PAIRS = (
    _pair(
        "emphasis: Markdown, reStructuredText", "**red car**", "*red car*", "***red car***", "_red car_", "~~red car~~"
    ),
    _pair("numbered tags: i18next", "<0>red car</0>", "<1>red car</1>"),
    _pair("tags of HTML and XML", "<b>red car</b>", '<a href="/a?b=1">red car</a>', "&lt;b&gt;red car&lt;/b&gt;"),
    _pair("BBCode", "[b]red car[/b]", "[url=https://example.org/a]red car[/url]"),
    _pair("written quotation marks", r"\"red car\"", "&quot;red car&quot;"),
)

MARKS: tuple[Form, ...] = (*LINKS, *CODE, *PAIRS)

_TOKEN = re.compile(
    r"(?P<end>\n[ \t]{0,20}+\n)"
    r"|(?P<tag>(?:<|&lt;)/?(?:\d{1,3}+\s{0,3}+|[A-Za-z](?:[^<>&\n]|&(?![lg]t;)){0,500}+)(?:>|&gt;))"
    r"|(?P<quote>(?<!\\)\\\"|&quot;|&#34;)"
    r"|(?<!\\)(?P<mark>(?<!\*)\*{1,3}+(?!\*)|(?<!_)_{1,3}+(?!_)|(?<!~)~~(?!~))"
)
_BBCODE = re.compile(
    r"(?P<end>\n[ \t]{0,20}+\n)"
    r"|(?P<tag>\[/?(?:b|i|u|s|sub|sup|url|img|quote|color|size|center|left|right|list|font|spoiler|email)"
    r"(?:=[^\[\]\n]{1,200}+)?\])"
)
_NAME = re.compile(r"(?:<|&lt;|\[)(/?)([A-Za-z0-9]+)")
_BEFORE_WORD = frozenset("\"'“‘„«‹([{<$€£&¿¡#@%*_~!\\")  # what emphasis may begin with, besides letters and figures


class _Token(NamedTuple):
    """A mark; name: that of its pair; opens, closes: what it may be."""

    begin: int
    end: int
    name: str
    opens: bool
    closes: bool


def links(text: str, sign: str) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    """Yield the marks of links and of roles with a text; sign: those of Markdown begin with a bracket.

    text: in which a letter stands for each character of what they may not be in
    """
    for form in LINKS:
        if form.pattern is None or form.needs != sign:
            continue
        for found in searched(form.pattern, text):
            (begin, first), (last, end) = found.span(1), found.span(found.lastindex or 0)
            if not text[first:last].isspace():
                yield ProtectedSpan(begin, first, Kind.OPENING), ProtectedSpan(last, end, Kind.CLOSING)


def codes(text: str) -> Iterator[ProtectedSpan]:
    """Yield code between backticks, and other names of reStructuredText."""
    for form in CODE:
        if form.pattern is not None and form.may_be_in(text):
            yield from (ProtectedSpan(*found.span(), form.kind) for found in searched(form.pattern, text))


def bbcodes(text: str) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    """Yield the tags of BBCode that belong together; see `pairs`."""
    return _paired(text, _BBCODE) if "[/" in text else iter(())


def pairs(text: str) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    """Yield the other marks that belong together; pairs are nested, and none goes over a blank line.

    text: in which a letter stands for each character of what is kept
    """
    return _paired(text, _TOKEN) if any(each in text for each in "*_~<&\\") else iter(())


def _paired(text: str, tokens: re.Pattern[str]) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    stack, open_ = list[_Token](), Counter[str]()
    for token in _tokens(text, tokens):
        if not token.name:
            stack.clear()
            open_.clear()
        elif token.closes and open_[token.name]:
            while True:
                start = stack.pop()
                open_[start.name] -= 1
                if start.name == token.name:
                    break
            if not text[start.end : token.begin].isspace() and start.end < token.begin:
                yield ProtectedSpan(*start[:2], Kind.OPENING), ProtectedSpan(*token[:2], Kind.CLOSING)
        elif token.opens:
            stack.append(token)
            open_[token.name] += 1


def _tokens(text: str, tokens: re.Pattern[str]) -> Iterator[_Token]:
    """Yield the marks in order; the end of a paragraph has no name."""
    for found in searched(tokens, text):
        (begin, end), kind, mark = found.span(), found.lastgroup, found[0]
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if kind == "end":
            yield _Token(begin, end, "", opens=False, closes=False)
        elif kind == "tag":
            name = _NAME.match(mark)
            if name is not None and not mark.endswith(("/>", "/&gt;")):
                yield _Token(begin, end, f"{mark[0]}{name[2].lower()}", opens=not name[1], closes=bool(name[1]))
        else:
            opens = not after.isspace() and after != "" and not before.isalnum()
            if kind == "mark":
                opens = opens and (after.isalnum() or after in _BEFORE_WORD)
            closes = not before.isspace() and before != "" and not after.isalnum()
            yield _Token(begin, end, mark, opens=opens, closes=closes)
