"""When requests are due, and which loads are offered: plain numbers, no clock and no socket."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Who is asked, and for what.

    address: HOST:PORT
    timeout: seconds that a request has
    """

    address: str
    beam_size: int = 1
    timeout: float = 5.0

    def request(self, text: str) -> pb.TranslateRequest:
        """One sentence. No length penalty: it would change what the search has to do, not how fast it is done."""
        options = pb.DecodingOptions(beam_size=self.beam_size, num_hypotheses=1, length_penalty=0.0)
        return pb.TranslateRequest(texts=[text], options=options)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Requests at the moments of `lingon.bench.serve.load`, whether or not others have been answered.

    offered: requests a second
    warm_up: seconds before those that count
    """

    target: Target
    offered: float
    seconds: float
    warm_up: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """Clients that send the next request when one is answered.

    requests: how many in all, at most: the texts in their order, again from the first where they end
    seconds: after which no more is sent
    """

    target: Target
    clients: int
    requests: int
    seconds: float


Job = Load | Closed


def to_json(job: Job) -> dict[str, Any]:
    """The job as a message."""
    return {"kind": type(job).__name__, **asdict(job)}


def from_json(message: dict[str, Any]) -> Job:
    """The job of a message."""
    kinds: dict[str, type[Job]] = {"Load": Load, "Closed": Closed}
    values = {name: value for name, value in message.items() if name not in ("kind", "target")}
    return kinds[message["kind"]](target=Target(**message["target"]), **values)
