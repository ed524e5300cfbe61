"""When requests are due, and which loads are offered: plain numbers, no clock and no socket."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from lingon.errors import SettingsError

LIGHT = (0.1, 0.25)
"""Loads well below the knee, as shares of the weakest system's capacity."""

KNEE, BEYOND = 0.5, 4.0
"""Between these shares, of the weakest capacity and of the strongest, the ladder has its fine steps. A system leaves it
where it is saturated; the end is for one whose capacity was found far too high or too low."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    due: seconds after the start
    text: its place among the texts
    """

    due: float
    text: int


def arrivals(rate: float, seconds: float, texts: int, seed: int) -> list[Arrival]:
    """Poisson arrivals: `rate` a second on average, each of one of `texts` sentences; a function of the seed."""
    if rate <= 0 or texts < 1:
        raise SettingsError(f"an offered load needs a rate above 0 and a sentence, got {rate} and {texts} sentences")
    draw = random.Random(seed)
    found: list[Arrival] = []
    due = draw.expovariate(rate)
    while due < seconds:
        found.append(Arrival(due, draw.randrange(texts)))
        due += draw.expovariate(rate)
    return found


def ladder(capacities: Mapping[str, float], step: float) -> list[float]:
    """Loads to offer, lowest first, in sentences a second: light ones, then each `step` times the one before.

    capacities: of every system, sentences a second with many clients that wait for their answers
    """
    if step <= 1:
        raise SettingsError(f"step must be above 1, got {step}")
    weakest, strongest = min(capacities.values()), max(capacities.values())
    rungs = [share * weakest for share in LIGHT]
    load = KNEE * weakest
    while load < BEYOND * strongest:
        rungs.append(load)
        load *= step
    return rungs
