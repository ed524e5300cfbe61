"""Three servers behind Envoy, one slow and one restarted again and again, under an open load.

python -m tests.support.rolling_envoy --output bench/results
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos.callers.clients import Client, open_loop
from chaos.server import Server
from chaos.verdict.history import History, Outcome
from lingon.bench.results_file import save
from lingon.bench.statistics import percentile
from tests.support.envoy import Envoy, envoy
from tests.support.repository import ROOT

RATE = 25.0  # requests a second of each of two clients, as in the rolling restart of chaos/
PROPAGATION = 1.0  # seconds that a server accepts calls after it reports NOT_SERVING
SLOWNESS = 0.05  # seconds that the slow server adds to each decoder step
LEAST_REQUEST = "least_request.v3.LeastRequest\n                selection_method: FULL_SCAN"
BALANCING: Mapping[str, Sequence[tuple[str, str]]] = {
    "fewest calls": (),
    "in turns": ((LEAST_REQUEST, "round_robin.v3.RoundRobin"),),
}
"""By name, the edits of envoy.yaml; the first is as it ships."""

SCENARIOS = (
    ("fewest calls", signal.SIGTERM),
    ("in turns", signal.SIGTERM),
    ("fewest calls", signal.SIGKILL),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: the requests of a client that repeats UNAVAILABLE, of one that does not, and of Envoy."""

    balancing: str
    end: signal.Signals
    with_retry: Sequence[Outcome]
    without: Sequence[Outcome]
    restarts: int
    envoy_retries: int
    slow_share: float

    @property
    def errors(self) -> tuple[int, int]:
        """Requests that failed: of the client that repeats, and of the other."""
        return _errors(self.with_retry), _errors(self.without)

    @property
    def row(self) -> dict[str, Any]:
        """A line of the table."""
        times = [outcome.milliseconds for outcome in (*self.with_retry, *self.without) if outcome.good]
        return {
            "balancing": self.balancing,
            "servers": 3,
            "ended_by": self.end.name,
            "restarts": self.restarts,
            "requests": len(self.with_retry) + len(self.without),
            "p50_ms": round(percentile(times, 50), 1),
            "p99_ms": round(percentile(times, 99), 1),
            "errors_with_retry": self.errors[0],
            "errors_without_retry": self.errors[1],
            "envoy_retries": self.envoy_retries,
            "share_of_slow_server": round(self.slow_share, 3),
        }


def _errors(outcomes: Sequence[Outcome]) -> int:
    return sum(not outcome.good for outcome in outcomes)


async def rolled(
    folder: Path, rounds: int, balancing: str = "fewest calls", end: signal.Signals = signal.SIGTERM
) -> Run:
    """Restart one of three servers `rounds` times under load; end: the signal that it ends by."""
    texts = (ROOT / "tests/data/tatoeba.en").read_text(encoding="utf-8").splitlines()[:200]
    history = History()
    async with _servers(folder) as servers:
        addresses = [server.address for server in servers]
        async with envoy(folder, *addresses, edits=BALANCING[balancing]) as (proxy, _):
            clients = [
                Client(proxy.address, history, name, retries=name == "retrying") for name in ("retrying", "plain")
            ]
            restarting = asyncio.create_task(_restart(servers[0], rounds, end))
            traffic = [_traffic(client, texts, restarting) for client in clients]
            with_retry, without = await asyncio.gather(*traffic)
            for client in clients:
                await client.close()
            return await _told(Run(balancing, end, with_retry, without, await restarting, 0, 0.0), proxy, servers)


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[list[Server]]:
    shared = {"engines": 1, "threads": 1, "propagation_seconds": PROPAGATION}
    slow = {"failpoints": f"step=sleep:{SLOWNESS}"}
    async with AsyncExitStack() as stack:
        servers = [
            Server(
                folder=folder,
                model=ROOT / "models/en-de",
                cores=frozenset(os.sched_getaffinity(0)),
                settings={**shared, **(slow if name == "slow" else {})},
                name=name,
            )
            for name in ("restarted", "slow", "fast")
        ]
        yield [await stack.enter_async_context(server) for server in servers]


async def _traffic(client: Client, texts: Sequence[str], restarting: asyncio.Task[int]) -> list[Outcome]:
    found: list[Outcome] = []
    while not restarting.done():
        found += await open_loop(client.translate, texts, RATE, 2.0, seed=len(found))  # type: ignore[arg-type]
    return found


async def _restart(server: Server, rounds: int, end: signal.Signals) -> int:
    """Restart the server; returns how many times it ended as it should: with code 0 after SIGTERM."""
    expected = 0 if end == signal.SIGTERM else -end
    orderly = 0
    for _ in range(rounds):
        await asyncio.sleep(PROPAGATION)
        server.signal(end)
        await server.exited(60.0)
        orderly += server.exit_code == expected
        server.start()
        await server.ready()
    return orderly


async def _told(run: Run, proxy: Envoy, servers: Sequence[Server]) -> Run:
    """The run with what Envoy and the slow server counted."""
    served = (await servers[1].scrape()).sum("lingon_requests_total", method="Translate", code="OK")
    total = len(run.with_retry) + len(run.without)
    retries = await asyncio.to_thread(proxy.counted, "upstream_rq_retry")
    return replace(run, envoy_retries=retries, slow_share=served / total)


async def _table(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for balancing, end in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((await rolled(Path(folder), rounds, balancing, end)).row)
    return rows


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="restarts (default: 10)")
    parser.add_argument("--output", type=Path, help="folder of the results file (default: none)")
    given = parser.parse_args()
    rows = asyncio.run(_table(given.rounds))
    if given.output:
        command = "python -m tests.support.rolling_envoy"
        save(
            "envoy",
            rows,
            given.output,
            command=command,
            rate=2 * RATE,
            propagation_seconds=PROPAGATION,
            slowness_seconds=SLOWNESS,
        )


if __name__ == "__main__":
    main()
