"""A plain text as its sentences and what separates them, from which the text can be put together again.

What separates them are blanks, marks of lists, tabs and the like, and all that has no letters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain, islice

from lingon.segments.boundaries import (
    LINE_BREAKS,
    Span,
    ends_without_space,
    has_letters,
    has_space,
    is_blank,
    lines,
    next_visible,
    paragraphs,
    sentences,
    trimmed_end,
)

# The marks at the begin of a line: bullets, numbers and letters of a list, boxes, dashes of a dialogue.
# They are cut off with the blanks after them and put back, since models drop, double or translate them.

BLANKS = "\t \x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"  # of a line, as in a class of a regular expression
MOST = 8  # marks in a row, such as "> > - "
SIGNS = frozenset(["bullet", "sign", "dash", "box"])  # kinds of marks of which several may be in a row

DASHES = "-‐‑‒–—―"

_AFTER = rf"(?=[{BLANKS}]|\Z)"
_BULLETS = "•‣⁃◦▪▫▸►➢➤➜❖❑❏☐☑☒✓✔✗✘\uf0a7\uf0b7\uf0d8\uf0fc"  # of lists only; the last four as Word copies them
_SHAPES = "■□●◆◇▲△▼▽★☆◎"  # of lists where nothing like them follows
_SIGNS = "·∙・›»>*+#○◯▶→⇒※"  # need a blank after them
_CIRCLED = "①-⓿❶-➓⒈-⒛㈠-㈩㊀-㊉"
_SMALL = "(?=[ivx])x{0,3}(?:ix|iv|v?i{0,3})"
_LARGE = "(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})"
_NUMBER = r"\d{1,3}(?:\.\d{1,3}){0,5}"
_ITEM = rf"(?:{_NUMBER}|{_SMALL}|{_LARGE}|[^\W\d_])"

_MARK = re.compile(
    rf"(?P<bullet>[{_BULLETS}]\ufe0f?)"
    rf"|(?P<sign>(?:[{_SHAPES}](?![{_SHAPES}○◯])|(?:[{_SIGNS}]{{1,6}}|[-‐‑‒–—―−]{{1,3}}|[-=]>){_AFTER})\ufe0f?)"
    rf"|(?P<box>\[[ xX✓✔✗✘*~+-]?\]{_AFTER})"
    rf"|(?P<circled>[{_CIRCLED}])"
    rf"|(?P<bracketed>[(\[]{_ITEM}[)\]]{_AFTER}|（(?:{_ITEM}|[一二三四五六七八九十]{{1,3}})）)"
    rf"|(?P<closed>{_ITEM}\.?\){_AFTER}|{_ITEM}）|\d{{1,3}}\)(?=[^\W\d_]))"
    rf"|(?P<dashed>\d{{1,3}}(?:\.-|[-–/]){_AFTER})"
    rf"|(?P<number>{_NUMBER}\.{_AFTER}|(?:\d{{1,3}}|[一二三四五六七八九十]{{1,3}})、|\d{{1,3}}．)"
    rf"|(?P<letter>[a-hivx]\.(?=[{BLANKS}]{{1,4}}(?!\w{{1,2}}\.|Chr\.)(?![\d{BLANKS}])|\Z)"  # not "i. e.", "d. 1990"
    rf"|(?:(?=[ivx]{{2}}){_SMALL}|(?=[IVX]{{2}}){_LARGE})\.{_AFTER})"
)
_COUNT_OF = re.compile(r"# of\b")  # a heading of a column, in which the sign is a word
_DASH = re.compile(r"[—―](?=[^\W\d_]|[¿¡\"“«‹„‘(…])|[-–‐](?=([^\W\d_])([^\W\d_]|[\s'’,!?.]))")
_WORD = re.compile(r"[^\W\d_]{1,32}+")
_GUILLEMETS = {"»": "«", "›": "‹"}  # which may close what the line opens the other way round

MONTHS = """
    January February March April May June July August September October November December
    Januar Jänner Februar Feber März Mai Juni Juli Oktober Dezember
    januar februar marts april maj juni juli august september oktober november december mars mai desember
    janúar febrúar apríl maí júní júlí ágúst október nóvember
    tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta lokakuuta
    marraskuuta joulukuuta jaanuar veebruar märts aprill juuni juuli oktoober detsember
    ledna února března dubna května června července srpna září října listopadu prosince
    januára februára marca apríla mája júna júla augusta septembra októbra novembra decembra
    januarja februarja marca aprila maja junija julija avgusta septembra oktobra novembra decembra
    siječnja veljače ožujka travnja svibnja lipnja srpnja kolovoza rujna listopada studenoga prosinca
    januara februara marta aprila jula juna avgusta јануара фебруара марта априла маја јуна јула августа септембра
    октобра новембра децембра
    janvāris februāris aprīlis maijs jūnijs jūlijs augusts septembris oktobris novembris decembris
