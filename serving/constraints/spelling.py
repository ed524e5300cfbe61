"""Which tokens may come next so that a text is valid UTF-8, without U+FFFD and without forbidden words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lingon.serving.constraints.automaton import ROOT, Automaton
from lingon.serving.constraints.pieces import BETWEEN, MISSING_BYTES, REPLACEMENT, UTF8, Pieces, TokenSet
from lingon.text import FORBIDDEN

LONGEST = 4  # bytes of the longest character

SpellingState = tuple[int, int]
"""Of the character that is not complete (see UTF8), and of the automaton of the forbidden words."""


class Spelling:
    """The tokens that spell what a request allows; what it has found out about a state is kept.

    The promise for each forbidden word: it is not in the text, whichever pieces or bytes would spell it, where a space
    of the word stands for any run of white space.
    """

    def __init__(self, pieces: Pieces, words: Sequence[bytes] = (), *, follows: bool = False) -> None:
        """words: forbidden ones in UTF-8, with single spaces inside and none at the ends.

        follows: whether the text follows another one and a space, so that it must not begin with the end of a word
        """
        self._pieces = pieces
        self._words = Automaton(words)
        self.start: SpellingState = (BETWEEN, self._words.after_other_text() if follows else ROOT)
        self._replacement = frozenset(pieces.containing(REPLACEMENT))
        self._uncertain = self._replacement.union(pieces.bytes_of)  # without these, any tokens spell valid UTF-8
        never = {*FORBIDDEN, *self._replacement}
        never.update(token for token, byte in pieces.bytes_of.items() if byte not in UTF8[BETWEEN].following)
        self._never = never.union(*(pieces.containing(word) for word in words))
        self._banned: dict[tuple[int, int], TokenSet] = {}
        self._continuing: dict[tuple[int, int, int], TokenSet] = {}

    @property
    def has_words(self) -> bool:
        """Whether there are forbidden words."""
        return bool(self._words.words)

    def has_bytes(self, tokens: Sequence[int]) -> bool:
        """Return whether tokens have byte pieces, or pieces with U+FFFD."""
        return not self._uncertain.isdisjoint(tokens)

    def character_after(self, character: int, token: int) -> int | None:
        """Return the state of UTF8 after another token; None if it breaks a character, or has U+FFFD."""
        byte = self._pieces.bytes_of.get(token)
        if byte is not None:
            return UTF8[character].following.get(byte)
        return BETWEEN if character == BETWEEN and token not in self._replacement else None

    def whole(self, tokens: Sequence[int], prefix: int = 0) -> int:
        """Return how many of the tokens come before the first character that is broken, not complete, or U+FFFD.

        prefix: the number of tokens at the beginning that count as whole characters
        """
        if not self.has_bytes(tokens):
            return len(tokens)
        whole, character = prefix, BETWEEN
        for place, token in enumerate(tokens[prefix:], prefix + 1):
            following = self.character_after(character, token)
            if following is None:
                break
            character = following
            if character == BETWEEN:
                whole = place
        return whole

    def read(self, state: SpellingState, token: int) -> SpellingState:
        """Return the state after another token."""
        character, words = state
        byte = self._pieces.bytes_of.get(token)
        character = BETWEEN if byte is None else UTF8[character].following.get(byte, BETWEEN)
        return character, self._words.read(words, self._pieces.texts[token])[0]

    def banned(self, state: SpellingState, remaining: int) -> TokenSet:
        """Return the tokens that must not come next, between two characters.

        remaining: tokens that the translation may still have, this one counted
        """
        key = state[1], min(remaining, LONGEST)
        found = self._banned.get(key)
        if found is None:
            tokens = self._never | self._completing(state[1])
            for byte, following in UTF8[BETWEEN].following.items():
                token = self._pieces.token_of.get(byte)
                if following != BETWEEN and token is not None and token not in tokens:
                    after = following, self._words.read(state[1], bytes([byte]))[0]
                    if not self._can_complete(after, key[1] - 1):
                        tokens.add(token)
            found = self._banned[key] = TokenSet.of(tokens)
        return found

    def continuing(self, state: SpellingState, remaining: int) -> TokenSet:
        """Return the byte pieces that may come next, within a character; there is at least one."""
        key = *state, min(remaining, LONGEST)
        found = self._continuing.get(key)
        if found is None:
            tokens = (token for token, after in self._bytes_after(state) if self._can_complete(after, key[2] - 1))
            found = self._continuing[key] = TokenSet.of(tokens)
        return found

    def _can_complete(self, state: SpellingState, remaining: int) -> bool:
        """Return whether `remaining` byte pieces can complete the character."""
        if state[0] == BETWEEN:
            return True
        if MISSING_BYTES[state[0]] > remaining:
            return False
        return any(self._can_complete(after, remaining - 1) for _, after in self._bytes_after(state))

    def _bytes_after(self, state: SpellingState) -> Iterator[tuple[int, SpellingState]]:
        """Yield the byte pieces that continue a character and complete no word, each with the state after it."""
        completing = self._completing(state[1])
        for byte, after in UTF8[state[0]].following.items():
            token = self._pieces.token_of.get(byte)
            if token is not None and token not in completing:
                yield token, (after, self._words.read(state[1], bytes([byte]))[0])

    def _completing(self, words: int) -> set[int]:
        """Return the tokens that complete a word of which the text ends with a beginning."""
        found: set[int] = set()
        for rest in self._words.rests(words):
            found.update(self._pieces.beginning_with(rest))
            if self._words.spaced(words):
                found.update(self._pieces.beginning_with(b" " + rest))
        return found


def repeating(tokens: Sequence[int], size: int) -> TokenSet:
    """Return the tokens that would repeat an n-gram of this size (Paulus et al. 2017, section 2.5)."""
    if len(tokens) < size:
        return TokenSet.of(())
    begin = list(tokens[len(tokens) - size + 1 :])
    return TokenSet.of(
        tokens[end] for end in range(size - 1, len(tokens)) if list(tokens[end - size + 1 : end]) == begin
    )


def penalise(logits: np.ndarray, tokens: Sequence[int], penalty: float) -> None:
    """Lower the logits (vocab) of tokens that a translation has, in place.

    Keskar et al. 2019, section 4.1, divide the logit by the penalty. Negative logits are multiplied by it, since a
    division would raise them.
    """
    chosen = np.unique(np.asarray(tokens, np.int64))
    values = logits[chosen]
    logits[chosen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
