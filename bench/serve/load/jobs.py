"""The load: times at which requests are due, the loads to offer, and the jobs of the load generator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lingon.errors import SettingsError
from lingon.serving.translation.planning.text_options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb

LIGHT = (0.1, 0.25)
"""Loads well below saturation, as shares of the weakest system's capacity."""

FINE_FROM, FINE_TO = 0.5, 4.0
"""The ladder has fine steps from this share of the weakest capacity to this share of the strongest. A system leaves the
ladder when it is saturated; the end is only reached if a capacity was measured far too high or too low."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    due: seconds after the start
    text: its index in the texts
    """

    due: float
    text: int


def arrivals(rate: float, seconds: float, texts: int, seed: int) -> list[Arrival]:
    """Poisson arrivals: `rate` a second on average, each of one of `texts` sentences; determined by the seed."""
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
    """The loads to offer, lowest first, in sentences a second: light loads, then each `step` times the last one.

    capacities: of every system, sentences a second with many clients that wait for their answers
    """
    if step <= 1:
        raise SettingsError(f"step must be above 1, got {step}")
    weakest, strongest = min(capacities.values()), max(capacities.values())
    rungs = [share * weakest for share in LIGHT]
    load = FINE_FROM * weakest
    while load < FINE_TO * strongest:
        rungs.append(load)
        load *= step
    return rungs


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The server and the options of the requests.

    address: HOST:PORT
    timeout: seconds, the deadline of a request
    """

    address: str
    beam_size: int = 1
    timeout: float = 5.0

    def request(self, text: str) -> pb.TranslateRequest:
        """A request for one sentence, without a length penalty: it would change the work, not the speed."""
        options = pb.DecodingOptions(beam_size=self.beam_size, num_hypotheses=1, length_penalty=0.0)
        return pb.TranslateRequest(texts=[text], options=options, text=WHOLE)  # the same work for every server


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoad:
    """Open-loop load: requests at the times of `arrivals`, independent of the answers.

    offered: requests a second
    seconds: measured seconds
    warm_up: seconds before the measured ones
    """

    target: Target
    offered: float
    seconds: float
    warm_up: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedLoad:
    """Closed-loop load: each client sends its next request when it has the answer to the last one.

    requests: the maximum for all clients together; texts are sent in order, repeatedly
    seconds: no request is sent later
    """

    target: Target
    clients: int
    requests: int
    seconds: float


LoadJob = OpenLoad | ClosedLoad


def to_json(job: LoadJob) -> dict[str, Any]:
    """The job as a JSON object for the load generator's process."""
    return {"kind": type(job).__name__, **asdict(job)}


def from_json(message: dict[str, Any]) -> LoadJob:
    """The job of a JSON object."""
    kinds: dict[str, type[LoadJob]] = {kind.__name__: kind for kind in (OpenLoad, ClosedLoad)}
    values = {name: value for name, value in message.items() if name not in ("kind", "target")}
    return kinds[message["kind"]](target=Target(**message["target"]), **values)
