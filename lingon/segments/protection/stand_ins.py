"""Words that stand for kept strings while a model translates, and the strings put back in their places."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.protection.requests import Restored, Rung
from lingon.segments.protection.sentence import Sentence
from lingon.segments.protection.spans import Kind
from lingon.segments.protection.strings import counts
from lingon.text import normalise

MOST_WORDS = 4  # in one sentence: with each more, the model more often loses one
MOST_SOUGHT = 8  # different strings that are looked for one by one
_ITSELF = frozenset({Kind.NUMBER, Kind.KEEP})  # what a model may translate as it is: names, years
_ALMOST = _ITSELF | {Kind.UNKNOWN}  # what a model may translate as it is without what it cannot read
_LONGEST_ENDING = 2  # letters that a translation may add to a word: Toms, a Londoner car
_UNPLAIN = re.compile(r"[^A-Za-z0-9 .,:'/+-]+")
_GENITIVE = re.compile(r"['’]s(?!\w)")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sentence with a word in place of each kept string.

    source: normalised, as the model gets it
    """

    sentence: Sentence
    words: tuple[str, ...]
    source: str

    @classmethod
    def of(cls, sentence: Sentence, words: Sequence[str]) -> Attempt:
        """Return the sentence with these words, each a word of its own in the text."""
        spaced = []
        for place, word in enumerate(words):
            before, after = sentence.texts[place][-1:], sentence.texts[place + 1][:1]
            spaced.append(" " * before.isalnum() + word + " " * after.isalnum())
        return cls(sentence, tuple(words), normalise(sentence.filled(spaced)))

    def best(self, outputs: Iterable[str]) -> str:
        """Return the translation with the fewest words wrong, then with the fewest letters after them; "" if none."""
        return min(outputs, key=lambda output: (len(self.wrong(output)), self._excess(output)), default="")

    def wrong(self, output: str) -> list[int]:
        """Return the places of the words that are not exactly once in a translation."""
        return [place for place in range(len(self.words)) if not self._is_once(output, place)]

    def restored(self, output: str) -> Restored:
        """Return a translation, in which each word is once, with the kept strings in place of the words.

        An ending that the translation gave to a word goes with it, but for the genitive of one in the sentence.
        """
        found = sorted((self.spans(output, place)[0], place) for place in range(len(self.words)))
        text, kept, at = "", list[Span](), 0
        for (begin, end), place in found:
            string = self.sentence.kept[place].text
            before = output[at:begin]
            if self.sentence.texts[place][-1:].isalnum():
                before = before.removesuffix(" ")
            text += before
            kept.append((len(text), len(text) + len(string)))
            text += string
            ending = _ending(output, end)
            at = end if ending == "s" and self._takes_genitive(place) else end + len(ending)
            at += self.sentence.texts[place + 1][:1].isalnum() and output[at : at + 1] == " "
        return Restored(text + output[at:], tuple(kept), Rung.STAND_IN)

    def spans(self, output: str, place: int) -> list[Span]:
        """Return where a word is in a translation."""
        return [found.span() for found in re.finditer(re.escape(self.words[place]), output)]

    def _is_once(self, output: str, place: int) -> bool:
        spans = self.spans(output, place)
        if len(spans) != 1:
            return False
        ((begin, end),) = spans
        ending = _ending(output, end)
        is_word = not (begin and output[begin - 1].isalnum())
        return is_word and len(ending) <= _LONGEST_ENDING and (not ending or ending.isalpha())

    def _excess(self, output: str) -> int:
        """Return the number of letters that follow words directly."""
        ends = (end for place in range(len(self.words)) for _, end in self.spans(output, place))
        return sum(len(_ending(output, end)) for end in ends)

    def _takes_genitive(self, place: int) -> bool:
        return _GENITIVE.match(self.sentence.texts[place + 1]) is not None


def _ending(output: str, end: int) -> str:
    """Return the letters that follow a word directly."""
    found = re.compile(r"\w*").match(output, end)
    return found[0] if found else ""


def attempts(sentence: Sentence, words: Sequence[str]) -> Iterator[Attempt]:
    """Yield what to try: the strings themselves if a model may know them, then two choices of words.

    words: those that translate to themselves, the surest first. None is taken that the text beside it changes, as a
        combining mark does
    """
    for attempt in _attempts(sentence, words):
        if all(word in attempt.source for word in attempt.words):
            yield attempt


def _attempts(sentence: Sentence, words: Sequence[str]) -> Iterator[Attempt]:
    kept = [each.text for each in sentence.kept]
    kinds = frozenset[Kind]().union(*(each.kinds for each in sentence.kept))
    if kinds <= _ITSELF and len(set(kept)) == len(kept):
        yield Attempt.of(sentence, [normalise(each) for each in kept])
    elif kinds <= _ALMOST and all(plain := [_plain(each) for each in kept]) and len(set(plain)) == len(plain):
        yield Attempt.of(sentence, plain)
    usable = usable_words(sentence, words)
    if kinds == {Kind.NUMBER}:
        usable = [word for word in usable if word.isdigit()] or usable
    chosen, rest = usable[: len(kept)], usable[len(kept) :]
    if len(chosen) == len(kept):
        yield Attempt.of(sentence, chosen)
        if len(kept) > 1:
            yield Attempt.of(sentence, [*chosen[1:], chosen[0]])
        elif rest:
            yield Attempt.of(sentence, rest[:1])


def _plain(kept: str) -> str:
    """Return what any model may read of a string: its letters without accents, its figures without signs beside them.

    Nguyễn becomes Nguyen, "~5" becomes "5", "20 m²" becomes "20 m"; "" if letters would be lost, or nothing is left.
    """
    bare = "".join(each for each in unicodedata.normalize("NFD", kept) if not unicodedata.combining(each))
    if any(each.isalpha() and not each.isascii() for each in bare):
        return ""
    found = normalise(_UNPLAIN.sub("", bare)).strip(" .,:'/+")
    return found if len(found) > 1 or found.isdigit() else ""


def usable_words(sentence: Sentence, words: Sequence[str]) -> list[str]:
    """Return the words that are not in the sentence, and of which none is in another."""
    text, usable = sentence.text.casefold(), list[str]()
    for word in words:
        if word.casefold() not in text and not any(word in other or other in word for other in usable):
            usable.append(word)
            if len(usable) > MOST_WORDS:
                break
    return usable


def counts_hold(source: str, target: str, strings: Iterable[str]) -> bool:
    """Whether each string is in both texts as often."""
    different = [*dict.fromkeys(strings)]
    if len(different) <= MOST_SOUGHT:
        return all(source.count(string) == target.count(string) for string in different)
    return counts(source, different) == counts(target, different)
