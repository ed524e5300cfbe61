"""What a load point says: latencies from the moment a request was due, failures, and the generator's own lag.

The lag's 99th percentile decides whether a point is void; its greatest value stands beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lingon.bench.statistics import percentile

OK = "OK"
MOST_LAG = 20.0  # milliseconds: beyond it the generator, not the server, was measured


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request ended.

    lag: milliseconds from when it was due to when it was really sent
    latency: milliseconds from when it was due to its answer
    code: the name of its status
    """

    lag: float
    latency: float
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What is asked of a server: so many of a hundred requests answered within so many milliseconds."""

    percentile: float = 99.0
    milliseconds: float = 500.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One system at one offered load; rates in sentences a second, times in milliseconds.

    A request that failed counts as one that is never answered: its latency is infinite.
    """

    offered: float
    requests: int
    achieved: float  # answers without an error
    goodput: float  # answers without an error and within the objective's time
    p50: float
    p95: float
    p99: float
    within: bool  # the objective is met
    lag_p99: float
    lag_max: float
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def void(self) -> bool:
        """Whether the generator itself was too slow for the figures to mean anything."""
        return not self.lag_p99 <= MOST_LAG

    def row(self) -> dict[str, Any]:
        """As JSON has it; without infinity."""
        rates = {"offered_per_s": self.offered, "achieved_per_s": self.achieved, "goodput_per_s": self.goodput}
        times = {"p50_ms": self.p50, "p95_ms": self.p95, "p99_ms": self.p99}
        lags = {"lag_p99_ms": self.lag_p99, "lag_max_ms": self.lag_max}
        rounded = {name: _finite(value) for name, value in {**rates, **times, **lags}.items()}
        flags = {"within_objective": self.within, "void": self.void}
        return {"requests": self.requests, **rounded, "errors": self.errors, **flags}


def summarise(answers: Sequence[Answer], offered: float, seconds: float, objective: Objective) -> Point:
    """The figures of the answers to requests that were due within `seconds`."""
    latencies = [answer.latency if answer.code == OK else math.inf for answer in answers]
    lags = [answer.lag for answer in answers]
    good = sum(latency <= objective.milliseconds for latency in latencies)
    return Point(
        offered=offered,
        requests=len(answers),
        achieved=sum(answer.code == OK for answer in answers) / seconds,
        goodput=good / seconds,
        p50=percentile(latencies, 50),
        p95=percentile(latencies, 95),
        p99=percentile(latencies, 99),
        within=percentile(latencies, objective.percentile) <= objective.milliseconds,
        lag_p99=percentile(lags, 99),
        lag_max=max(lags, default=math.nan),
        errors=dict(Counter(answer.code for answer in answers if answer.code != OK)),
    )


def best(points: Iterable[Point]) -> Point | None:
    """The highest valid load at which the objective is met; nothing between two loads is guessed."""
    return max((point for point in points if point.within and not point.void), key=_offered, default=None)


def saturated(points: Sequence[Point]) -> bool:
    """Whether a system needs no higher load: at the last two valid ones, lowest first, the objective was missed."""
    valid = [point for point in points if not point.void]
    return len(valid) >= 2 and not any(point.within for point in valid[-2:])


def _offered(point: Point) -> float:
    return point.offered


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
