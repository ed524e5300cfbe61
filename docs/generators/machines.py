"""The tables of the page on many machines, from the newest results of the restarts behind Envoy and of the capacity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generators.markdown import table

RESULTS = Path(__file__).parents[2] / "bench" / "results"
NO_END = "no end"  # the queue of a server that gets more than it can do


def restarts(results: Path = RESULTS) -> str:
    """A table of the runs behind Envoy."""
    head = (
        *("balancing", "ended by", "restarts", "requests", "p50 ms", "p99 ms"),
        *("errors, client repeats", "errors, it does not", "repeated by Envoy", "share of the slow server"),
    )
    lines = [
        (
            *(row["balancing"], row["ended_by"], f"{row['restarts']}", f"{row['requests']:,}"),
            *(f"{row['p50_ms']:.0f}", f"{row['p99_ms']:.0f}", f"{row['errors_with_retry']}"),
            *(
                f"{row['errors_without_retry']}",
                f"{row['envoy_retries']}",
                f"{100 * row['share_of_slow_server']:.0f} %",
            ),
        )
        for row in _newest(results, "envoy")["rows"]
    ]
    return table(head, lines)


def capacity(results: Path = RESULTS) -> str:
    """A table of the highest loads by servers, with balancing by the fewest calls, and the chart."""
    path, found = _path(results, "capacity"), _newest(results, "capacity")
    policies = list(dict.fromkeys(row["policy"] for row in found["rows"]))
    rows = {(row["servers"], row["policy"]): row for row in found["rows"]}
    lines = []
    for servers in dict.fromkeys(row["servers"] for row in found["rows"]):
        best = rows[servers, policies[0]]
        loads = [f"{100 * rows[servers, policy]['load']:.0f} %" for policy in policies]
        lines.append((f"{servers:,}", f"{best['requests_per_s']:,.0f}", f"{best['cost_per_million']:.3f}", *loads))
    head = ("servers", "requests/s", "price of a million", *(f"load, {policy}" for policy in policies))
    return f"{table(head, lines)}\n\n![Load by servers, and a slow server](../../bench/results/{path.stem}.svg)"


def measured(results: Path = RESULTS) -> str:
    """Tables of the one server that was measured: its speed, and a Poisson load beside the simulation."""
    found = _newest(results, "capacity")
    speed = table(
        ("sentences at once", *found["speed"]), [("sentences/s", *(f"{rate:.0f}" for rate in found["speed"].values()))]
    )
    head = ("load", "p50 ms", "p99 ms", "simulated p50 ms", "simulated p99 ms")
    lines = [
        (f"{100 * row['load']:.0f} %", *(f"{row[name.replace(' ', '_')]:.0f}" for name in head[1:]))
        for row in found["one_server"]
    ]
    return f"{speed}\n\n{table(head, lines)}"


def slow_server(results: Path = RESULTS) -> str:
    """A table of the 99th percentiles with one slow server."""
    rows = _newest(results, "capacity")["slow_server"]["rows"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    found = {(row["speed"], row["servers"], row["policy"]): row["p99_ms"] for row in rows}
    lines = [
        (f"{100 * speed:.0f} %", f"{servers}", *(_shown(found[speed, servers, policy]) for policy in policies))
        for speed, servers in dict.fromkeys((row["speed"], row["servers"]) for row in rows)
    ]
    return table(("speed of the slow one", "servers", *policies), lines)


def _shown(milliseconds: float | None) -> str:
    return NO_END if milliseconds is None else f"{milliseconds:.0f} ms"


def _path(results: Path, name: str) -> Path:
    return max(results.glob(f"*-{name}.json"))


def _newest(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_path(results, name).read_text(encoding="utf-8"))
    return found
