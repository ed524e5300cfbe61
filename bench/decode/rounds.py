"""The rounds of one cell: everybody in turn, round after round, so that a slow minute of the machine hits all alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lingon.errors import SettingsError

Name = TypeVar("Name")
Tokens = list[list[int]]
Measure = Callable[[int], tuple[float, Tokens]]
"""Translate the cell so many times over: milliseconds of one time, and what came out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """How often and how long is measured."""

    runs: int = 7
    slow_runs: int = 3  # of who takes longer than slow_s
    slow_s: float = 10.0  # seconds
    least_ms: float = 150.0  # of one run: shorter work is repeated within it

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise SettingsError(f"--runs must be at least 1, got {self.runs}")
        if self.slow_s <= 0:
            raise SettingsError(f"--slow must be above 0 seconds, got {self.slow_s:g}")

    def of(self, warm_ms: float) -> tuple[int, int]:
        """Runs, and repetitions within each, of who took warm_ms when it was warm."""
        runs = min(self.runs, self.slow_runs) if warm_ms > 1000 * self.slow_s else self.runs
        return runs, max(math.ceil(self.least_ms / warm_ms), 1)


@dataclass(frozen=True, slots=True)
class Timed:
    """What was measured of one contestant in one cell; outputs are those of the last round."""

    runs_ms: list[float]
    outputs: Tokens


def race(contestants: Mapping[Name, Measure], rounds: Rounds, told: Callable[[str], None]) -> dict[Name, Timed]:
    """Warm everybody up, uncounted, then measure in turn; each round begins with another contestant.

    told: is told of every round, for a progress display
    """
    plans = {name: _plan(measure, rounds) for name, measure in contestants.items()}
    timed: dict[Name, Timed] = {name: Timed([], []) for name in contestants}
    names = list(contestants)
    for number in range(rounds.runs):
        told(f"round {number + 1} of {rounds.runs}")
        first = number % len(names)
        for name in names[first:] + names[:first]:
            runs, repeats = plans[name]
            if number < runs:
                milliseconds, outputs = contestants[name](repeats)
                timed[name] = Timed([*timed[name].runs_ms, milliseconds], outputs)
    return timed


def _plan(measure: Measure, rounds: Rounds) -> tuple[int, int]:
    """Warm up: the first time finds memory and threads; where it is quick, another one tells how long one takes."""
    milliseconds, _ = measure(1)
    if milliseconds < rounds.least_ms:
        milliseconds, _ = measure(1)
    return rounds.of(milliseconds)
