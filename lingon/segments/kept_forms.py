"""The table of string forms: what a translation keeps as it is wherever it is found, and by what it is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# What a protected span is, and how spans that overlap become one.


class Kind(StrEnum):
    """Why a span is protected."""

    URL = "url"
    EMAIL = "email"
    PATH = "path"
    PLACEHOLDER = "placeholder"
    TAG = "tag"
    SKELETON = "skeleton"  # of an ICU message: all but the texts of its arms
    NUMBER = "number"
    FIGURE = "figure"  # a number of one or two figures, which the model translates
    ESCAPE = "escape"  # a letter as HTML or a programming language writes it
    SIGN = "sign"  # another character, written so
    BORDER = "border"  # between texts that are translated apart: a written tab, or a sign that the model cannot read
    OPENING = "opening"  # of a pair of marks: what is between both is translated, and stays between them
    CLOSING = "closing"
    EMOJI = "emoji"
    LINE = "line"  # eight or more equal signs, as under a heading or in a form
    CODE = "code"  # a long run of letters and figures: a hash, a key, base64
    KEEP = "keep"
    UNKNOWN = "unknown"  # has characters that the model cannot read


DIVIDING = frozenset({Kind.SKELETON, Kind.BORDER})
"""What the texts on both sides of are translated apart."""


class ProtectedSpan(NamedTuple):
    """A part of a text, in code points, that its translation keeps as it is."""

    begin: int
    end: int
    kind: Kind


def merge(spans: Iterable[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the spans in order. Those that overlap are one, with the kind of the one that begins first.

    Of several that begin there, it is that of the longest.
    """
    merged: list[ProtectedSpan] = []
    last = 0
    for span in sorted(spans):  # as tuples, which is three times faster than by a key
        if span[0] >= last:
            merged.append(span)
            last = span[1]
        elif span[1] > last:
            last = span[1]
            merged[-1] = span if span[0] == merged[-1][0] else merged[-1]._replace(end=last)
    return merged


