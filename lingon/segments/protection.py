"""What a translation keeps as it is: forms of strings, strings of the caller, code, marks and messages."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice
from operator import attrgetter
from typing import NamedTuple, TypeVar

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.kept_forms import (
    ANYTHING,
    DIGIT,
    FIGURE,
    FORMS,
    LONGEST_PREFIX,
    LONGEST_SUFFIX,
    NEAR_DIGITS,
    TEXTS,
    KeptForm,
    Kind,
    ProtectedSpan,
    merge,
    replaced,
)
from lingon.segments.kept_messages import MESSAGES, skeletons

# Finds many strings in a text in one pass (Aho and Corasick 1975), in a time linear in the text and the strings.

_UNIT = re.compile(r"\w++|\W")  # a whole word is one unit, so that no string is found in a part of a word


class _Automaton:
    """A state stands for the longest beginning of a string with which what was read ends; 0 is that of none.

    ends: the state at the end of each string
    failure: of each state, that of the next shorter beginning with which the text ends as well
    longest: by state, the number of the longest string that is complete in it, or -1 for none
    """

    def __init__(self, strings: Iterable[Sequence[Hashable]]) -> None:
        """strings: not empty, and each another one."""
        self._next: list[dict[Hashable, int]] = [{}]
        self.ends = [self._add(string) for string in strings]
        self.failure = [0] * len(self._next)
        self.longest = [-1] * len(self._next)
        for number, state in enumerate(self.ends):
            self.longest[state] = number
        for parent, unit, state in self._by_length():
            if parent:
                self.failure[state] = self._step(self.failure[parent], unit)
            if self.longest[state] < 0:
                self.longest[state] = self.longest[self.failure[state]]

    def states(self, units: Iterable[Hashable]) -> Iterator[int]:
        """Yield the state after each unit of a text."""
        state = 0
        for unit in units:
            state = self._step(state, unit)
            yield state

    def longest_first(self) -> list[int]:
        """Return the states but 0, those of longer beginnings first."""
        return [state for _, _, state in self._by_length()][::-1]

    def _step(self, state: int, unit: Hashable) -> int:
        following, failure = self._next, self.failure
        while (after := following[state].get(unit)) is None and state:
            state = failure[state]
        return after or 0

    def _add(self, string: Sequence[Hashable]) -> int:
        state = 0
        for unit in string:
            after = self._next[state].get(unit)
            if after is None:
                after = self._next[state][unit] = len(self._next)
                self._next.append({})
            state = after
        return state

    def _by_length(self) -> Iterator[tuple[int, Hashable, int]]:
        """Yield the states but 0 with the one before each and the unit between them, shorter beginnings first."""
        level = [0]
        while level:
            below = [(parent, unit, state) for parent in level for unit, state in self._next[parent].items()]
            yield from below
            level = [state for _, _, state in below]


class KeptStrings:
    """Strings that a caller wants kept. One that begins or ends with a letter or figure is found as a whole word there.

    The automaton is made when it is first needed, once for all texts of a request.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._strings = tuple(dict.fromkeys(filter(None, strings)))

    def __bool__(self) -> bool:
        return bool(self._strings)

    def plus(self, strings: Iterable[str]) -> KeptStrings:
        """Return these strings and others."""
        return KeptStrings((*self._strings, *strings))

    def find(self, text: str) -> Iterator[Span]:
        """Yield where the strings are in a text: of those that end at one position, the longest."""
        units = _UNIT.findall(text)
        longest = self._automaton.longest
        for end, state in zip(accumulate(map(len, units)), self._automaton.states(units), strict=True):
            if longest[state] >= 0:
                yield end - len(self._strings[longest[state]]), end

    @cached_property
    def _automaton(self) -> _Automaton:
        return _Automaton(map(_UNIT.findall, self._strings))


NO_STRINGS = KeptStrings()


def counts(text: str, strings: Sequence[str]) -> list[int]:
    """Return how often each string is in a text, also where it overlaps itself. Each is another one and not empty."""
    automaton = _Automaton(strings)
    visits = [0] * len(automaton.failure)
    for state in automaton.states(text):
        visits[state] += 1
    for state in automaton.longest_first():
        visits[automaton.failure[state]] += visits[state]
    return [visits[state] for state in automaton.ends]


