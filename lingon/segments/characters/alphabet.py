"""The characters that a model reads, found out by its tokenizer when a text first has them."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable, Mapping

from lingon.segments.characters.twins import depends_on_neighbours, says_more, twins_of
from lingon.text import is_invisible, normalise

REMEMBERED = 2**14  # strings that are tried, and twins of characters with marks
MOST = 2**18  # characters that are remembered; Unicode has some 150,000
LONGEST = 64  # characters of a string that is tried

LETTER, MARK, SIGN, TWIN_LETTER, TWIN_SIGN = "\x01", "\x02", "\x03", "\x04", "\x05"
"""What stands for a character that is not read, see `Alphabet.mask`; `normalise` removes these from every text.

LETTER: a letter or a figure without a twin, that is in no piece
MARK: a mark, which is written on the character before it
SIGN: any other character that has to be looked at with its neighbours
TWIN_LETTER, TWIN_SIGN: a letter or a figure, or another character, that has the same twin whatever is beside it
"""

_OTHERS = dict.fromkeys(map(ord, (LETTER, MARK, SIGN, TWIN_LETTER, TWIN_SIGN)), " ")


class Alphabet:
    """What a model reads. Nothing is known before the first text; what was found out is remembered."""

    def __init__(self, reads: Callable[[str], bool], pieces: Iterable[str] = (), *, by_words: bool = False) -> None:
        """reads: whether the model reads a normalised text as it is, without bytes and unknown pieces.

        pieces: of its vocabulary
        by_words: whether it may not read a word of which it reads each character, as with pieces that end a word
        """
        self.by_words, self._reads_whole, self._pieces = by_words, reads, pieces
        self._reads = functools.lru_cache(REMEMBERED)(reads)
        self._twin = functools.lru_cache(REMEMBERED)(self._found_twin)
        self._known = {" ", "\n", "\t"}
        self._lacking: dict[str, tuple[str, str | None]] = {}
        self._losing = set[str]()  # characters that the tokenizer may read as something that says less

    def knows(self, text: str) -> bool:
        """Whether it is certain, at a glance, that the model reads a text."""
        return not self.by_words and self._known.issuperset(text)

    def lacking(self, text: str) -> Mapping[str, str]:
        """Return what stands in a mask for the characters of a text that the model does not read alone."""
        if self._known.issuperset(text):
            return {}
        found = dict[str, str]()
        for each in set(text) - self._known:
            entry = self._lacking.get(each)
            if entry is None:
                if self._is_known(each):
                    self._known.add(each)
                    continue
                if len(self._lacking) >= MOST:
                    self._lacking.clear()
                entry = self._lacking[each] = self._kind(each)
            found[each] = entry[0]
        return found

    def twins(self, characters: Iterable[str]) -> dict[int, str]:
        """Return the twins of those of these characters that have one in any place, as `str.translate` takes them."""
        entries = ((each, self._lacking.get(each)) for each in characters)
        return {ord(each): entry[1] for each, entry in entries if entry is not None and entry[1] is not None}

    def reads(self, text: str) -> bool:
        """Whether the model reads a short text; False for one that is not short."""
        return len(text) <= LONGEST and self._losing.isdisjoint(text) and self._reads(normalise(text))

    def reads_sentence(self, text: str) -> bool:
        """Whether the model reads a sentence of characters that it reads."""
        return not self.by_words or self._reads_whole(normalise(text))

    def twin(self, unit: str, before: str, after: str) -> str | None:
        """Return the string that the model reads in the place of a character with its marks; None if there is none.

        before, after: the characters beside it; empty at an end of the text
        """
        return self._twin(unit, _alike(before), _alike(after)) if len(unit) <= LONGEST else None

    @functools.cached_property
    def _in_pieces(self) -> frozenset[str]:
        """The characters of all pieces."""
        return frozenset().union(*self._pieces)

    def _is_known(self, character: str) -> bool:
        """Whether a character is read as it is, or not at all by any model."""
        if character.isspace() or is_invisible(character):
            return True
        if says_more(character) and character not in self._in_pieces:
            self._losing.add(character)
            return False
        return self._reads_whole(normalise(character))

    def _kind(self, character: str) -> tuple[str, str | None]:
        """Return what stands for a character that is not read, and its twin if its neighbours do not matter."""
        if is_mark(character):
            return MARK, None
        if depends_on_neighbours(character):
            return SIGN, None
        twin = self._found_twin(character, "", "")
        if twin is not None:
            return TWIN_LETTER if character.isalnum() else TWIN_SIGN, twin
        is_letter = character.isalpha() and character not in self._in_pieces and not "\u1100" <= character <= "\u11ff"
        return (LETTER if is_letter else SIGN), None

    def _found_twin(self, unit: str, before: str, after: str) -> str | None:
        for twin in twins_of(unit, before, after):
            written = "".join(each if self.reads(each) else self._plain(each) for each in twin)
            if not twin or (written and self.reads(written)):
                return written
        return None

    def _plain(self, character: str) -> str:
        """Return the first twin of a character of a twin that is read, the character itself if there is none."""
        return next((twin for twin in twins_of(character, "", "") if twin and self.reads(twin)), character)


def mask(text: str, lacking: Mapping[str, str]) -> str:
    """Return a text of the same length with what stands for each character that is not read."""
    return text.translate({**_OTHERS, **{ord(each): kind for each, kind in lacking.items()}})


def is_mark(character: str) -> bool:
    """Whether a character is written on the one before it."""
    return character > "\u02ff" and unicodedata.category(character)[0] == "M"


def _alike(character: str) -> str:
    """Return a character that has the same twins beside it: a letter, a figure, or none for all others."""
    return "a" if character.isalpha() else "1" if character.isalnum() else ""