def replaced(text: str, spans: Iterable[ProtectedSpan | tuple[int, int]], by: Callable[[str], str]) -> str:
    """Return a text with something else in place of each span.

    spans: in order, of which the first two values count; by: returns what stands for the text of a span
    """
    parts, at = list[str](), 0
    for begin, end in (span[:2] for span in spans):
        parts += [text[at:begin], by(text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def without(text: str, spans: Iterable[ProtectedSpan | tuple[int, int]]) -> str:
    """Return a text with a space in place of each span; spans: see `replaced`."""
    return replaced(text, spans, lambda kept: " ")


# One row of the table of string forms: what it looks like, what may change in it, and what may stand around it.

NOTHING = "nothing"
TEXTS = "the texts inside are translated"
WORD = "letters and figures that touch it are kept with it"
ANYTHING = "anything; words that touch it are translated"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptForm:
    """A form of strings that a translation keeps.

    name: what it is, or the programs that write it
    kind: of its spans
    examples: complete strings of the form, without what may stand around them
    pattern: finds it in a text, in a time that is linear in the text, or None if a reader of its own does
    needs: characters or strings of which a text with the form has one or more, empty if any text may have it
    trims: whether punctuation and closing brackets at its end belong to the sentence
    accepts: whether a span of a text that the pattern finds is of the form, or None if all are
    changes: what may change in it
    around: what may stand right beside it
    """

    name: str
    kind: Kind
    examples: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    needs: str | tuple[str, ...] = ""
    trims: bool = False
    accepts: Callable[[str, int, int], bool] | None = None
    changes: str = NOTHING
    around: str = WORD

    def may_be_in(self, text: str) -> bool:
        """Return whether a text has one of what the form needs."""
        return not self.needs or any(each in text for each in self.needs)


# Numbers as people write them: with separators, sign, currency, unit; dates, times, versions, ranges, telephones.
# A small number without any of these, such as 12, is a figure: the model translates it, and `translate_kept` looks
# whether it is still there. Of 160 sentences with a number of one or two figures `en-de/10` and `en-fr/4` lose the
# number in 4; of 80 with 1,299.99 and its like they lose it in 34 and 42, with 12.34 in 8 and 4, and with 123 in 5
# and 6.

_SPACES = " \u00a0\u2009\u202f"
_DASHES = "\\-\u2010-\u2015\u2212"
_CURRENCIES = "$\u00a2\u00a3\u00a5\u20a0-\u20bf"
_FRACTIONS = "\u00bc-\u00be\u2150-\u215e"
_RAISED = "\u00b2\u00b3\u00b9\u2070-\u207b"
_LOWERED = "\u2080-\u2089"

_SIGN = (
    rf"(?:(?<![\w+\-])(?:[+{_DASHES}#](?=[\d{_CURRENCIES}.])|[~\u00b1\u2248\u2264\u2265\u00a7\u2116]\s?)"
    r"|(?<=\w\s)[<>]=?\s?(?!\d{1,3}\s?/?>))"  # a < 5, but not <1/>
)
_CURRENCY = rf"(?<!\w)[A-Z]{{0,3}}+[{_CURRENCIES}]\s?(?:-(?=\d))?"
_SEPARATOR = (
    rf"(?:[.,:/'\u2019\u00b7\u00d7x*^+=\u00b0\u2032{_DASHES}]"
    rf"|(?<!\d\d\d\d)[{_SPACES}](?=\d\d\d(?!\d))"  # 1 250 000, but not a year before another number
    r"|T(?=\d\d:)|[eE][+\-\u2212]?)"
)
_POWER = rf"\s?[\u00d7x\u00b7*]\s?10(?:\^?[+\-\u2212]?\d++|[{_RAISED}]++)"
_METRIC = "(?:[kcdm\u00b5\u03bcnMGT]?(?:m|g|l|L|s|h|B|bit|Hz|Pa|J|W|V|A|mol)|mi|ft|in|ha|min|dL)"
_UNIT = (
    rf"\s?(?:\u00b0\s?(?:[CFKNSEWO](?!\w))?|[\u2032\u2033\u2030]|(?<=['\u2032]\d)[\"\u2033]|(?<=['\u2032]\d\d)[\"\u2033]|[{_CURRENCIES}](?!\d)"
    rf"|{_METRIC}(?:[{_RAISED}]++|/{_METRIC}[{_RAISED}]*+)(?!\w)|[\u00b5\u03bc][A-Za-z]{{1,2}}+(?!\w)|[kM]?\u03a9)"
)

_REST = rf"(?:{_POWER})?+(?:{_UNIT})?+(?:Z(?!\w))?+"
_MORE = rf"{_SEPARATOR}?\d|[{_FRACTIONS}{_RAISED}{_LOWERED}]|{_POWER}|{_UNIT}|Z(?!\w)"
_ONLY_FIGURE = rf"(?!0\d)\d{{1,2}}+(?!{_MORE})"  # most numbers of most texts, which cost less if left here

_FIRST = rf"[\d.<>+{_DASHES}#~\u00b1\u2248\u2264\u2265\u00a7\u2116A-Z{_CURRENCIES}{_FRACTIONS}]"

AMOUNT = re.compile(
    rf"(?={_FIRST})(?!{_ONLY_FIGURE})(?:{_SIGN})?+(?:{_CURRENCY})?+(?<!\d)(?<!\d[.,])"
    rf"(?:\d++(?:{_SEPARATOR}\d++)*+[{_FRACTIONS}{_RAISED}{_LOWERED}]*+|[{_FRACTIONS}]|(?<![\w.)\]\"])\.\d++){_REST}"
)
PHONE = re.compile(rf"(?:\+\d{{1,3}}+|\(\+?\d{{1,5}}+\))(?:[{_SPACES}.\-/]?\(?\d{{1,8}}+\)?){{1,8}}+")
FIGURE = re.compile(r"\d(?<!\w\d)(?<!\d[.,:]\d)\d?+(?!\w|[.,:/]\d)")  # begins with a class, which re seeks fast
"""A number that the model may translate, and that is looked for in its translation."""
DIGIT = re.compile(rf"[\d{_FRACTIONS}]")
"""What every number has."""
LONGEST_PREFIX = 12  # characters of a sign and a currency, with blanks, before the first digit
LONGEST_SUFFIX = 32  # characters of a unit, with blanks, after the last digit; only its raised figures may be more
NEAR_DIGITS = re.compile(rf"{DIGIT.pattern}(?:[^\d{_FRACTIONS}]{{0,{LONGEST_PREFIX}}}+{DIGIT.pattern}){{0,1000}}+")
"""Digits of which the prefix of none may hold one of another: 1,000 at most, so that a search in them is short."""


def is_amount(text: str, begin: int, end: int) -> bool:
    """Return whether what AMOUNT finds is more than a figure, and no part of a word such as 3D or 100th."""
    number = text[begin:end]
    if len(number) > 3 or not number.isdecimal():
        return True
    if len(number) == 1:
        return False
    touches = text[end : end + 1].isalpha() or (begin > 0 and text[begin - 1].isalpha())
    return not touches and (len(number) == 3 or number[0] == "0")


# The table of string forms: whatever a translation keeps as it is wherever it is found, and by what it is found.
# Every expression takes a time that grows linearly with the text. The quantifiers are possessive or bounded, and none
# is nested in another without a character that separates the repetitions. An expression that begins with a run of
# letters is tried at the beginning of a run only.

_FILE_ENDING = re.compile(r"\.[a-z][a-z0-9]{0,4}\Z")
_SIGNS = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_NARROW = f"(?![\u276a-\u2775])[{_SIGNS}]"  # but the ornamental brackets among them
_WITH_SELECTOR = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u24c2\u2934\u2935\u3030\u303d\u3297\u3299"
_DIGITS = "0123456789"
_NAME = r"[A-Za-z_]\w{0,63}+"
_CONVERSION = r"[-+#0 ']{0,5}+(?:\d{1,4}+|\*)?(?:\.(?:\d{1,4}+|\*))?(?:hh|ll|[hlLzjtqI])?"
_OPENING, _CLOSING = "⟦⟨⟪⟬⟮❨❪❬❮❰❲❴⦃⦅⦗⸢⸤", "⟧⟩⟫⟭⟯❩❫❭❯❱❳❵⦄⦆⦘⸣⸥"


def _has_letter(text: str, begin: int, end: int) -> bool:
    return any(map(str.isalpha, text[begin:end]))


def _has_ending(text: str, begin: int, end: int) -> bool:
    return _FILE_ENDING.search(text[begin:end]) is not None


def _placeholder(name: str, pattern: str, *examples: str, needs: str = "") -> KeptForm:
    return KeptForm(
        name=name, kind=Kind.PLACEHOLDER, examples=examples, pattern=re.compile(pattern), needs=needs, trims=False
    )


ADDRESSES = (
    KeptForm(
        name="URL",
        kind=Kind.URL,
        examples=("https://example.org/a_(b)?q=1&r=%20#top", "www.example.org", "ftp://example.org/pub/"),
        pattern=re.compile(
            r"(?<![A-Za-z0-9+.\-])(?:[A-Za-z][A-Za-z0-9+.\-]{1,19}+://|www\.)(?=[\w\[])[^\s<>\"“”„«»`]++"
        ),
        needs=("://", "www."),
        trims=True,
    ),
    KeptForm(
        name="e-mail address",
        kind=Kind.EMAIL,
        examples=("user@example.org", "first.last+tag@mail.example.org"),
        pattern=re.compile(r"(?<![\w.+\-])[\w.+\-]{1,64}+@[\w\-]{1,63}+(?:\.[\w\-]{1,63}+){1,9}+"),
        needs="@",
        trims=True,
    ),
    KeptForm(
        name="path of Windows",
        kind=Kind.PATH,
        examples=(r"C:\Users\me\file.txt", r"C:\Program Files\tools", r"\\server\share"),
        pattern=re.compile(
            r"(?<!\w)(?:[A-Za-z]:\\|\\\\(?=\w))[^\s<>|*?\"`]*+(?: (?=[\w.()\-]{1,40}+\\)[^\s<>|*?\"`]++)*+"
        ),
        needs="\\",
        trims=True,
    ),
    KeptForm(
        name="relative path of Windows, whose last name has an ending",
        kind=Kind.PATH,
        examples=(r"docs\table.txt", r"src\new\read.me"),
        pattern=re.compile(r"(?<![\w.\\:/\-])[\w.\-]{1,255}+(?:\\[\w.\-]{1,255}+)++"),
        needs="\\",
        trims=True,
        accepts=_has_ending,
    ),
    KeptForm(
        name="absolute path with a letter",
        kind=Kind.PATH,
        examples=("/usr/share/doc.txt", "~/notes.txt", "../src"),
        pattern=re.compile(r"(?<![\w/.~\\:\-<])(?<!&lt;)(?:~|\.{1,2}+)?(?:/[\w.@%+\-]{1,255}+)++/?"),
        needs="/",
        trims=True,
        accepts=_has_letter,
    ),
    KeptForm(
        name="relative path, whose last name has an ending",
        kind=Kind.PATH,
        examples=("src/main/app.py", "docs/index.html"),
        pattern=re.compile(r"(?<![\w/.~\\:\-<])[\w.\-]{1,255}+(?:/[\w.\-]{1,255}+)++"),
        needs="/",
        trims=True,
        accepts=_has_ending,
    ),
)

PLACEHOLDERS = (
    _placeholder(
        "double and triple braces: Handlebars, Mustache, Jinja, Angular, Vue, i18next, GitHub",
        r"\{\{\{[^{}]{1,200}+\}\}\}|[$#%@*!]?\{\{[^{}]{1,200}+\}\}|\{[%#][^{}%]{1,200}+[%#]\}",
        "{{name}}",
        "{{ count, number }}",
        "{{{html}}}",
        "{% if user %}",
        "${{ secrets.key }}",
        needs="{",
    ),
    _placeholder(
        "braces with a sign before them: shell, JavaScript, Ruby, Perl",
        r"[$#%@]\{(?:[^{}]|\{[^{}]{0,80}+\}){1,200}+\}",
        "${name}",
        "${name:-none}",
        "#{name}",
        "%{count}",
        "@{name}",
        needs="{",
    ),
    _placeholder(
        "braces: Python, .NET, Java, ICU, Fluent",
        r"\{\s{0,4}+[\w.\-$]{0,80}+(?:\[[^\[\]{}]{1,80}+\][\w.]{0,80}+){0,8}+\s{0,4}+"
        r"(?:,[^{}]{1,100}+|\|[^{}\s]{1,80}+|[:!] ?(?:[^{}\s]|\{[\w.]{0,40}+\}){1,40}+)?\}",
        "{}",
        "{0}",
        "{name}",
        "{0:N2}",
        "{a.b}",
        "{0[key]}",
        "{x!r:>10}",
        "{x:{width}}",
        "{0, date, short}",
        "{ $name }",
        "{ -brand }",
        needs="{",
    ),
    _placeholder(
        "braces that begin with a sign: MessageFormat 2, Markdown attributes, templates",
        r"\{\s{0,4}+[$|:#/@^&!>~.\-][^{}]{0,200}+\}",
        "{$count :number minimumFractionDigits=2}",
        "{|text| :upper}",
        "{#name}",
        "{: .class }",
        "{/link}",
        needs="{",
    ),
    _placeholder(
        "functions in braces: Fluent",
        r"\{\s{0,4}+[A-Z][A-Z0-9_\-]{0,40}+\([^(){}]{0,200}+\)\s{0,4}+\}",
        "{ NUMBER($size, maximumFractionDigits: 1) }",
        "{ DATETIME($now) }",
        needs="{",
    ),
    _placeholder(
        "names in %( ): Python", rf"%\([^()\s]{{1,64}}+\){_CONVERSION}[A-Za-z]", "%(name)s", "%(x)05.2f", needs="%"
    ),
    _placeholder("names in %< >: Ruby", rf"%<\w{{1,64}}+>{_CONVERSION}[A-Za-z]?", "%<name>s", "%<total>.2f", needs="%"),
    _placeholder(
        "printf, Objective-C, Go",  # %s %1$s %-5.2f, but neither "100% done" nor "a %complete"
        r"(?<![\d%])%(?:\d{1,3}+\$|\[\d{1,2}+\])?[-+#0']{0,5}+(?:\d{1,4}+|\*)?(?:\.(?:\d{1,4}+|\*))?"
        r"(?:hh|ll|[hlLzjtq])?(?:[diouxXeEfFgGaAcsp@](?![a-z]{3})|[nmSCvVTU](?!\w))",
        "%s",
        "%d",
        "%1$s",
        "%1$@",
        "%-10.3Lf",
        "%lu",
        "%[1]d",
        "%n",
        needs="%",
    ),
    _placeholder(
        "parts of a date: strftime", r"(?<![\w%])%[-_#^EO]?[BDHIMNPQRWYZbhjklqrwyz](?!\w)", "%Y", "%-H", "%B", needs="%"
    ),
    _placeholder(
        "numbers after a percent sign: Qt, KDE", r"(?<![\w%])%L?\d{1,2}+(?![\w%])", "%1", "%L1", "%12", needs="%"
    ),
    _placeholder(
        "between percent signs: Symfony, Windows, Boost",
        r"(?<![\d%])%[A-Za-z_]\w{0,63}+%(?![%\w])|(?<![\w%])%\d{1,2}+%(?!\w)|%%\w{1,64}+%%|%%",
        "%USER%",
        "%1%",
        "%%name%%",
        "%%",
        needs="%",
    ),
    _placeholder(
        "names with an underscore after a percent sign: Drupal",
        r"(?<![\w%])%[A-Za-z]{1,40}+_\w{1,40}+",
        "%user_name",
        needs="%",
    ),
    _placeholder(
        "templates in angle brackets: ERB, ASP, PHP",
        r"<%(?:[^%]|%(?!>)){0,300}+%>|<\?(?:[^?]|\?(?!>)){1,300}+\?>",
        "<%= name %>",
        "<%- user.name %>",
        "<?= $name ?>",
        needs="<",
    ),
    _placeholder(
        "double angle brackets",
        r"<<[^<>\n]{1,200}+>>|«[A-Za-z][A-Za-z0-9]{0,40}+_\w{1,40}+»",
        "<<name>>",
        "«First_Name»",
        needs="<«",
    ),
    _placeholder(
        "double square brackets, and those of Weblate",
        r"\[\[[^\[\]\n]{1,200}+\]\]|\[%[^\[\]%\n]{1,64}+%\]|\[[A-Z]{1,3}+\d{1,6}+[A-Z]{1,3}+\]",
        "[[name]]",
        "[%name%]",
        "[X7X]",
        needs="[",
    ),
    _placeholder("between underscores", r"__(?=\w)(?:(?!__)\w){1,64}+__", "__1__", "__name__", needs="_"),
    _placeholder(
        "after a colon: Laravel, Rails, emoji", r"(?<![^\s(\[\"'>]):[A-Za-z_]\w{0,63}+:?", ":name", ":smile:", needs=":"
    ),
    _placeholder(
        "after a dollar sign: PHP, shell, Java",
        rf"\$t?\([^()]{{1,200}}+\)|\${_NAME}(?:->{_NAME}|\[[\w'\"]{{1,64}}+\]){{0,4}}+\$?",
        "$name",
        "$t(key)",
        "$user->name",
        "$(date)",
        needs="$",
    ),
    _placeholder(
        "between number signs: TYPO3",
        r"(?<![\w#])#{2,3}+[\w.\-]{1,64}+#{2,3}+(?![\w#])|(?<![\w#])#[A-Za-z_]\w{0,63}+#(?![\w#])",
        "##1##",
        "###NAME###",
        "#name#",
        needs="#",
    ),
    _placeholder(
        "between at signs, and after one",
        r"(?<![\w@.+\-])@{1,2}+[\w\-]{1,64}+@{1,2}+(?![\w@])|(?<![\w@.+\-/])@[A-Za-z_]\w{0,63}+",
        "@@1@@",
        "@name@",
        "@count",
        needs="@",
    ),
    _placeholder("between tildes", r"~(?:\d{1,6}+|[A-Za-z]+_\w{1,64}+)~", "~1~", "~user_name~", needs="~"),
    _placeholder("superscripts and subscripts of Markdown", r"\^\w{1,16}+\^", "^2^", needs="^"),
    _placeholder(
        "rare brackets",
        rf"[{_OPENING}][^{_OPENING}{_CLOSING}\n]{{1,200}}+[{_CLOSING}]|【\w{{1,40}}+】",
        "⟦1⟧",
        "⟨name⟩",
        "【1】",
        needs=_OPENING + "【",
    ),
    _placeholder(
        "figures between equal letters",
        r"(?<!\w)([A-Z]{1,12})_?\d{1,6}+_?\1(?!\w)",
        "XXX1XXX",
        "X7X",
        "QZ_12_QZ",
        needs=_DIGITS,
    ),
    _placeholder(
        "names with an underscore",
        r"(?<![\w.])[A-Za-z]\w{0,63}?[A-Za-z0-9]_\w{0,63}+(?<!_)(?!\w)",
        "user_name",
        "MAX_SIZE",
        "VAR_1",
        needs="_",
    ),
    _placeholder(
        "interpolation of Swift, formulas of LaTeX",
        r"\\\((?:[^()\n]|\([^()\n]{0,80}+\)){1,200}+\)",
        r"\(name)",
        r"\(user.name())",
        r"\(a + b\)",
        needs="\\",
    ),
)

REFERENCES = (
    KeptForm(
        name="letter of HTML",
        kind=Kind.ESCAPE,
        examples=("&eacute;", "&szlig;", "&Ouml;"),
        pattern=re.compile(
            r"&[A-Za-z]{1,2}?(?:acute|grave|circ|uml|tilde|cedil|ring|slash|caron|lig|breve|macr|ogon|strok|dot|dblac);"
            r"|(?<=\w)&(?:#39|#x27|#8217|apos|rsquo);(?=\w)"
        ),
        needs="&",
    ),
    KeptForm(
        name="reference of HTML",
        kind=Kind.SIGN,
        examples=("&name;", "&amp;", "&#39;", "&#x2019;", "&nbsp;"),
        pattern=re.compile(r"&(?:[A-Za-z][A-Za-z0-9_.\-]{0,39}+|#\d{1,7}+|#[xX][0-9A-Fa-f]{1,6}+);"),
        needs="&",
        around=ANYTHING,
    ),
)

ESCAPES = (
    KeptForm(
        name="written letter",
        kind=Kind.ESCAPE,
        examples=(r"\u00e9", r"\x41", r"\U0001F600", r"\u{e9}", r"\101"),
        pattern=re.compile(
            r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[uxp]\{[^{}\s]{1,16}+\}|[0-7]{3}(?!\d)|(?<=\w\\)'(?=\w))"
        ),
        needs="\\",
    ),
    KeptForm(
        name="written sign",
        kind=Kind.SIGN,
        examples=(r"\\", r"\"", r"\*", r"\{"),
        pattern=re.compile(r"\\[\\'\"/`*_#~|^$&%{}\[\]<>]"),
        needs="\\",
        around=ANYTHING,
    ),
    KeptForm(
        name="written tab",
        kind=Kind.BORDER,
        examples=(r"\t", r"\t\t"),
        pattern=re.compile(r"(?<!\\)(?:\\[tvf])++"),
        needs="\\",
        around=ANYTHING,
    ),
    KeptForm(
        name="command of LaTeX",
        kind=Kind.CODE,
        examples=(r"\ref{fig:one}", r"\textbf{x}", r"\cite[p. 5]{knuth}"),
        pattern=re.compile(
            r"\\(?:text[a-z]{1,8}|emph|(?:eq|page|auto|name)?ref|cite[a-z]{0,8}|label|url|href|footnote|frac|sqrt|math[a-z]{1,8}|item|chapter"
            r"|(?:sub){0,2}section|begin|end|includegraphics)\*?(?:\[[^\[\]\n]{0,80}+\]|\{[^{}\n]{0,200}+\}){1,4}+"
        ),
        needs="\\",
    ),
)

TAGS = (
    KeptForm(
        name="tag",
        kind=Kind.TAG,
        examples=('<x id="1"/>', "<br>", "<1/>"),
        pattern=re.compile(r"</?[A-Za-z][^<>]{0,500}+>|</?\d{1,3}+\s{0,3}+/?>|&lt;/?[A-Za-z][^<>&\n]{0,200}+&gt;"),
        needs="<&",
        around=ANYTHING,
    ),
)

NUMBERS = (
    KeptForm(
        name="amount",
        kind=Kind.NUMBER,
        examples=(
            "47110815", "1,299.99", "1 250 000", "1.234,5", "1'000", "$1,299.99", "$5", "€ 12.50", "99,90 €", "-5",
            "−20 °C", "20 m²", "90 km/h", "2026-11-23", "23.11.2026", "11/23/2026", "12:30", "12:30:05", "1.2.3",
            "5–10", "1/2", "½", "1.5e-10", "6.02×10^23", "192.168.0.1", "12.5", "§ 5", "3×4", "~5",
            "5'10\"",
        ),
        pattern=AMOUNT,
        accepts=is_amount,
    ),
    KeptForm(
        name="telephone",
        kind=Kind.NUMBER,
        examples=("+49 30 1234567", "(030) 123-4567"),
        pattern=PHONE,
        trims=True,
        needs="+(",
    ),
)  # fmt: skip

CODES = (
    KeptForm(
        name="long code, such as a hash or base64",
        kind=Kind.CODE,
        examples=(
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8=",
        ),
        pattern=re.compile(r"(?<![\w+/=\-])(?=[A-Za-z_+/=\-]*+[0-9])[A-Za-z0-9_+/=\-]{40,}+"),
        needs=_DIGITS,
    ),
    KeptForm(
        name="UUID",
        kind=Kind.CODE,
        examples=("550e8400-e29b-41d4-a716-446655440000", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"),
        pattern=re.compile(r"(?<![\w\-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w\-])"),
        needs="-",
    ),
    KeptForm(
        name="hexadecimal number",
        kind=Kind.CODE,
        examples=("0x1F", "0XdeadBEEF"),
        pattern=re.compile(r"(?<!\w)0[xX][0-9a-fA-F]{1,64}+(?!\w)"),
        needs="xX",
    ),
    KeptForm(
        name="colour",
        kind=Kind.CODE,
        examples=("#ff8800", "#c0ffee", "#a1b"),
        pattern=re.compile(r"(?<![\w#&])#(?:[0-9a-fA-F]{3}){1,2}(?![\w#])"),
        needs="#",
    ),
    KeptForm(
        name="address of a device: MAC, IPv6",
        kind=Kind.CODE,
        examples=("00:1b:44:11:3a:b7", "fe80::1", "2001:db8::8a2e:370:7334"),
        pattern=re.compile(
            r"(?<![\w:])(?:[0-9a-fA-F]{1,4})?(?::{1,2}[0-9a-fA-F]{1,4}){2,7}+(?![\w:])|(?<![\w:])fe80::\w{1,4}"
        ),
        needs=":",
        accepts=_has_letter,
    ),
)

LINES = (
    KeptForm(
        name="line of eight or more equal signs",
        kind=Kind.LINE,
        examples=("________", "----------", "========"),
        pattern=re.compile(r"([-_=*~#+.·•…\u2010-\u2015\u2500-\u25a1])\1{7,}+"),
        around=ANYTHING,
    ),
)

EMOJI = (
    KeptForm(
        name="emoji",
        kind=Kind.EMOJI,
        examples=("🍕", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "1️⃣"),
        pattern=re.compile(
            f"(?:[#*0-9]\ufe0f?\u20e3|{_NARROW}|[{_WITH_SELECTOR}]\ufe0f)"
            f"(?:{_NARROW}|[\u200d\ufe0f\u20e3\U000e0020-\U000e007f])*+"
        ),
        around=ANYTHING,
    ),
)

FORMS: tuple[KeptForm, ...] = (
    *ADDRESSES,
    *PLACEHOLDERS,
    *REFERENCES,
    *ESCAPES,
    *TAGS,
    *NUMBERS,
    *CODES,
    *LINES,
    *EMOJI,
)
