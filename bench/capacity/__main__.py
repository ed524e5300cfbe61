"""Measure one server on one core, and simulate up to a thousand of them behind a balancer.

    python -m lingon.bench.capacity models/en-de

A simulated request is one sentence. Times have no network and no proxy in them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bench.capacity.chart import draw
from lingon.bench.capacity.measurement import Measured, measure, one_core
from lingon.bench.capacity.queues import POLICIES, after_warm_up, poisson_calls, shared, simulate
from lingon.bench.results_file import save
from lingon.bench.statistics import percentile
from lingon.lines import read_lines

SERVERS = (1, 4, 16, 64, 256, 1024)  # each on one core
SHARES = (0.5, 0.75)  # of the capacity, the loads that are measured and simulated
CALLS = 60_000  # at least, of a simulation
CALLS_EACH = 600  # at least, of each server
STEPS = 6  # of the search for a load; the last one is 1.6 % of the capacity
BLIND = ("in turns", "at random")  # policies that do not look at the servers
SLOW = (0.7, 0.25)  # speeds of the slow server, in that of the others


def percentiles(measured: Measured, factors: Sequence[float], load: float, policy: str) -> tuple[float, float]:
    """The 50th and 99th percentile in milliseconds; factors: the speeds of servers; load: a share of their capacity."""
    rate = load * sum(factors) * measured.speed.capacity
    by_factor = {factor: shared(measured.speed, factor) for factor in set(factors)}
    calls = poisson_calls(rate, measured.works, max(CALLS, CALLS_EACH * len(factors)), random.Random(7))
    took = after_warm_up(simulate([by_factor[factor] for factor in factors], calls, POLICIES[policy]))
    return 1000 * percentile(took, 50), 1000 * percentile(took, 99)


def highest_load(measured: Measured, servers: int, policy: str, bound_ms: float) -> float:
    """The highest share of the capacity at which the 99th percentile meets a bound."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        meets = percentiles(measured, [1.0] * servers, middle, policy)[1] <= bound_ms
        low, high = (middle, high) if meets else (low, middle)
    return low


def by_size(measured: Measured, bound_ms: float, price: float) -> list[dict[str, Any]]:
    """For each number of servers and each policy: the load that meets the bound, and its cost."""
    rows = []
    # Chance splits a Poisson load into Poisson loads, so that each server is as if it were alone.
    alone = highest_load(measured, 1, "at random", bound_ms)
    for servers in SERVERS:
        for policy in POLICIES:
            load = alone if policy == "at random" else highest_load(measured, servers, policy, bound_ms)
            rate = load * servers * measured.speed.capacity
            cost = price * servers * 1e6 / rate / 3600 if rate else float("inf")
            rows.append(
                {
                    "servers": servers,
                    "policy": policy,
                    "load": round(load, 3),
                    "requests_per_s": round(rate, 1),
                    "cost_per_million": round(cost, 4),
                }
            )
    return rows


def with_slow(measured: Measured, load: float) -> list[dict[str, Any]]:
    """For speeds of the slow server, numbers of servers and policies: percentiles at a load; None if they grow on."""
    rows = []
    for slow, servers, policy in itertools.product(SLOW, (4, 16, 64), POLICIES):
        factors = [slow, *[1.0] * (servers - 1)]
        overloaded = policy in BLIND and load * sum(factors) / servers >= slow
        found = (None, None) if overloaded else percentiles(measured, factors, load, policy)
        p50, high = (each and round(each, 1) for each in found)
        rows.append({"speed": slow, "servers": servers, "policy": policy, "p50_ms": p50, "p99_ms": high})
    return rows


def against_measurement(measured: Measured) -> list[dict[str, Any]]:
    """One server under a Poisson load: measured and simulated percentiles."""
    rows = []
    for share, (p50, high) in measured.load_ms.items():
        simulated = percentiles(measured, [1.0], share, "at random")
        rows.append(
            {
                "load": share,
                "p50_ms": p50,
                "p99_ms": high,
                "simulated_p50_ms": round(simulated[0], 1),
                "simulated_p99_ms": round(simulated[1], 1),
            }
        )
    return rows


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")] = Path("models/en-de"),
    source: Annotated[Path, typer.Option(help="File with sentences, one a line.")] = Path("tests/data/tatoeba.en"),
    bound: Annotated[float, typer.Option(min=1, help="Highest 99th percentile, in milliseconds.")] = 300.0,
    price: Annotated[float, typer.Option(min=0, help="Price of a core for an hour.")] = 0.04,
    load: Annotated[float, typer.Option(min=0.01, max=0.99, help="Load with a slow server.")] = 0.6,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Write a results file and a chart."""
    with one_core(model) as address:
        measured = asyncio.run(measure(address, list(read_lines(source)), SHARES))
    facts = {
        "speed": {str(count): round(rate, 1) for count, rate in measured.speed.measured},
        "one_server": against_measurement(measured),
        "bound_ms": bound,
        "price_per_core_hour": price,
        "slow_server": {"load": load, "rows": with_slow(measured, load)},
    }
    path = save("capacity", by_size(measured, bound, price), results, **facts)
    draw(path)
    typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
