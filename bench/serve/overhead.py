"""`lingon bench serve --engine null`: what a request costs without decoding, beside an echo on bare grpc.aio."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich import box
from rich.table import Table

from lingon.bench.serve.load.jobs import ClosedLoad, Target, to_json
from lingon.bench.serve.load.latency import OK
from lingon.bench.serve.plan import CpuPlan
from lingon.bench.serve.run import Row
from lingon.bench.serve.servers.processes import Server, serving
from lingon.bench.statistics import percentile
from lingon.bench.worker_process import Worker, cpu_seconds
from lingon.errors import LingonError

KINDS = ("lingon", "echo")
CLIENTS = (1, 64)


def measure_overhead(
    model: Path, texts: Sequence[str], cpus: CpuPlan, *, seconds: float, rounds: int, write: Callable[[str], None]
) -> list[Row]:
    """Return a row for each server and number of clients: medians over rounds in which the servers take turns."""
    found: dict[tuple[int, str], list[Row]] = {}
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(
                serving([sys.executable, "-m", "lingon.bench.serve.servers.null_engine", kind, str(model)], cpus.server)
            )
            for kind in KINDS
        }
        generator = stack.enter_context(Worker("lingon.bench.serve.load.generator", cores=cpus.client))
        generator.ask(texts=list(texts))
        for counted in range(rounds + 1):
            for clients in CLIENTS:
                for kind, server in servers.items():
                    row = _measured(server, generator, clients, seconds)
                    if counted:
                        found.setdefault((clients, kind), []).append(row)
            write(f"round {counted} of {rounds}" if counted else "warmed up")
    return [{"kind": kind, "clients": clients, **_medians(each)} for (clients, kind), each in found.items()]


def overhead_table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    shown = Table("server", "clients", "requests/s", "p50 ms", "p99 ms", "CPU ms a request", box=box.SIMPLE)
    for row in rows:
        figures = (f"{row['per_s']:.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['cpu_ms']:.3f}")
        shown.add_row(row["kind"], str(row["clients"]), *figures)
    return shown


def _measured(server: Server, generator: Worker, clients: int, seconds: float) -> Row:
    target = Target(address=server.address)
    job = ClosedLoad(target=target, clients=clients, requests=10_000_000, seconds=seconds)
    before = cpu_seconds(server.pid)
    answer = generator.ask(**to_json(job))
    used = cpu_seconds(server.pid) - before
    if failed := [code for _, _, code in answer["answers"] if code != OK]:
        raise LingonError(f"{len(failed)} requests failed, the first with {failed[0]}")
    latencies = [latency for _, latency, _ in answer["answers"]]
    return {
        "requests": len(latencies),
        "per_s": len(latencies) / answer["seconds"],
        "p50_ms": percentile(latencies, 50),
        "p99_ms": percentile(latencies, 99),
        "cpu_ms": 1000 * used / len(latencies),
    }


def _medians(rows: Sequence[Row]) -> Row:
    return {name: round(statistics.median(row[name] for row in rows), 4) for name in rows[0]}