"""
"""Names of months in the languages that write a stop after the day: "1. May" is a date."""


def after_marks(text: str, begin: int, end: int) -> int:
    """Return where a line goes on after its marks and the blanks after them; end if it has nothing else."""
    seen = set[str]()
    for _ in range(MOST):
        found = mark_at(text, begin, end)
        if found is None or (found[1] in seen - SIGNS):
            break
        seen.add(found[1])
        begin = next_visible(text, found[0], end)
    return begin


def after_dash(text: str, begin: int, end: int) -> int:
    """Return where a sentence goes on after the dash of another voice, as in "Yes? - Come here."; else its begin."""
    if text[begin] not in DASHES or (found := mark_at(text, begin, end)) is None:
        return begin
    following = next_visible(text, found[0], end)
    return following if following < end else begin


def mark_at(text: str, begin: int, end: int) -> tuple[int, str] | None:
    """Return the end of the mark at a position and of which kind it is, or None if there is none.

    Negative numbers, hashtags, emphasis, initials ("I. Newton") and dates ("1. May") have none.
    """
    if begin < end and (dash := _DASH.match(text, begin, end)) and _is_voice(dash):
        return dash.end(), "dash"
    found = _MARK.match(text, begin, end)
    if found is None or found.end() == begin or not found.lastgroup:
        return None
    if found[0] in _GUILLEMETS and text.find(_GUILLEMETS[found[0]], begin, end) >= 0:
        return None
    if found.lastgroup == "sign" and _COUNT_OF.match(text, begin, end):
        return None
    if found.lastgroup == "number":
        word = _WORD.match(text, next_visible(text, found.end(), end), end)
        if word is not None and word[0] in _months():
            return None
    return found.end(), found.lastgroup


def _is_voice(dash: re.Match[str]) -> bool:
    """Return whether a dash at a word begins what somebody says: a long one always, a short one before a capital
    letter.
    """
    if dash[1] is None:
        return True
    return dash[1].isupper() and (not dash[2].isalpha() or dash[2].islower())


@cache
def _months() -> frozenset[str]:
    return frozenset(MONTHS.split())


# Lists within a line, such as "Home > Products" and "About us | Contact", cut at the signs between the texts.

LONGEST = 4000  # characters of a list
MOST_WORDS = 4  # of a text between two signs that may also be part of a sentence
MOST_CHARACTERS = 48  # of such a text
LEAST_OF_LOWER = 3  # texts that make a list if they begin with small letters: "size > limit" is a comparison

_STRONG = "|¦‖›❯•"  # signs that no sentence has
_WEAK = ">»·∙・/→⇒"
SEPARATORS = f"{_STRONG}{_WEAK}"
_SIGN = re.compile(rf"(?:(?<=[{BLANKS}])|\A)([{_STRONG}]{{1,2}}+|[{_WEAK}]{{1,2}}+)(?=[{BLANKS}]|\Z)")
_OPENING, _CLOSING = re.compile(r"[(\[{]"), re.compile(r"[)\]}]")
_END_MARKS = ".!?,;:…。！？،؟।"
_LONG_WORD = re.compile(r"[^\W\d_]{3,}+")


def crumbs(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the texts of a list within a span, or the span itself if it is none."""
    signs = list(_SIGN.finditer(text, begin, end)) if end - begin <= LONGEST else []
    if not signs:
        yield begin, end
        return
    strong = [sign.span() for sign in signs if sign[1][0] in _STRONG]
    position = 0
    for first, last in _between(text, begin, end, _outside_brackets(text, begin, strong)):
        own = list[re.Match[str]]()
        while position < len(signs) and signs[position].start() < last:
            if signs[position].start() >= first and signs[position][1][0] not in _STRONG:
                own.append(signs[position])
            position += 1
        parts = list(_between(text, first, last, [sign.span() for sign in own]))
        yield from parts if own and _is_list(text, parts, {sign[1] for sign in own}) else ((first, last),)


def _between(text: str, begin: int, end: int, signs: list[Span]) -> Iterator[Span]:
    """Yield what is between signs, without the blanks around it, unless it is blank."""
    for first, last in zip([begin, *(sign[1] for sign in signs)], [*(sign[0] for sign in signs), end], strict=True):
        first = next_visible(text, first, last)
        if first < last:
            yield first, trimmed_end(text, first, last)


