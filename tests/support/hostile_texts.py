"""Texts that are hostile to readers: a few tokens of their syntax again and again, in patterns made by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COMMON = ("a", " ", "é", "1", ".", "\n", "漢", "\u0301", "-", '"', "'", "word ")
ALPHABETS: dict[str, Sequence[str]] = {
    "plain": (
        *COMMON, "1234", "A. ", "“", "”", "(", ")", "{", "}", "{a, plural, one {", "{a,select,x{", "#", "%s", "%",
        "@", "a@a.b", "/", "a/", "\\", "C:\\", "http://a", "www.", "<", ">", "<a ", "。", "「", "」", "🍕", "\u200b",
        "_", "__", "=", ":a", ", ", "\r\n", "\u2029", "…", "?! ", "Mr. ", "A B ", "\xa0", "&",
    ),
    "html": (
        *COMMON, "<", ">", "<b>", "</b>", "<p>", "</p>", "<i", "</", "/>", "=", '="', "='", "<a b='", "<!--",
        "-->", "--", "<![CDATA[", "]]>", "<?", "<!", "&", "&amp;", "&amp", "&#", ";", "&#x41;", "<script>",
        "</script>", "<title>", "</title", "<br>", "<li>", "<td>", "<tr>", "<sup>", "</sup>", "<a>", "</a>",
        "<code>", "</code>", "</i>", "<pre>", "<i translate=no>", "<i translate=yes>", "<x class=notranslate ",
        "<textarea>", "<p translate=no>", "1234", "http://a/",
    ),
    "xml": (
        *COMMON, "&amp;", "&#65;", "&#x41;", "&#000065;", "<b/>", "<b c='d'/>", "<i>x</i>", "<i> </i>", "<p>x</p>",
        "<k/>", "<!-- x -->", "<!---->", "<?p?>", "<![CDATA[x]]>", "<![CDATA[]]>", "<i translate='no'>x</i>",
        "<k>x</k>", "<s>x</s>", "1234", "http://a/",
    ),
}  # fmt: skip
"""Tokens by format; those of XML are well-formed each."""

ELEMENTS = {
    "plain": (("(", ")"), ("“", "”"), ("{a, plural, one {", "}}"), ("{", "}"), ("<a>", "</a>")),
    "html": (
        ("<b>", "</b>"), ("<div>", "</div>"), ("<i translate=no>", "</i>"), ("<b translate=yes>", "</b>"),
        ("<k>", ""),
    ),
    "xml": (
        ("<b>", "</b>"), ("<k>", "</k>"), ("<s>", "</s>"), ("<b translate='no'>", "</b>"),
        ("<b translate='yes'>", "</b>"),
    ),
}  # fmt: skip
"""What may be nested, by format: what opens and what closes it."""


FOUND = {
    "plain": ("é1234", "é1234 ", "“。", "“A! ", '"1234', "http://a/é ", "{a, plural, one {#} other {"),
    "html": ("<i>a</i>", "<code>a</code>", "a<br>", "&#1", "<a>1</a>", "<b translate=no>x"),
    "xml": ("<i>a</i>", "<b/>a", "<![CDATA[x]]>", "<b c='d'/>"),
}
"""Units by format that were slow once, or are near to those."""


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A text of any length: the first parts are repeated, then the second ones, then those of the end as often.

    before, after: once each
    """

    before: str
    repeated: tuple[str, str, str]
    after: str

    def text(self, length: int) -> str:
        """Return a text of about so many characters."""
        times = length // max(sum(map(len, self.repeated)), 1)
        return self.before + "".join(part * times for part in self.repeated) + self.after


def text_patterns(kind: str, seed: int) -> Iterator[TextPattern]:
    """Yield those of FOUND, then patterns without end; kind: of ALPHABETS."""
    yield from (TextPattern("", (unit, "", ""), "") for unit in FOUND[kind])
    chance = random.Random(f"{kind} {seed}")

    def some(most: int) -> str:
        return "".join(chance.choices(ALPHABETS[kind], k=chance.randint(0, most)))

    while True:
        begin, end = chance.choice(ELEMENTS[kind]) if chance.random() < 0.3 else ("", "")
        unit = some(4)
        if begin or unit:
            yield TextPattern(some(1), (begin + unit, some(2) if chance.random() < 0.3 else "", end), some(1))


def strings(kind: str, seed: int, count: int) -> list[str]:
    """Return strings of the same tokens, some of them repetitions of one that end with another."""
    chance = random.Random(f"strings {kind} {seed}")
    found = []
    for number in range(count):
        token = chance.choice(ALPHABETS[kind])
        found.append((token * number)[:64] + "".join(chance.choices(ALPHABETS[kind], k=chance.randint(1, 3))))
    return [string for string in found if string.strip()]
