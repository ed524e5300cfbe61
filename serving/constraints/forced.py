"""Forced words: which ones a translation has, and which tokens bring in the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lingon.serving.constraints.automaton import ROOT, Automaton
from lingon.serving.constraints.pieces import Pieces


class ForcedProgress(NamedTuple):
    """How far a translation has come.

    words: the state of the automaton
    met: the words that its text has, one bit each
    current, taken: the translation ends with the first `taken` tokens of word `current`
    committed: whether the word has to be completed before anything else
    """

    words: int = ROOT
    met: int = 0
    current: int = 0
    taken: int = 0
    committed: bool = False


class ForcedWords:
    """Words that a translation has to have in its text.

    A word is there as soon as its characters are, whichever pieces spell them. To bring it in, its own tokens are used.
    """

    def __init__(self, pieces: Pieces, words: Sequence[bytes], tokens: Sequence[tuple[int, ...]]) -> None:
        """words: in UTF-8, with single spaces inside and none at the ends; tokens: those that spell each word."""
        self._pieces, self.tokens = pieces, tuple(tokens)
        self._words = Automaton(words)
        self._all = (1 << len(words)) - 1
        self.total = sum(map(len, tokens))  # tokens of all words

    def read(self, progress: ForcedProgress, token: int) -> ForcedProgress:
        """Return the progress after another token."""
        words, ended = self._words.read(progress.words, self._pieces.texts[token])
        met = progress.met | ended
        current, taken = self._follow(progress, token, met)
        committed = progress.committed and taken > 0
        return ForcedProgress(words, met, current, taken, committed)

    def is_met(self, progress: ForcedProgress) -> bool:
        """Return whether the translation has all words."""
        return progress.met == self._all

    def missing(self, progress: ForcedProgress) -> int:
        """Return the number of words that the translation does not have."""
        return (self._all ^ progress.met).bit_count()

    def tokens_needed(self, progress: ForcedProgress) -> int:
        """Return a number of tokens that suffices for the missing words, begun ones from their beginning."""
        return sum(len(tokens) for word, tokens in enumerate(self.tokens) if not progress.met >> word & 1)

    def advancing(self, progress: ForcedProgress) -> list[int]:
        """Return the tokens that continue the current word, or begin a missing one if there is none; ascending."""
        begun = self.tokens[progress.current][: progress.taken]
        return sorted({self.tokens[word][len(begun)] for word in self._beginning_with(begun, progress.met)})

    def _follow(self, progress: ForcedProgress, token: int, met: int) -> tuple[int, int]:
        """Return a missing word and the number of its first tokens with which the translation ends."""
        begun = (*self.tokens[progress.current][: progress.taken], token)
        for candidate in (begun, (token,)):
            for word in self._beginning_with(candidate, met):
                return word, len(candidate)
        return 0, 0

    def _beginning_with(self, begin: tuple[int, ...], met: int) -> list[int]:
        """Return the missing words whose tokens begin with these and go on."""
        return [
            word
            for word, tokens in enumerate(self.tokens)
            if not met >> word & 1 and len(tokens) > len(begin) and tokens[: len(begin)] == begin
        ]
