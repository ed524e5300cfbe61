"""The tokens of HTML and XML, their character references, and the rules by which elements split a text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html.entities import html5
from typing import Final, NamedTuple
from xml.parsers import expat

from lingon.errors import MarkupError, SettingsError

# The tokens of a marked-up text: what HTML and XML have in common.

TEXT: Final = 0
OPEN: Final = 1  # a start tag
CLOSE: Final = 2  # an end tag
EMPTY: Final = 3  # a tag of an element without content
REMARK: Final = 4  # a comment, a declaration, or a processing instruction
KEPT: Final = 5  # text that is left as it is, such as CDATA of nothing but tags
SECTION: Final = 7  # text of a CDATA section, which has no references
SPLIT: Final = 6  # anything else that is not text; it is left as it is

MarkupToken = tuple[int, int, int, str]
"""What it is, its begin and end in the text, and the name of a tag, in HTML in lower case.

The tokens of a text follow one another without a gap. They are plain tuples, which the garbage collector does not visit
again and again: a million named ones take seconds.
"""

_NAME = re.compile(r"<[^\t\n\f\r />]*+")
_ATTRIBUTE = re.compile(
    r"([^\t\n\f\r />][^\t\n\f\r />=]*+)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >]++)))?+"
)


class Attribute(NamedTuple):
    """An attribute of a tag; begin, end: of its value in the text, without the quotation marks."""

    name: str
    begin: int
    end: int


def attributes_of(text: str, begin: int, end: int) -> Iterator[Attribute]:
    """Yield the attributes with values of the start tag that has this position in a text."""
    name = _NAME.match(text, begin, end)
    assert name is not None
    for found in _ATTRIBUTE.finditer(text, name.end(), end - 1):
        value = found.lastindex or 1
        if value > 1:
            yield Attribute(found[1], *found.span(value))


def says_translate(tag: str) -> bool | None:
    """Return whether the attributes of a start tag say that its content is translated, or None if they do not say.

    They are `translate` and `its:translate` with "yes" or "no", the class `notranslate`, and `translatable` with "true"
    or "false" as in the resources of Android.
    """
    if "translat" not in tag.lower():
        return None
    answer = None
    name_of_tag = _NAME.match(tag)
    assert name_of_tag is not None
    for found in _ATTRIBUTE.finditer(tag, name_of_tag.end(), len(tag) - 1):
        name, value = found[1].lower(), (found[2] or found[3] or found[4] or "").lower()
        if name in ("translate", "its:translate", "translatable") and value in ("no", "false"):
            return False
        if name == "class" and "notranslate" in value.split():
            return False
        if name in ("translate", "its:translate", "translatable") and value in ("yes", "true", ""):
            answer = True
    return answer


# Names of elements of HTML.

_VOID = """
    area base basefont bgsound br col command embed frame hr img input keygen link meta param source track wbr
"""
VOID = frozenset(_VOID.split())
"""Elements without content and without an end tag."""


# Which elements split a text, which are left as they are, and which attributes are texts.


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = _names("""
    address article aside audio blockquote body br button canvas caption center col colgroup datalist dd desc details
    dialog dir div dl dt fieldset figcaption figure footer foreignobject form frame frameset h1 h2 h3 h4 h5 h6 head
    header hgroup hr html iframe input label legend li link main marquee menu meta nav noembed noframes noscript
    object ol optgroup option p param plaintext pre search section select source summary table tbody td template text
    textarea tfoot th thead title tr track ul video xmp
""")
"""Elements of HTML that split a text: those that a browser shows as blocks or as controls, texts of SVG, and `br`."""

RAW_TEXT = frozenset(["iframe", "noembed", "noframes", "script", "style", "xmp"])
"""Elements of HTML whose content has no tags. It is left as it is."""

UNTOUCHED = frozenset(["code", "pre", "kbd", "samp", "var", "math"]) | RAW_TEXT
"""Elements of HTML whose content is not translated."""

READINGS = frozenset(["rp", "rt", "rtc"])
"""Elements of HTML beside the words that they say how to read. Their content is not translated."""

ENDS_IMPLIED = {
    "dd": frozenset(("dd", "dt")),
    "dt": frozenset(("dd", "dt")),
    "li": frozenset(("li",)),
    "option": frozenset(("option",)),
    "td": frozenset(("td", "th")),
    "th": frozenset(("td", "th")),
    "tr": frozenset(("td", "th", "tr")),
    **dict.fromkeys(("rb", "rtc"), READINGS | {"rb"}),
    **dict.fromkeys(("rp", "rt"), frozenset(("rb", "rp", "rt"))),
}
"""By the name of a start tag of HTML: the elements that it ends. Every block also ends a paragraph."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkupRules:
    """What a caller says about elements and attributes, by name. HTML has rules of its own for the others.

    ignore_tags: elements whose content is not translated
    splitting_tags: elements at which a text is split
    non_splitting_tags: elements that belong to the sentence around them
    attributes: those whose values are translated, each as a text of its own
    """

    ignore_tags: frozenset[str] = frozenset()
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if both := self.splitting_tags & self.non_splitting_tags:
            raise SettingsError(f"{min(both)!r} is in splitting_tags and in non_splitting_tags; leave out one")

    @classmethod
    def of(
        cls,
        ignore_tags: Iterable[str] = (),
        splitting_tags: Iterable[str] = (),
        non_splitting_tags: Iterable[str] = (),
        attributes: Iterable[str] = (),
    ) -> MarkupRules:
        """Return the rules of lists of names."""
        return cls(
            ignore_tags=frozenset(ignore_tags),
            splitting_tags=frozenset(splitting_tags),
            non_splitting_tags=frozenset(non_splitting_tags),
            attributes=frozenset(attributes),
        )

    def lowered(self) -> MarkupRules:
        """Return the same rules for names of HTML, whose case does not matter."""
        return MarkupRules.of(
            map(str.lower, self.ignore_tags),
            map(str.lower, self.splitting_tags),
            map(str.lower, self.non_splitting_tags),
            map(str.lower, self.attributes),
        )