Item = TypeVar("Item")


class TooManySpans(Exception):
    """A text has more strings to protect than the caller takes."""


def find_protected(
    text: str, keep: KeptStrings = NO_STRINGS, *, patterns: bool = True, most: int | None = None
) -> list[ProtectedSpan]:
    """Return the protected spans of a text in order, without overlap.

    keep: further strings to protect, with case
    patterns: whether anything but `keep` is protected
    most: matches, of which several may make one span. Raises TooManySpans if there are more
    Takes time linear in the text and in the strings of `keep`.
    """
    messages = merge(_bounded(skeletons(text), most)) if patterns else []
    rest = _blanked(text, messages)  # what they hold is not found again
    kept = _bounded((ProtectedSpan(*span, Kind.KEEP) for span in keep.find(rest)), most) if keep else []
    counted = [span for span in messages if span.kind is Kind.PLACEHOLDER]
    found = _bounded([*messages, *kept, *(_with_marks(rest, kept, counted, most) if patterns else ())], most)
    return [span for span in (_visible(text, each) for each in merge(found)) if span.begin < span.end]


def _with_marks(
    text: str, kept: Sequence[ProtectedSpan], counted: Sequence[ProtectedSpan], most: int | None
) -> list[ProtectedSpan]:
    """Return all that the tables have, and the pairs of marks around words of the text.

    kept: what a caller wants kept, which cuts no mark
    counted: signs of messages that stand for numbers, which a mark may be around
    most: see `find_protected`. It is looked at in each step, so that a text with too many costs little
    Code is found first, so that no mark is in it, then links, then all else but in these, and last what pairs of marks
    are left.
    """
    found = _apart(_bounded(links(text, "`"), most), kept) if "`" in text else []
    if "`" in text or "|" in text or "]_" in text:
        found += _bounded(codes(_blanked(text, found)), most)
    found += _apart(_bounded(bbcodes(_filled(text, found, "x")), most), kept)
    if "](" in text or "][" in text:
        for _ in range(2):  # a picture may be in a link
            found += _apart(_bounded(links(_filled(text, found, "·"), "["), most), kept)
    others = _bounded(matches(_blanked(text, found)), most)
    inside = [*counted, *found, *(span for span in others if span.kind not in (Kind.TAG, Kind.SIGN))]
    marked = _apart(_bounded(pairs(_filled(text, inside, "x")), most), kept)
    positions = sorted(marked)
    return [*found, *marked, *(span for span in others if not _is_within(span, positions))]


def _bounded(spans: Iterable[Item], most: int | None) -> list[Item]:
    """Return what there is. Raises TooManySpans for more than `most`."""
    if most is None:
        return [*spans]
    found = list(islice(spans, most + 1))
    if len(found) > most:
        raise TooManySpans
    return found