def _outside_brackets(text: str, begin: int, signs: list[Span]) -> list[Span]:
    """Return the signs that are not within brackets, as one of P(A | B) is."""
    found, depth, at = list[Span](), 0, begin
    for sign in signs:
        depth += len(_OPENING.findall(text, at, sign[0])) - len(_CLOSING.findall(text, at, sign[0]))
        at = sign[1]
        if depth <= 0:
            found.append(sign)
    return found


def _is_list(text: str, parts: list[Span], signs: set[str]) -> bool:
    """Return whether these signs separate the texts of a list, and are no part of a sentence or a comparison."""
    if len(parts) < 2 or len(signs) > 1 or "«" in text[parts[0][0] : parts[-1][1]]:
        return False
    texts = [text[first : min(last, first + MOST_CHARACTERS + 1)] for first, last in parts]
    if any(len(each) > MOST_CHARACTERS or len(each.split()) > MOST_WORDS for each in texts):
        return False
    if any(each[-1] in _END_MARKS or not any(map(str.isalpha, each)) for each in texts):
        return False
    begins_high = all(each[0].isalpha() and not each[0].islower() for each in texts)
    are_words = all(_LONG_WORD.search(each) and not each[0].isdecimal() for each in texts)
    return begins_high or (are_words and (len(parts) >= LEAST_OF_LOWER or min(signs) in "·∙・"))


# The borders within a line: tabs, runs of blanks, and line breaks and tabs that are written as escapes.
# What is on one side of a border is translated without the other side, and the border is kept.

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

    collapses: whether spaces and tabs are white space of any width, as in HTML. Then only hard blanks are a border
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
    """Return whether blanks are between columns. Those beside a line break are the indentation of a line."""
    if text[first - 1 : first] in LINE_BREAKS or text[last : last + 1] in LINE_BREAKS:
        return False
    blanks = text[first:last]
    if collapses:
        return len(_COLLAPSING.sub("", blanks)) >= MANY
    return "\t" in blanks or len(blanks) >= MANY


def _path_end(text: str, begin: int, end: int, escape: int) -> int:
    r"""Return how far a path goes on that a backslash is in, as far as it is read, else the position of the backslash.

    Such as C:\new\readme. A command of TeX, such as \noindent, is taken for a path.
    """
    if command := _COMMAND.match(text, escape, end):
        return command.end()
    before = text[max(begin, escape - LONGEST_WORD) : escape].rsplit(None, 1)
    after = text[escape : min(end, escape + LONGEST_WORD)].split(None, 1)
    head = before[-1] if before and not text[escape - 1].isspace() else ""
    word = head + after[0]
    is_path = _DRIVE.search(f"{head}\\") or _PATH.match(word) or _PART.search(word)
    return escape + len(after[0]) if head and is_path else escape


# A line or a paragraph as the texts in it that belong together, without the marks before them.

_LINE_BREAK = re.compile(f"[{LINE_BREAKS}]")


_PLAIN = re.compile(  # begins with a word that is no mark, and has no border: most texts are such
    rf"[^\W\d_]{{2,}}+(?![.)）、．])(?:[^{SEPARATORS}{BLANKS}{LINE_BREAKS}\\]++|[{BLANKS}](?<!\t)(?![{BLANKS}]))*+"
)
LINES_AT_ONCE = 256  # of wrapped text that are read before the caller can give way to others


def cells_of(text: str, paragraph: Span, *, collapses: bool = False) -> Iterator[Span]:
    """Yield the texts of a paragraph in order. An empty span stands for a part in which there is nothing to translate.

    Each text begins and ends with a visible character. What is between them, such as a tab, a bullet or the sign
    between two names of a menu, is kept as it is.
    collapses: whether spaces and tabs are white space of any width, as in HTML
    """
    at, end = paragraph
    if _PLAIN.fullmatch(text, at, end):
        yield paragraph
        return
    for first, last in chain(borders(text, at, end, collapses=collapses), ((end, end),)):
        for item in _items(text, at, first):
            yield from _without_marks(text, *item)
        at = last


