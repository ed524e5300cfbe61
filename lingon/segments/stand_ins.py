"""Words that stand for kept strings while a model translates, and the strings put back where they are."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import FIGURE
from lingon.segments.protection import counts
from lingon.segments.sentence import KeptString, Means, Restored, SplitSentence
from lingon.text import normalise

MOST_WORDS = 4  # in one sentence: with each more, the model more often loses one
MOST_SOUGHT = 8  # different strings that are looked for one by one
_YEARS: tuple[str, ...] = "1990", "2005", "1994", "2003", "1985", "2010", "1993", "2001"
_HOURS: tuple[str, ...] = "11", "8", "9", "7", "6", "10"
_QUANTITIES: tuple[str, ...] = (
    "25",
    "40",
    "60",
    "30",
    "70",
    "80",
    "50",
    "90",
)  # for which models hardly ever write words
_ALIKE = ((re.compile(r"[12]\d{3}"), _YEARS), (re.compile(r"\d{1,2}:\d\d(?::\d\d)?"), _HOURS))
_LONGEST_ENDING = 2  # letters that a translation may add to a word: Toms, a Londoner car
_UNPLAIN = re.compile(r"[^A-Za-z0-9 .,:'/+-]+")
_GENITIVE = re.compile(r"['’]s(?!\w)")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sentence with a word in place of each kept string.

    source: normalised, as the model gets it
    """

    sentence: SplitSentence
    words: tuple[str, ...]
    source: str

    @classmethod
    def of(cls, sentence: SplitSentence, words: Sequence[str]) -> Attempt:
        """Return the sentence with these words, each a word of its own in the text."""
        spaced = []
        for position, word in enumerate(words):
            before, after = sentence.texts[position][-1:], sentence.texts[position + 1][:1]
            spaced.append(" " * before.isalnum() + word + " " * after.isalnum())
        return cls(sentence, tuple(words), normalise(sentence.filled(spaced)))

    def best(self, outputs: Iterable[str]) -> str:
        """Return the translation with the fewest words wrong, then with the fewest letters after them, or "" if
        none.
        """
        return min(outputs, key=lambda output: (len(self.wrong(output)), self._excess(output)), default="")

    def wrong(self, output: str) -> list[int]:
        """Return the positions of the words that are not exactly once in a translation."""
        return [position for position in range(len(self.words)) if not self._is_once(output, position)]

    def restored(self, output: str) -> Restored:
        """Return a translation, in which each word is once, with the kept strings in place of the words.

        An ending that the translation gave to a word goes with it, but for the genitive of one in the sentence.
        """
        found = sorted((self.spans(output, position)[0], position) for position in range(len(self.words)))
        text, kept, at = "", list[Span](), 0
        for (begin, end), position in found:
            own = self.sentence.kept[position]
            string = output[begin:end] if own.is_figure and self.words[position] == own.text else own.text
            before = output[at:begin]
            if self.sentence.texts[position][-1:].isalnum():
                before = before.removesuffix(" ")
            text += before
            if not own.is_figure:
                kept.append((len(text), len(text) + len(string)))
            text += string
            ending = _ending(output, end)
            at = end if ending == "s" and self._takes_genitive(position) else end + len(ending)
            at += self.sentence.texts[position + 1][:1].isalnum() and output[at : at + 1] == " "
        return Restored(text + output[at:], tuple(kept), Means.STAND_IN)

    def spans(self, output: str, position: int) -> list[Span]:
        """Return where a word is in a translation; a number in figures of any script, and not within another one."""
        own, word = self.sentence.kept[position], self.words[position]
        found = _spans(word, output)
        if not found and own.written and word == normalise(own.text):
            found = _spans(own.written, output)
        return found

    def place_in_source(self, position: int) -> Span:
        """Return where the word of a position is in the source."""
        return _spans(self.words[position], self.source)[0]

    def _is_once(self, output: str, position: int) -> bool:
        spans = self.spans(output, position)
        if len(spans) != 1:
            return False
        ((begin, end),) = spans
        ending = _ending(output, end)
        if self.words[position][-1].isdigit() and ending and output[begin:end].isascii():
            return False
        is_word = not (begin and output[begin - 1].isalnum())
        return is_word and len(ending) <= _LONGEST_ENDING and (not ending or ending.isalpha())

    def _excess(self, output: str) -> int:
        """Return the number of letters that follow words directly."""
        ends = (end for position in range(len(self.words)) for _, end in self.spans(output, position))
        return sum(len(_ending(output, end)) for end in ends)

    def _takes_genitive(self, position: int) -> bool:
        return _GENITIVE.match(self.sentence.texts[position + 1]) is not None


def _spans(word: str, text: str) -> list[Span]:
    if word[0].isdigit() and word[-1].isdigit():
        return [found.span() for found in _number(word).finditer(text.translate(_FIGURES))]
    return [found.span() for found in re.finditer(re.escape(word), text)]