def _apart(marks: Iterable[tuple[ProtectedSpan, ProtectedSpan]], kept: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the marks of pairs of which none is cut by what a caller wants kept."""
    positions = merge(kept)
    return [mark for pair in marks if not any(_is_cut(mark, positions) for mark in pair) for mark in pair]


def _is_cut(mark: ProtectedSpan, positions: Sequence[ProtectedSpan]) -> bool:
    """Return whether a span overlaps a mark and is not within it; positions: in order and without overlap."""
    first = bisect_right(positions, mark.begin, key=attrgetter("end"))
    last = bisect_left(positions, mark.end, key=attrgetter("begin"))
    if first >= last:
        return False
    return positions[first].begin < mark.begin or positions[last - 1].end > mark.end


def _is_within(span: ProtectedSpan, positions: Sequence[ProtectedSpan]) -> bool:
    """Return whether one of other spans, in order and without overlap, has a span in it."""
    number = bisect_right(positions, span.begin, key=attrgetter("begin")) - 1
    return number >= 0 and span.end <= positions[number].end


def _blanked(text: str, spans: Iterable[ProtectedSpan]) -> str:
    """Return a text with blanks in place of spans."""
    return replaced(text, merge(spans), lambda found: " " * len(found))


def _filled(text: str, spans: Iterable[ProtectedSpan], by: str) -> str:
    """Return a text with a character in place of each of those of spans."""
    return replaced(text, merge(spans), lambda found: by * len(found))


def with_figures(text: str, spans: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the spans of a text and those of the small numbers beside them; spans: in order and without overlap."""
    found, last = [*spans], 0
    free = [*spans, ProtectedSpan(len(text), len(text), Kind.KEEP)]
    for begin, end, _ in free:
        if begin > last:
            found += [ProtectedSpan(*each.span(), Kind.FIGURE) for each in FIGURE.finditer(text, last, begin)]
        last = max(last, end)
    return sorted(found)


def _visible(text: str, span: ProtectedSpan) -> ProtectedSpan:
    """Return a span without the blanks and the invisible characters around it, which belong to no segment."""
    if span.kind is Kind.CLOSING:
        return span  # the blank before an address of reStructuredText belongs to it
    begin = next_visible(text, span.begin, span.end)
    return span._replace(begin=begin, end=trimmed_end(text, begin, span.end))


def uncut(segments: Iterable[Span], spans: Sequence[ProtectedSpan]) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
    """Yield segments, some of them empty, with the spans within each, counted from its begin.

    Segments that a span crosses the border of are one, and a segment grows over the span that it begins in. An empty
    one is what it is.
    spans: in order and without overlap
    """
    position, begin, last, own = 0, -1, -1, list[ProtectedSpan]()
    for first, last in segments:
        if first == last and begin < 0:
            yield (first, last), ()
            continue
        begin = first if begin < 0 else begin
        while position < len(spans) and spans[position].begin < last:
            own.append(spans[position])
            if own[-1].begin < begin < own[-1].end:
                begin = own[-1].begin
            position += 1
        if own and own[-1].end > last:
            continue
        yield (begin, last), _moved(own, begin)
        begin, own = -1, []
    if begin >= 0:
        yield (begin, last), _moved([span for span in own if span.end <= last], begin)


def _moved(spans: Sequence[ProtectedSpan], begin: int) -> tuple[ProtectedSpan, ...]:
    return tuple(
        ProtectedSpan(span.begin - begin, span.end - begin, span.kind) for span in spans if span.begin >= begin
    )


# Finds the forms of the table in a text, by searches that are short each.

_WINDOW = 2**15  # characters that one search reads, at most 2 ms: other threads wait for it
_MARGIN = 2**10  # characters after a window; only URLs, paths, lines and codes may be longer
_PUNCTUATION = ".,;:!?'’…*"
_FIRSTS = [(form, frozenset(each[0] for each in form.needs)) for form in FORMS]  # most forms need a rare sign
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def matches(text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of all forms of the table. They may overlap."""
    absent = {Kind.EMOJI} if text.isascii() else set[Kind]()
    if DIGIT.search(text) is None:
        absent |= {Kind.NUMBER}
    characters = set(text)
    for form, firsts in _FIRSTS:
        if (not firsts or not firsts.isdisjoint(characters)) and form.kind not in absent and form.may_be_in(text):
            yield from spans_of(form, text)


def spans_of(form: KeptForm, text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of one form with a pattern."""
    assert form.pattern is not None
    search = _near_digits if form.kind is Kind.NUMBER else searched
    for found in search(form.pattern, text):
        begin, end = found.span()
        if form.trims:
            end = begin + _length_without_punctuation(found[0])
            if end - begin < 2:
                continue
        if form.accepts is None or form.accepts(text, begin, end):
            yield ProtectedSpan(begin, end, form.kind)


def _near_digits(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer` does for numbers, of which only what is near digits is read, six times faster."""
    at = 0
    while digits := NEAR_DIGITS.search(text, at):
        begin, at = max(at, digits.start() - LONGEST_PREFIX), digits.end()
        stop = at + LONGEST_SUFFIX
        for found in pattern.finditer(text, begin, stop):
            if found.start() >= at:
                break
            whole = found if found.end() < stop else pattern.match(text, found.start()) or found
            yield whole
            if whole.end() >= at:
                at = whole.end()
                break


def searched(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer` does, but by searches that are short each."""
    at = 0
    while at < len(text):
        stop = at + _WINDOW
        for found in pattern.finditer(text, at, stop + _MARGIN):
            if found.start() >= stop:
                break
            whole = found if found.end() < stop else pattern.match(text, found.start()) or found
            yield whole
            if whole.end() >= stop:
                stop = whole.end()
                break
        at = stop


def _length_without_punctuation(found: str) -> int:
    """Return the length up to the last character that is no punctuation. A bracket that opens in it may close it."""
    end = len(found)
    open_brackets = {close: found.count(close) - found.count(opening) for close, opening in _BRACKETS.items()}
    while end and (found[end - 1] in _PUNCTUATION or open_brackets.get(found[end - 1], 0) > 0):
        if found[end - 1] in open_brackets:
            open_brackets[found[end - 1]] -= 1
        end -= 1
    return end


# Code and pairs of marks in a text: Markdown, reStructuredText, BBCode, tags, written quotation marks.
# Code is kept. What is between two marks that belong together is translated, and stays between them.


def _pair(name: str, *examples: str, pattern: str | None = None, needs: str = "") -> KeptForm:
    """Return a form whose pattern has two groups, the marks; without one, its marks are found by `pairs`."""
    return KeptForm(
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
    KeptForm(
        name="code between backticks, role or reference: Markdown, reStructuredText",
        kind=Kind.CODE,
        examples=("`os.path.join(a, b)`", "``--force``", ":ref:`guide`", "`the guide`_", "```a b```"),
        pattern=re.compile(
            r"(?<![`\\])(?::[A-Za-z][\w.+\-:]{0,64}:)?(?<!`)(`{1,3}+)(?!`)(?:(?!\1)[^\n]){1,1000}+\1(?!`)(?:__?(?!\w))?"
        ),
        needs="`",
    ),
    KeptForm(
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

MARKS: tuple[KeptForm, ...] = (*LINKS, *CODE, *PAIRS)

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


class _PairedMark(NamedTuple):
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
    """Yield the tags of BBCode that belong together. See `pairs`."""
    return _paired(text, _BBCODE) if "[/" in text else iter(())


def pairs(text: str) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    """Yield the other marks that belong together. Pairs are nested, and none goes over a blank line.

    text: in which a letter stands for each character of what is kept
    """
    return _paired(text, _TOKEN) if any(each in text for each in "*_~<&\\") else iter(())


def _paired(text: str, tokens: re.Pattern[str]) -> Iterator[tuple[ProtectedSpan, ProtectedSpan]]:
    stack, open_ = list[_PairedMark](), Counter[str]()
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


def _tokens(text: str, tokens: re.Pattern[str]) -> Iterator[_PairedMark]:
    """Yield the marks in order. The end of a paragraph has no name."""
    for found in searched(tokens, text):
        (begin, end), kind, mark = found.span(), found.lastgroup, found[0]
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if kind == "end":
            yield _PairedMark(begin, end, "", opens=False, closes=False)
        elif kind == "tag":
            name = _NAME.match(mark)
            if name is not None and not mark.endswith(("/>", "/&gt;")):
                yield _PairedMark(begin, end, f"{mark[0]}{name[2].lower()}", opens=not name[1], closes=bool(name[1]))
        else:
            opens = not after.isspace() and after != "" and not before.isalnum()
            if kind == "mark":
                opens = opens and (after.isalnum() or after in _BEFORE_WORD)
            closes = not before.isspace() and before != "" and not after.isalnum()
            yield _PairedMark(begin, end, mark, opens=opens, closes=closes)


# The whole table of what a translation keeps, for the documentation, the tests and the measurements.

TABLE: tuple[KeptForm, ...] = (*FORMS, *MARKS, *MESSAGES)


def kept_of(example: str) -> list[str]:
    """Return the strings that every translation of an example has, each as often as it is in this list.

    It is the whole example, or the marks and the skeleton of one whose texts inside are translated.
    """
    return [example[begin:end] for begin, end, _ in find_protected(example)]
