"""The words of a speaker that are not translated to the end yet, as sentences. Pure: the caller passes the time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lingon.errors import InvalidRequest
from lingon.language_tags import canonical, primary
from lingon.segments.boundaries import sentences
from lingon.text import normalise, split

WITHOUT_SPACES = frozenset(["zh", "yue", "wuu", "ja", "th", "lo", "km", "my", "bo", "dz"])
"""Languages that put no blanks between words, BCP-47: Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan."""

MOST_CHARACTERS = 64  # of a word
SHOWN = 24  # characters of a word in an error


def word_separator(language: str) -> str:
    """Return what is between two words of a language, BCP-47: a space, or nothing."""
    return "" if primary(canonical(language, "the language")) in WITHOUT_SPACES else " "


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence.

    first: number of its first word, from 0 since the start of the speaker
    text: normalised
    ends: for each word, the number of characters of the text up to its end
    is_complete: whether it has ended, so that no later word belongs to it
    """

    first: int
    text: str
    ends: tuple[int, ...]
    is_complete: bool

    @property
    def end(self) -> int:
        """The number of its last word plus one."""
        return self.first + len(self.ends)

    def word_at(self, character: int) -> int:
        """Return the index of the word that has a character of the text, from 0 in the sentence."""
        return min(bisect_right(self.ends, character), len(self.ends) - 1)


class LiveSource:
    """The open words of a speaker: those that belong to no sentence that was taken.

    first: number of the first of them, from 0 since the start
    late: words that came for sentences that were taken before, since `take_late`
    version: number of changes, so that a caller need not compare words
    is_paused: whether nothing came since the last pause
    """

    def __init__(self, language: str, most_words: int) -> None:
        """language: of the words, BCP-47; most_words: of a sentence, which is ended after so many."""
        self.first = self.late = self.version = 0
        self.is_paused = False
        self._language, self._separator, self._most_words = language, word_separator(language), most_words
        self._words: list[str] = []  # normalised
        self._pauses: list[int] = []  # numbers of words, since the start, after which there is a pause, ascending

    @property
    def count(self) -> int:
        """The number of words since the start."""
        return self.first + len(self._words)

    @property
    def open_words(self) -> int:
        """The number of words that are not taken."""
        return len(self._words)

    def replace(self, begin: int, words: Iterable[str]) -> None:
        """Put words in place of those that have the number `begin` or a higher one.

        Words of sentences that were taken do not change, and are counted as late. A pause after a word that is
        replaced is one no more. Raises InvalidRequest.
        """
        given = list(words)
        if begin > self.count:
            raise InvalidRequest("words.from", f"words.from must be at most {self.count}, got {begin}")
        for index, word in enumerate(given):
            _check(word, index)
        skipped = max(self.first - begin, 0)
        self.late += min(skipped, len(given))
        self.version += 1
        kept = max(begin - self.first, 0)
        self._words[kept:] = map(normalise, given[skipped:])
        self._pauses, self.is_paused = [each for each in self._pauses if each <= begin], False

    def pause(self) -> None:
        """End the sentence of the last word."""
        if self.count > (self._pauses[-1] if self._pauses else self.first):
            self._pauses.append(self.count)
        self.is_paused = True
        self.version += 1

    def take_late(self) -> int:
        """Return the number of late words since the last call."""
        late, self.late = self.late, 0
        return late

    def sentence(self, fits: Callable[[str], bool], begin: int | None = None) -> Sentence:
        """Return the first sentence of the open words. Without words it is empty, and a pause completes it.

        A sentence is complete if the splitter ends it after one of its words and another word stands behind it, if a
        pause ends it, or if it has become too long. An end inside a word is none.

        fits: whether the model reads a normalised text whole; it reads each word
        begin: number of the first word of another sentence, which is the end of a complete one
        """
        first = self.first if begin is None else begin
        if first == self.count:
            return Sentence(first, "", (), is_complete=self.is_paused)
        paused = next((each - first for each in self._pauses if each > first), None)
        last = min(self.count - first if paused is None else paused, self._most_words + 1)
        text, ends = self._text(first - self.first, last)
        count = self._ended(text, ends)
        if count is None and (last > self._most_words or not fits(text)):
            count = self._cut(text, ends, fits)
        is_complete = count is not None or last == paused
        ends = ends[:count]
        return Sentence(first, text[: ends[-1]], tuple(ends), is_complete=is_complete)

    def complete(self, fits: Callable[[str], bool], most: int) -> list[Sentence]:
        """Return the sentences of the open words that are complete, at most so many, in order; fits: see `sentence`."""
        found, begin = list[Sentence](), self.first
        while len(found) < most and begin < self.count and (sentence := self.sentence(fits, begin)).is_complete:
            found.append(sentence)
            begin = sentence.end
        return found

    def take(self, sentence: Sentence) -> None:
        """Remove a sentence, which begins at the first open word."""
        assert sentence.first == self.first, "sentences are taken in order"
        del self._words[: len(sentence.ends)]
        self.first = sentence.end
        self._pauses = [each for each in self._pauses if each > self.first]
        self.version += 1

    def _text(self, begin: int, words: int) -> tuple[str, list[int]]:
        """Return the text of so many words from an index on, and for each the number of characters up to its end."""
        ends, length, open_words = list[int](), 0, self._words[begin : begin + words]
        for word in open_words:
            if word:  # one of invisible characters has no text
                length += len(word) + (len(self._separator) if length else 0)
            ends.append(length)
        return self._separator.join(filter(None, open_words)), ends

    def _ended(self, text: str, ends: list[int]) -> int | None:
        """Return the number of words of the first sentence that has ended before the last word, or None."""
        if not text:
            return None
        for _, end in sentences(text, (0, len(text)), self._language):
            count = bisect_right(ends, end)
            if 0 < count < len(ends) and ends[count - 1] == end:
                return count
        return None

    def _cut(self, text: str, ends: list[int], fits: Callable[[str], bool]) -> int | None:
        """Return the number of words up to the best place to cut a long sentence, or None for one word."""

        def is_short(part: str) -> bool:
            return fits(part) and part.count(" ") < self._most_words

        _, end = next(iter(split(text, is_short)), (0, len(text)))
        count = min(max(bisect_right(ends, end), 1), self._most_words)
        return count if count < len(ends) else None


def _check(word: str, index: int) -> None:
    """Raise InvalidRequest for a word that is empty, too long, or several words."""
    if not word or len(word) > MOST_CHARACTERS:
        raise InvalidRequest(
            "words.words", f"words[{index}].text must have 1 to {MOST_CHARACTERS} characters, got {len(word)}"
        )
    if any(map(str.isspace, word)):
        raise InvalidRequest(
            "words.words", f"words[{index}].text must have no white space inside, got {word[:SHOWN]!r}"
        )
