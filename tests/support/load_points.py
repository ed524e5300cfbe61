"""Load points with invented answers."""

from __future__ import annotations

from collections.abc import Sequence

from lingon.bench.serve.load import OK, Answer, LoadPoint, Objective, summarise


def answers(latencies: Sequence[float], lag: float = 0.1, code: str = OK) -> list[Answer]:
    return [Answer(lag, latency, code) for latency in latencies]


def point(offered: float, p99: float, lag: float = 1.0) -> LoadPoint:
    return summarise(answers([p99] * 100, lag), offered, 10, Objective())