class _Figures(dict[int, str]):
    """The figures of all scripts as those of ASCII, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        digit = unicodedata.decimal(chr(code), None)
        self[code] = chr(code) if digit is None else str(digit)
        return self[code]


_FIGURES = _Figures()


def _number(word: str) -> re.Pattern[str]:
    """Return what finds a number that is no part of a longer one."""
    return re.compile(rf"(?<!\d)(?<!\d[.,:]){re.escape(word)}(?!\d|[.,:]\d)")


def _ending(output: str, end: int) -> str:
    """Return the letters that follow a word directly."""
    found = re.compile(r"\w*").match(output, end)
    return found[0] if found else ""


def attempts(sentence: SplitSentence, words: Sequence[str]) -> Iterator[Attempt]:
    """Yield what to try: the strings themselves if a model may know them, then two choices of words.

    words: those that translate to themselves, the surest first. None is taken that the text beside it changes, as a
        combining mark does
    """
    for attempt in _attempts(sentence, words):
        if all(_spans(word, attempt.source) for word in attempt.words):
            yield attempt


def _attempts(sentence: SplitSentence, words: Sequence[str]) -> Iterator[Attempt]:
    usable, tried = usable_words(sentence, words), list[list[str]]()
    own = [_own_word(each) for each in sentence.kept]
    figures = [normalise(each.text) if each.is_figure else "" for each in sentence.kept]
    none = [""] * len(own)
    for known, turn in ((own, 0), (figures, 0), (none, 0), (none, 1)):
        kept = [word for word in known if word]
        chosen = _chosen(sentence, usable, known, turn) if len(set(kept)) == len(kept) else None
        if chosen and chosen not in tried:
            tried.append(chosen)
            yield Attempt.of(sentence, chosen)


def _chosen(sentence: SplitSentence, words: Sequence[str], known: Sequence[str], turn: int) -> list[str] | None:
    """Return a word for each kept string, or None if there are too few.

    words: to take from in their order. For a number there is another number of its kind
    known: what stands for a string as the model may read it, or "" for a word or a number
    turn: how many of the words come last instead of first
    """
    pools = {numbers: iter(_usable_numbers(sentence, numbers, turn)) for numbers in (_YEARS, _HOURS, _QUANTITIES)}
    names, chosen = iter([*words[turn:], *words[:turn]]), list[str]()
    for each, own in zip(sentence.kept, known, strict=True):
        word = own or None
        if word is None and each.is_number:
            word = next(pools[_alike(each.text)], None)
        word = word or next(names, None)
        if word is None:
            return None
        chosen.append(word)
    return chosen


def _own_word(kept: KeptString) -> str:
    """Return what a model may read of a string and translate as it is, or "" if it would not."""
    return normalise(kept.text) if kept.is_itself else _plain(kept.text) if kept.is_almost_itself else ""


def _plain(kept: str) -> str:
    """Return what any model may read of a string: its letters without accents, its figures without signs beside them.

    Nguyễn becomes Nguyen, "~5" becomes "5", "20 m²" becomes "20 m", or "" if letters would be lost, or nothing is left.
    """
    bare = "".join(each for each in unicodedata.normalize("NFD", kept) if not unicodedata.combining(each))
    if any(each.isalpha() and not each.isascii() for each in bare):
        return ""
    found = normalise(_UNPLAIN.sub("", bare)).strip(" .,:'/+")
    return found if len(found) > 1 or found.isdigit() else ""


def _alike(number: str) -> tuple[str, ...]:
    """Return the numbers that can stand for a number in its sentence."""
    return next((numbers for pattern, numbers in _ALIKE if pattern.fullmatch(number)), _QUANTITIES)


def _usable_numbers(sentence: SplitSentence, numbers: Sequence[str], turn: int) -> list[str]:
    """Return the numbers that are not in a sentence."""
    text = sentence.text
    return [number for number in (*numbers[turn:], *numbers[:turn]) if not _number(number).search(text)]


def usable_words(sentence: SplitSentence, words: Sequence[str]) -> list[str]:
    """Return the words that are not in the sentence, and of which none is in another."""
    text, usable = sentence.text.casefold(), list[str]()
    for word in words:
        if word.casefold() not in text and not any(word in other or other in word for other in usable):
            usable.append(word)
            if len(usable) > MOST_WORDS:
                break
    return usable


def lacks_figures(source: str, target: str) -> bool:
    """Return whether a translation lacks a small number of its source, which may be there in the figures of any
    script.
    """
    wanted = _figures(source)
    return bool(wanted) and not Counter(wanted) <= figures_of(target)


def figures_of(text: str) -> Counter[str]:
    """Return the small numbers of a text, and how often each is there."""
    return Counter(_figures(text))


def _figures(text: str) -> list[str]:
    return FIGURE.findall(text if text.isascii() else text.translate(_FIGURES))


def counts_hold(source: str, target: str, strings: Iterable[str]) -> bool:
    """Return whether each string is in both texts as often. A figure, which may stand in a date, in the target at least
    so.
    """
    different = [*dict.fromkeys(strings)]
    figures = [string for string in different if FIGURE.fullmatch(string)]
    if figures:
        different = [string for string in different if not FIGURE.fullmatch(string)]
        before, after = figures_of(source), figures_of(target)
        if any(after[string] < before[string] for string in figures):
            return False
    if len(different) <= MOST_SOUGHT:
        return all(source.count(string) == target.count(string) for string in different)
    return counts(source, different) == counts(target, different)
