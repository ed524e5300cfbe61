"""Finds many strings in a text in one pass (Aho and Corasick 1975), in a time linear in the text and the strings."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from lingon.segments.boundaries import Span

_UNIT = re.compile(r"\w++|\W")  # a whole word is one unit, so that no string is found in a part of a word


class _Automaton:
    """A state stands for the longest beginning of a string with which what was read ends; 0 is that of none.

    ends: the state at the end of each string
    failure: of each state, that of the next shorter beginning with which the text ends as well
    longest: by state, the number of the longest string that is complete in it; -1 for none
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
    """Strings that a caller wants kept; one that begins or ends with a letter or figure is found as a whole word there.

    The automaton is made when it is first needed, once for all texts of a request.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._strings = tuple(dict.fromkeys(filter(None, strings)))

    def __bool__(self) -> bool:
        return bool(self._strings)

    def find(self, text: str) -> Iterator[Span]:
        """Yield where the strings are in a text: of those that end at one place, the longest."""
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
    """Return how often each string is in a text, also where it overlaps itself; each is another one and not empty."""
    automaton = _Automaton(strings)
    visits = [0] * len(automaton.failure)
    for state in automaton.states(text):
        visits[state] += 1
    for state in automaton.longest_first():
        visits[automaton.failure[state]] += visits[state]
    return [visits[state] for state in automaton.ends]