NO_RULES = MarkupRules()


# The tokens of HTML, as section 13.2.5 of the HTML standard reads them, with their positions in the text.
# The parser of the standard library takes more than two minutes for 1 MB of unclosed attributes, and what it reads as
# a comment or a script depends on the version of Python. Here every expression is possessive, or searches an end
# whose absence ends the reading, so the time is linear in the text.

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


def html_tokens(text: str) -> list[MarkupToken]:
    """Return the tokens of a text, which may be any. The rest after a tag or a comment without end is one of them."""
    tokens: list[MarkupToken] = []
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


def _lines(text: str, begin: int, end: int) -> Iterator[MarkupToken]:
    """Yield the lines of a text field, whose line breaks a browser shows, and what is between them."""
    for found in _HTML_LINE.finditer(text, begin, end):
        yield (SPLIT if found[0][0] in "\r\n" else TEXT, *found.span(), "")


def _until_raw_text(text: str, begin: int, tokens: list[MarkupToken]) -> int:
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


# The tokens of XML with their positions in the text. Expat checks that the text is well-formed.
# A text may be a document, or a part of one: `Hello <b>world</b>` has no root element.

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


def xml_tokens(text: str) -> list[MarkupToken]:
    """Return the tokens of a well-formed text. Raises MarkupError, which names line and column, for another one."""
    prolog = _PROLOG.match(text)
    assert prolog is not None
    _check(text, prolog)
    tokens: list[MarkupToken] = [(SPLIT, 0, prolog.end(), "")] if prolog.end() else []
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


def _section(text: str, begin: int, end: int) -> Iterator[MarkupToken]:
    """Yield the tokens of a CDATA section: a text of its own, or something to keep if it has nothing but tags."""
    first, last = begin + len("<![CDATA["), end - len("]]>")
    if any(map(str.isalpha, _TAG.sub("", text[first:last]))):
        yield (SPLIT, begin, first, "")
        yield (SECTION, first, last, "")
        yield (SPLIT, last, end, "")
    else:
        yield (KEPT, begin, end, "")


def _check(text: str, prolog: re.Match[str]) -> None:
    """Raise MarkupError if a text is not well-formed. It needs no root element.

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
    """Raise MarkupError, which names the position in the text without what is added, if it is not well-formed."""
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


# Character references: `&amp;` is read as `&`, and what must be one in the translation is written as one again.
# In a translation `&`, `<` and `>` are written as references. In HTML the no-break space is written as `&nbsp;`,
# because it looks like a space in an editor. All other characters are written as themselves.

_OLD_NAMES = "|".join(sorted((name for name in html5 if not name.endswith(";")), key=len, reverse=True))
_OLD = re.compile(f"&(?:{_OLD_NAMES})")  # HTML reads these also without a semicolon
_IN_HTML = re.compile(rf"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{{1,31}}+;|(?:{_OLD_NAMES}))")
_IN_XML = re.compile(r"&(?:#0*+([0-9]++)|#x0*+([0-9a-fA-F]++)|([^;&]++));")  # int() refuses thousands of figures
_WINDOW = 2**14  # characters
_XML_NAMES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_HTML_ESCAPES = {**_ESCAPES, 0xA0: "&nbsp;"}


class CharacterReference(NamedTuple):
    """A reference in a text; character is None for an entity that the document defines itself."""

    begin: int
    end: int
    characters: str | None


def html_references(text: str, begin: int, end: int) -> Iterator[CharacterReference]:
    """Yield the references of a part of a text as a browser reads them."""
    for found in _matches(_IN_HTML, text, begin, end):
        first, last = found.span()
        written = found[0]
        if written[-1] == ";" and written[1] != "#" and written[1:] not in html5:
            old = _OLD.match(written)
            if old is None:
                continue
            written, last = old[0], first + old.end()
        yield CharacterReference(first, last, _decoded(written))


def xml_references(text: str, begin: int, end: int) -> Iterator[CharacterReference]:
    """Yield the references of a part of well-formed XML."""
    for found in _matches(_IN_XML, text, begin, end):
        decimal, hexadecimal, name = found.groups()
        if name:
            yield CharacterReference(*found.span(), _XML_NAMES.get(name))
        else:
            yield CharacterReference(*found.span(), chr(int(decimal) if decimal else int(hexadecimal, 16)))


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