def _without_marks(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the texts of an item."""
    begin = next_visible(text, begin, end)
    end = trimmed_end(text, begin, end)
    begin = after_marks(text, begin, end)
    yield from crumbs(text, begin, end) if begin < end else ((begin, begin),)


def _items(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the items of a list in wrapped text: two of its lines or more begin with a mark of the same kind."""
    if not _LINE_BREAK.search(text, begin, end):
        yield begin, end
        return
    positions = chain((begin,), (found.end() for found in _LINE_BREAK.finditer(text, begin, end)))
    kinds, at = set[str](), begin
    while starts := list(islice(positions, LINES_AT_ONCE)):
        marked = [(first, kind) for first in starts if (kind := _kind(text, first, end))]
        count = Counter(kind for _, kind in marked)
        kinds.update(kind for kind in count if count[kind] > 1)
        for first, kind in marked:
            if kind in kinds and at < first:
                yield at, first
                at = first
        if len(starts) == LINES_AT_ONCE:
            yield at, at
    yield at, end


def _kind(text: str, line: int, end: int) -> str:
    """Return of which kind the mark is that a line begins with, empty without one."""
    first = next_visible(text, line, end)
    found = mark_at(text, first, end)
    if found is None:
        return ""
    return text[first] if found[1] in SIGNS else found[1]


class Split(Enum):
    """Where a text is split: SENTENCES ends a sentence at each line break, NONEWLINES only at blank lines."""

    SENTENCES = "sentences"
    NONEWLINES = "nonewlines"
    OFF = "off"


def cut(text: str, split: Split, language: str = "", *, collapses: bool = False) -> Iterator[Span]:
    """Yield the segments of a text. Each step takes at most a few milliseconds, whatever the text.

    A segment begins and ends with a visible character and has a letter. All else is between the segments. An empty span
    is none: it stands for a part without letters, so that the caller can give way to others. With Split.OFF, a text
    that has a visible character is one segment.
    language: of the text, BCP-47
    collapses: whether spaces and tabs are white space of any width, as in HTML
    """
    if split is Split.OFF:
        begin = next_visible(text, 0, len(text))
        if begin < len(text):
            yield begin, trimmed_end(text, begin, len(text))
        return
    for paragraph in (lines if split is Split.SENTENCES else paragraphs)(text):
        for begin, end in cells_of(text, paragraph, collapses=collapses):
            if has_letters(text, begin, end):
                for first, last in sentences(text, (begin, end), language):
                    yield after_dash(text, first, last), last
            else:
                yield begin, begin


@dataclass(frozen=True, slots=True)
class Joined:
    """A text that was put together, and the span of each translation in it."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class TextLayout:
    """A text and its segments, spans in code points. What is between and around them are the separators."""

    text: str
    segments: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, split: Split, language: str = "") -> TextLayout:
        """Return a text with its segments. See `cut`."""
        return cls(text, tuple(span for span in cut(text, split, language) if span[0] < span[1]))

    def segment(self, index: int) -> str:
        """Return the text of a segment."""
        begin, end = self.segments[index]
        return self.text[begin:end]

    def separator(self, index: int) -> str:
        """Return the text before a segment; that after the last one has the index len(segments)."""
        begin = self.segments[index - 1][1] if index else 0
        end = self.segments[index][0] if index < len(self.segments) else len(self.text)
        return self.text[begin:end]

    def join(self, translations: Sequence[str]) -> Joined:
        """Return the text with a translation instead of each segment. The segments themselves give `text`."""
        joiner, pieces, spans, length = Joiner(self), [], [], 0
        for index, translation in enumerate(translations):
            pieces.append(joiner.add(index, translation))
            length += len(pieces[-1])
            spans.append((length - len(translation), length))
        return Joined("".join([*pieces, joiner.end()]), tuple(spans))


class Joiner:
    """A builder of the translation of a document, from pieces in the order of the segments."""

    def __init__(self, document: TextLayout) -> None:
        self._document = document
        self._next = 0  # the separator that comes next
        self._last = ""  # the last character so far

    def add(self, index: int, text: str) -> str:
        """Return what the next piece of the translation of a segment adds to the whole, with the separators before it.

        Where a script without spaces has nothing between two sentences, a translation into another script gets a space.
        """
        added = ""
        while self._next <= index:
            separator = self._document.separator(self._next)
            added += separator
            if self._next == index and text and self._needs_space(separator):
                added += " "
            self._last = added[-1:] or self._last
            self._next += 1
        self._last = text[-1:] or self._last
        return added + text

    def end(self) -> str:
        """Return the separators that are left."""
        return "".join(self._document.separator(index) for index in range(self._next, len(self._document.segments) + 1))

    def _needs_space(self, separator: str) -> bool:
        if self._next == 0 or not self._last or has_space(separator) or not is_blank(separator):
            return False
        return not (self._last.isspace() or ends_without_space(self._last))
