"""Finds words in a text that grows by bytes (Aho and Corasick 1975): one step for each byte, however many words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

ROOT = 0
"""The state of a text that ends with no beginning of a word."""


class Automaton:
    """A state stands for the longest beginning of a word with which the text ends.

    A run of spaces in the text counts as one. A text that follows another one, which is not known, has further states,
    which are made when they are reached: they stand for every beginning that may end here as well.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        """words: without spaces at the ends and without two spaces in a row."""
        self.words = tuple(words)
        self._next: list[dict[int, int]] = [{}]
        self._failure = [ROOT]  # the state of the next shorter beginning with which the text ends as well
        self._spaced = [False]  # whether a space at the end of the text was read already
        self._ends: list[int] = [0]  # the words that are complete, one bit each
        self._inside: list[list[tuple[int, int]]] = [[]]  # words that begin like the state, and the length of it
        for number, word in enumerate(words):
            self._add(number, word)
        self._link()
        # The further states: the state of the text alone, and those that it may be in after the other text.
        self._further: dict[int, tuple[int, frozenset[int]]] = {}
        self._numbers: dict[tuple[int, frozenset[int]], int] = {}
        self._unused = count(len(self._next))

    def after_other_text(self) -> int:
        """Return the state at the beginning of a text that follows another one and a space."""
        spaces = (state for state in range(1, len(self._next)) if self._spaced[state])
        return self._also(ROOT, frozenset(spaces))

    def read(self, state: int, text: bytes) -> tuple[int, int]:
        """Return the state after more text, and the words that ended in it, one bit each."""
        ended = 0
        for byte in text.lstrip(b" ") if self.spaced(state) else text:
            state = self._step(state, byte)
            if state:  # most bytes of a text lead back to the root
                for each in self._all(state):
                    ended |= self._ends[each]
        return state, ended

    def spaced(self, state: int) -> bool:
        """Return whether the text ends with a space, so that further spaces do not count."""
        if state == ROOT:
            return False
        return any(self._spaced[each] for each in self._all(state))

    def rests(self, state: int) -> set[bytes]:
        """Return what completes a word of which the text ends with a beginning, for all such words."""
        found: set[bytes] = set()
        for each in self._all(state):
            while each != ROOT:
                found.update(self.words[number][length:] for number, length in self._inside[each])
                each = self._failure[each]
        return found - {b""}

    def _all(self, state: int) -> tuple[int, ...]:
        if state < len(self._next):
            return (state,)
        known, possible = self._further[state]
        return (known, *possible)

    def _also(self, known: int, possible: frozenset[int]) -> int:
        if not possible:
            return known
        number = self._numbers.get((known, possible))
        if number is None:
            number = next(self._unused)
            self._further[number] = known, possible
            self._numbers[known, possible] = number
        return number

    def _step(self, state: int, byte: int) -> int:
        if state >= len(self._next):
            known, possible = self._further[state]
            after = (self._next[each].get(byte) for each in possible)
            return self._also(self._step(known, byte), frozenset(each for each in after if each is not None))
        while (following := self._next[state].get(byte)) is None:
            if state == ROOT:
                return ROOT
            state = self._failure[state]
        return following

    def _add(self, number: int, word: bytes) -> None:
        state = ROOT
        for length, byte in enumerate(word, 1):
            following = self._next[state].get(byte)
            if following is None:
                following = self._next[state][byte] = len(self._next)
                self._next.append({})
                self._failure.append(ROOT)
                self._spaced.append(byte == 0x20)
                self._ends.append(0)
                self._inside.append([])
            state = following
            self._inside[state].append((number, length))
        self._ends[state] |= 1 << number

    def _link(self) -> None:
        """Set the failure of every state, the shorter ones first."""
        for parent, byte, state in self._by_length():
            if parent != ROOT:
                self._failure[state] = self._step(self._failure[parent], byte)
            self._ends[state] |= self._ends[self._failure[state]]

    def _by_length(self) -> Iterator[tuple[int, int, int]]:
        level = [ROOT]
        while level:
            below = [(parent, byte, state) for parent in level for byte, state in self._next[parent].items()]
            yield from below
            level = [state for _, _, state in below]
