"""The characters that a model reads, found out by its tokenizer when a text first has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from lingon.segments.characters.twins import twins_of
from lingon.text import is_invisible, normalise

REMEMBERED = 2**14  # strings that are not read, and twins
LONGEST = 64  # characters of a string that is tried
NONE: frozenset[str] = frozenset()


class Alphabet:
    """What a model reads.

    Nothing is known before the first text. A character that is read is remembered: there are at most as many as the
    vocabulary and its normalisation know.
    """

    def __init__(self, reads: Callable[[str], bool], *, by_words: bool = False) -> None:
        """reads: whether the model reads a normalised text as it is, without bytes and unknown pieces.

        by_words: whether it may not read a word of which it reads each character, as with pieces that end a word
        """
        self.by_words, self._reads_whole = by_words, reads
        self._reads = functools.lru_cache(REMEMBERED)(reads)
        self._twin = functools.lru_cache(REMEMBERED)(self._found_twin)
        self._known = {" ", "\n", "\t"}

    def lacking(self, text: str) -> AbstractSet[str]:
        """Return the characters of a text that the model does not read when they stand alone."""
        if self._known.issuperset(text):
            return NONE
        for each in set(text) - self._known:
            if each.isspace() or is_invisible(each) or self.reads(each):
                self._known.add(each)
        return set(text) - self._known

    def reads(self, text: str) -> bool:
        """Whether the model reads a short text; False for one that is not short."""
        return len(text) <= LONGEST and self._reads(normalise(text))

    def reads_sentence(self, text: str) -> bool:
        """Whether the model reads a sentence of characters that it reads."""
        return not self.by_words or self._reads_whole(normalise(text))

    def twin(self, unit: str, before: str, after: str) -> str | None:
        """Return the string that the model reads in the place of a character with its marks; None if there is none.

        before, after: the characters beside it; empty at an end of the text
        """
        return self._twin(unit, before, after) if len(unit) <= LONGEST else None

    def _found_twin(self, unit: str, before: str, after: str) -> str | None:
        for twin in twins_of(unit, before, after):
            written = "".join(each if self.reads(each) else self._plain(each) for each in twin)
            if not twin or (written and self.reads(written)):
                return written
        return None

    def _plain(self, character: str) -> str:
        """Return the first twin of a character of a twin that is read, the character itself if there is none."""
        return next((twin for twin in twins_of(character, "", "") if twin and self.reads(twin)), character)
