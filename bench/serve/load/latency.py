"""The figures of a load point: latencies since requests were due, failures, and the load generator's own lag.

The 99th percentile of the lag decides whether a point is void; its maximum is recorded too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lingon.bench.statistics import percentile

OK = "OK"
MAX_LAG = 20.0  # milliseconds: with more lag, the load generator was measured instead of the server


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one request.

    lag: milliseconds from the time it was due to the time it was sent
    latency: milliseconds from the time it was due to its answer
    code: the name of its status
    """

    lag: float
    latency: float
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The service level objective: this percentile of latencies is at most this number of milliseconds."""

    percentile: float = 99.0
    milliseconds: float = 500.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPoint:
    """One system at one offered load; rates in sentences a second, times in milliseconds.

    A failed request has an infinite latency.
    """

    offered: float
    requests: int
    achieved: float  # answers without an error
    goodput: float  # answers without an error within the time of the objective
    p50: float
    p95: float
    p99: float
    within: bool  # whether the objective is met
    lag_p99: float
    lag_max: float
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def void(self) -> bool:
        """Whether the load generator was too slow for a valid measurement."""
        return not self.lag_p99 <= MAX_LAG

    def row(self) -> dict[str, Any]:
        """The columns of the JSON file; infinity becomes None."""
        rates = {"offered_per_s": self.offered, "achieved_per_s": self.achieved, "goodput_per_s": self.goodput}
        times = {"p50_ms": self.p50, "p95_ms": self.p95, "p99_ms": self.p99}
        lags = {"lag_p99_ms": self.lag_p99, "lag_max_ms": self.lag_max}
        rounded = {name: _finite(value) for name, value in {**rates, **times, **lags}.items()}
        flags = {"within_objective": self.within, "void": self.void}
        return {"requests": self.requests, **rounded, "errors": self.errors, **flags}


def summarise(answers: Sequence[Answer], offered: float, seconds: float, objective: Objective) -> LoadPoint:
    """The figures of requests that were due within `seconds`."""
    latencies = [answer.latency if answer.code == OK else math.inf for answer in answers]
    lags = [answer.lag for answer in answers]
    good = sum(latency <= objective.milliseconds for latency in latencies)
    return LoadPoint(
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


def best(points: Iterable[LoadPoint]) -> LoadPoint | None:
    """The highest valid load point that meets the objective, without interpolation; None if there is none."""
    return max((point for point in points if point.within and not point.void), key=_offered, default=None)


def saturated(points: Sequence[LoadPoint]) -> bool:
    """Whether the last two valid points both miss the objective. points: lowest load first."""
    valid = [point for point in points if not point.void]
    return len(valid) >= 2 and not any(point.within for point in valid[-2:])


def _offered(point: LoadPoint) -> float:
    return point.offered


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
