"""A sentence as the texts to translate and the strings between them that are kept, with what is asked and answered."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias, cast

from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import DIVIDING, Kind, ProtectedSpan, merge
from lingon.text import to_nfc
from lingon.translation.v1 import translation_pb2 as pb

# Numbers with the separators of one language, written with those of another. Their figures stay.

_SPACES = " \u00a0\u2009\u202f"


@dataclass(frozen=True)
class Separators:
    """What a language writes between thousands, and before decimals: one character each."""

    group: str
    decimal: str


@dataclass(frozen=True)
class Custom:
    """How numbers of one language are written in another.

    What is no single number in groups of three figures or with decimals stays as it is: dates, times, versions.
    """

    source: Separators
    target: Separators

    def written(self, text: str) -> str:
        """Return a text, which has only numbers, with the separators of the target language."""
        return self._number.sub(self._changed, text)

    def _changed(self, found: re.Match[str]) -> str:
        whole, decimals = found["whole"], found["decimals"]
        groups = re.split(r"\D", whole)
        return self.target.group.join(groups) + (self.target.decimal + decimals if decimals else "")

    @cached_property
    def _number(self) -> re.Pattern[str]:
        groups = re.escape(self.source.group) + (_SPACES if self.source.group in _SPACES else "")
        decimal = re.escape(self.source.decimal)
        return re.compile(
            rf"(?<![\w.,:/'\u2019\-\u2010\u2011])(?P<whole>\d{{1,3}}+(?P<group>[{groups}])\d\d\d(?:(?P=group)\d\d\d)*+|\d++)"
            rf"(?:{decimal}(?P<decimals>\d++))?+(?![.,:/'\u2019]?\d|[\-\u2010\u2011]\d)"
        )


# What the steps of a sentence ask their caller for, and what they return.

SpanLink = tuple[Span, Span]


@dataclass(frozen=True, slots=True)
class TranslateStep:
    """A request for translations of a normalised text, best first: one or more strings that begin with the prefix.

    forced, forbidden: words that each translation has, as far as the search finds a place for them, and has not
    annotated: what the model reads instead of the text: the text with the targets of terms, see `lingon.terms`
    """

    text: str
    prefix: str = ""
    forced: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    annotated: str = ""


@dataclass(frozen=True, slots=True)
class Align:
    """A request for links between two normalised texts: pairs of a source span and a target span, in code points."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Score:
    """A request for what the model thinks of translations of a normalised text, which are normalised too.

    It costs a run of the scorer for each, but none for a translation that the model has written for this text.

    attention: whether it is needed
    """

    source: str
    targets: tuple[str, ...]
    attention: bool = True


@dataclass(frozen=True, slots=True)
class Weigh:
    """A request for what the model thinks of begins of translations of a normalised text, which are normalised too.

    Each costs a short greedy search.
    """

    source: str
    begins: tuple[str, ...]


class ScoredTarget(NamedTuple):
    """What the model thinks of a translation, or of the begin of one.

    score: as of a hypothesis: the log-probability of all tokens, the end token included, with the length penalty; 0 for
        a begin
    spans: of its tokens in the translation, without the end token
    log_probs: of these tokens
    sources: the spans of the tokens of the source
    attention: (target tokens, source tokens), how much each pays to each; None if the model has no alignment, or if
        it was not asked for
    """

    score: float
    spans: Sequence[Span]
    log_probs: Sequence[float]
    sources: Sequence[Span]
    attention: Sequence[Sequence[float]] | None


SentenceRequest: TypeAlias = TranslateStep | Align | Score | Weigh
SentenceAnswer: TypeAlias = Sequence[str] | Sequence[SpanLink] | Sequence[ScoredTarget]
SentenceOutput: TypeAlias = tuple[TranslateStep, str]
"""One of the translations that answered a request."""


class Means(IntEnum):
    """How the protected spans of a sentence came into its translation. A sentence has the last one that it needed."""

    NONE = 0  # there are none, or the model never saw them
    STAND_IN = 1  # the model translated the sentence with words instead of them, or with the strings themselves
    PLACED = 2  # a prefix forced a word instead of one
    SPLIT = 3  # the sentence was split there, and its parts were translated apart


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation with the protected strings in it.

    kept: where they are in the text
    lowered: of a sentence in capitals: how the model read and wrote it
    outputs: what it is made of. An output that was asked for and not used is not among them
    terms: how the terms in the texts that the model read came into these outputs, in the order of the outputs
    is_guided: whether it begins as an earlier translation, see `memory_steps`
    """

    text: str
    kept: tuple[Span, ...] = ()
    means: Means = Means.NONE
    lowered: Lowered | None = None
    outputs: tuple[SentenceOutput, ...] = field(default=(), compare=False)
    terms: tuple[TermUse, ...] = field(default=(), compare=False)
    is_guided: bool = field(default=False, compare=False)


class TermUse(NamedTuple):
    """How a term came into an output. number: that of the term in its sentence, see `SentenceTerms`."""

    number: int
    means: pb.TermMeans.ValueType


@dataclass(frozen=True, slots=True)
class Lowered:
    """A sentence in capitals in lower case, with what is kept of it, and its translation before it was raised."""

    source: str
    spans: Sequence[ProtectedSpan]
    translation: Restored


SentenceSteps: TypeAlias = Generator[SentenceRequest, SentenceAnswer, Restored]


def translations(request: TranslateStep) -> Generator[SentenceRequest, SentenceAnswer, Sequence[str]]:
    """Ask for translations."""
    return cast(Sequence[str], (yield request))


def links(request: Align) -> Generator[SentenceRequest, SentenceAnswer, Sequence[SpanLink]]:
    """Ask for links."""
    return cast(Sequence[SpanLink], (yield request))


def scores(request: Score) -> Generator[SentenceRequest, SentenceAnswer, Sequence[ScoredTarget]]:
    """Ask for what the model thinks of translations: one answer for each, or none if it cannot read one of them."""
    return cast("Sequence[ScoredTarget]", (yield request))


def weights(request: Weigh) -> Generator[SentenceRequest, SentenceAnswer, Sequence[ScoredTarget]]:
    """Ask for what the model thinks of begins: one answer for each, or none if it cannot read one of them."""
    return cast("Sequence[ScoredTarget]", (yield request))


def joined(*parts: Restored | str) -> Restored:
    """Return parts of a translation as one. A string has nothing that is kept."""
    text, kept, means, outputs = "", list[Span](), Means.NONE, list[SentenceOutput]()
    for part in parts:
        restored = Restored(part) if isinstance(part, str) else part
        kept += [(len(text) + begin, len(text) + end) for begin, end in restored.kept]
        text, means = text + restored.text, max(means, restored.means)
        outputs += restored.outputs
    return Restored(text, tuple(kept), means, outputs=tuple(outputs))


# A sentence as the texts to translate and the strings between them that are kept.

_PAIRS = dict(zip("([{\"'“„‚‘«‹", ")]}\"'”“‘’»›", strict=True))
_BRACKETS = "(["
_SIGNS = {Kind.EMOJI, Kind.LINE, Kind.OPENING, Kind.CLOSING}  # that are no words; a mark comes here without its other
_LOOSE = _SIGNS | {Kind.TAG, Kind.SIGN}  # words that touch them are translated
_NUMBERS = frozenset({Kind.NUMBER, Kind.FIGURE})
_ITSELF = _NUMBERS | {Kind.KEEP}
_ALMOST = _ITSELF | {Kind.UNKNOWN}
_UNREADABLE = re.compile(r"[^\w.,:/%\-' ]|[^\W\d_]\d|\d[^\W\d_]", re.ASCII)  # in a number: most models write others
_MOST_PAIRS = 16  # brackets or quotation marks around a span, on each side; spans in a run of them share no more
_SPACELESS = "\u0e00"  # scripts from here on have no blanks between words: Thai, Chinese, Japanese
_LONGEST_WORD = 4  # characters of a word in such a script, mostly
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_ALONE = re.compile(r"[:=→|]\s*\Z")  # what follows it at the end of a sentence is no part of its grammar


@dataclass(frozen=True, slots=True)
class KeptString:
    """A string that is kept.

    text: the protected spans and what is between them
    kinds: of the protected spans
    written: a number as the target language writes it, which a translation may have instead, empty if it is the same
    """

    text: str
    kinds: frozenset[Kind]
    written: str = ""

    @property
    def is_apart(self) -> bool:
        """Whether it is no word of a sentence, so that at an end of one the model need not see it."""
        return self.kinds <= _SIGNS or self.text[0] in _BRACKETS or self._is_mark

    @property
    def _is_mark(self) -> bool:
        """Whether it is the mark of an item that the model cannot read, such as ①: neither a word nor a number."""
        return self.kinds == {Kind.UNKNOWN} and not any(each.isalpha() or each.isdecimal() for each in self.text)

    @property
    def divides(self) -> bool:
        """Whether the texts on both sides are translated apart."""
        return not self.kinds.isdisjoint(DIVIDING)

    @property
    def is_number(self) -> bool:
        """Whether it is a number or several, for which another number can stand."""
        return self.kinds <= _NUMBERS

    @property
    def is_itself(self) -> bool:
        """Whether a model may translate it as it is: a name, a year, a number."""
        return self.kinds <= _ITSELF and not (self.is_number and _UNREADABLE.search(self.text))

    @property
    def is_almost_itself(self) -> bool:
        """Whether a model may translate it as it is without the characters that it cannot read."""
        return Kind.UNKNOWN in self.kinds and self.kinds <= _ALMOST

    @property
    def is_figure(self) -> bool:
        """Whether it is no more than a small number, which is not counted as a kept string."""
        return self.kinds == {Kind.FIGURE}


@dataclass(frozen=True, slots=True)
class SplitSentence:
    """Texts and what is kept between them, alternately: there is one more text than kept strings."""

    texts: tuple[str, ...]
    kept: tuple[KeptString, ...]

    @classmethod
    def of(cls, text: str, spans: Sequence[ProtectedSpan], custom: Custom | None = None) -> SplitSentence:
        """Return a sentence of a text with its protected spans; custom: how its translation writes numbers.

        A span grows over the letters and figures that touch it and over brackets and quotation marks around it. Spans
        with neither letter nor figure between them become one.
        """
        groups: list[list[ProtectedSpan]] = []
        for span in merge(_grown(text, spans)):
            if groups and not has_words(text[groups[-1][-1].end : span.begin]):
                groups[-1].append(span)
            else:
                groups.append([span])
        ends = [0, *chain.from_iterable((group[0].begin, group[-1].end) for group in groups), len(text)]
        texts = tuple(text[begin:end] for begin, end in zip(ends[::2], ends[1::2], strict=True))
        kept = tuple(
            KeptString(text[group[0].begin : group[-1].end], frozenset(span.kind for span in group)) for group in groups
        )
        return cls(texts, kept if custom is None else tuple(_with_custom(each, custom) for each in kept))

    @property
    def text(self) -> str:
        """The whole sentence."""
        return self.filled([each.text for each in self.kept])

    def filled(self, strings: Sequence[str]) -> str:
        """Return the sentence with other strings in place of the kept ones."""
        return "".join(chain.from_iterable(zip_longest(self.texts, strings, fillvalue="")))

    def before(self, position: int) -> SplitSentence:
        """Return what is before a kept string."""
        return SplitSentence(self.texts[: position + 1], self.kept[:position])

    def after(self, position: int) -> SplitSentence:
        """Return what is after a kept string."""
        return SplitSentence(self.texts[position + 1 :], self.kept[position + 1 :])

    def stripped(self, left: str, right: str) -> tuple[str, SplitSentence, str]:
        """Return the characters of `left` at the begin, the sentence without both, and those of `right` at the end."""
        first = self.texts[0].lstrip(left)
        texts = (first, *self.texts[1:])
        last = texts[-1].rstrip(right)
        before = self.texts[0][: len(self.texts[0]) - len(first)]
        return before, SplitSentence((*texts[:-1], last), self.kept), texts[-1][len(last) :]

    def edge(self) -> int | None:
        """Return the position of a kept string at the begin or the end of the sentence that no grammar needs."""
        if not self.kept:
            return None
        if not has_words(self.texts[0]) and self.kept[0].is_apart:
            return 0
        last = len(self.kept) - 1
        if not has_words(self.texts[-1]) and (self.kept[last].is_apart or _ALONE.search(self.texts[-2])):
            return last
        return None

    def divider(self) -> int | None:
        """Return the position of a kept string whose sides are translated apart: the middle one, as they are cut
        again.
        """
        positions = [position for position, kept in enumerate(self.kept) if kept.divides]
        return positions[len(positions) // 2] if positions else None


def _with_custom(kept: KeptString, custom: Custom) -> KeptString:
    written = custom.written(kept.text) if kept.is_number else kept.text
    return kept if written == kept.text else replace(kept, written=written)


def has_words(text: str) -> bool:
    """Return whether a text has a letter or a figure."""
    return any(map(str.isalnum, text))


class _Runs:
    """The runs of a kind of character in a text. The last one is remembered, so that many spans in it read it once."""

    def __init__(self, text: str, belongs: Callable[[str], bool]) -> None:
        self._text, self._belongs = text, belongs
        self._last: Span = 0, 0

    def around(self, position: int) -> Span | None:
        """Return the run that a position is in, or None if the character there is of another kind, or there is none."""
        begin, end = self._last
        if begin <= position < end:
            return self._last
        if not (0 <= position < len(self._text) and self._belongs(self._text[position])):
            return None
        begin, end = position, position + 1
        while begin and self._belongs(self._text[begin - 1]):
            begin -= 1
        while end < len(self._text) and self._belongs(self._text[end]):
            end += 1
        self._last = begin, end
        return self._last


def _grown(text: str, spans: Sequence[ProtectedSpan]) -> Iterator[ProtectedSpan]:
    """Yield each span with the rest of its word, and with the brackets or quotation marks around it.

    spans: in order and without overlap
    """
    words, marks = _Runs(text, _in_word), _Runs(text, _is_mark)
    for span in spans:
        begin, end, kind = span
        if kind not in DIVIDING and kind is not Kind.FIGURE:
            if kind not in _LOOSE:
                begin = (words.around(begin - 1) or span)[0]
                end = (words.around(end) or span)[1]
            end = (marks.around(end) or (begin, end))[1]  # the marks of the last character
            least = begin - _MOST_PAIRS
            while max(least, 0) < begin and end < len(text) and _PAIRS.get(text[begin - 1], "") == text[end]:
                begin, end = begin - 1, end + 1
        yield ProtectedSpan(begin, end, kind)


def _is_mark(character: str) -> bool:
    """Return whether a character is written on the one before it."""
    return unicodedata.combining(character) > 0


def _in_word(character: str) -> bool:
    """Return whether words of this character's script have spaces between them. Those of Thai and of later blocks have
    not.
    """
    return character < _SPACELESS and (character.isalnum() or _is_mark(character))


def kept_spans(text: str, spans: Sequence[ProtectedSpan]) -> list[Span]:
    """Return where what `kept_strings` returns is in a sentence."""
    sentence, found, at = SplitSentence.of(text, spans), list[Span](), 0
    for before, kept in zip(sentence.texts, sentence.kept, strict=False):
        found.append((at + len(before), at + len(before) + len(kept.text)))
        at = found[-1][1]
    return found


def kept_strings(text: str, spans: Sequence[ProtectedSpan]) -> list[str]:
    """Return what is kept of a sentence. Spans with neither letter nor figure between them are one string."""
    return [kept.text for kept in SplitSentence.of(text, spans).kept]


def leaves_words(text: str, spans: Sequence[ProtectedSpan]) -> bool:
    """Return whether a sentence, or several words of it, stay in their language because the model cannot read them.

    One word that is kept in a sentence is none: it is mostly a name.
    """
    sentence = SplitSentence.of(text, spans)
    unread = [words for each in sentence.kept if Kind.UNKNOWN in each.kinds and (words := _words(each.text))]
    if unread and not any(map(has_words, sentence.texts)):
        return True
    return any(len(words) > 1 and not all(map(_is_latin_name, words)) for words in unread)


def _words(text: str) -> list[str]:
    """Return the words of two letters and more. Where words have no blanks, as many as there are in a usual text."""
    found = list[str]()
    for word in _LETTERS.findall(to_nfc(text)):
        spaceless = sum(each >= _SPACELESS for each in word)
        found += [word] * max(spaceless // _LONGEST_WORD + bool(spaceless % _LONGEST_WORD), 1)
    return found


def _is_latin_name(word: str) -> bool:
    return word[0].isupper() and all(unicodedata.name(each, "").startswith("LATIN") for each in word)
