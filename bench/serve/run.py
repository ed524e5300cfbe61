"""`lingon bench serve` step by step: starts, a single client, capacity, loads in turns; and what a request costs."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from lingon.bench.results_file import percentile
from lingon.bench.serve.load import (
    OK,
    Answer,
    ClosedLoad,
    LoadJob,
    LoadPoint,
    OpenLoad,
    Target,
    best,
    ladder,
    saturated,
    summarise,
    to_json,
)
from lingon.bench.serve.plan import (
    CTRANSLATE2,
    LINGON,
    REST_SECONDS,
    CpuPlan,
    Plan,
    Server,
    System,
    memory_row,
    serving,
)
from lingon.bench.worker_process import Worker, cpu_seconds
from lingon.errors import LingonError

Row = dict[str, Any]
WriteLine = Callable[[str], None]
PROBE = {"clients": 64, "requests": 1_000_000}
"""The closed-loop load that measures capacity."""
PROBE_SECONDS = 3.0
RETRIES = 2  # times that a void load point is measured again


def measure(plan: Plan, write: WriteLine) -> list[Row]:
    """Measure everything, or only numbers of clients if the plan has any; return the rows of the results."""
    if plan.clients:
        return measure_clients(plan, write)
    if plan.cpus.shared:
        write("server and load generator share a core: the work of the generator slows the server down")
    write("measuring starts, on all cores")
    rows = [row for system in plan.systems if system.command for row in starts(plan, system)]
    with _measurement(plan, write) as measurement:
        for beam_size in plan.beam_sizes:
            rows += measurement.single_client(beam_size)
            rows += measurement.loads(beam_size)
            rows += measurement.memory(beam_size)
    return rows


def measure_clients(plan: Plan, write: WriteLine) -> list[Row]:
    """Measure the latency with so many clients, of which each waits for its answer; return the rows."""
    with _measurement(plan, write) as measurement:
        return [
            row
            for beam_size in plan.beam_sizes
            for clients in plan.clients
            for row in measurement.clients(beam_size, clients)
        ]


@contextmanager
def _measurement(plan: Plan, write: WriteLine) -> Iterator[Measurement]:
    """The measurement, with its servers and its load generator."""
    with ExitStack() as stack:
        servers = {system.name: stack.enter_context(_server_of(plan, system)) for system in plan.systems}
        generator = stack.enter_context(Worker("lingon.bench.serve.load", cores=plan.cpus.client))
        generator.ask(texts=plan.texts)
        yield Measurement(plan, servers, generator, write)


def starts(plan: Plan, system: System) -> list[Row]:
    """Seconds from the start of a server's process to its ready line, on all cores, as a user starts it."""
    found = []
    for _ in range(plan.rounds):
        with serving(system.command, frozenset(os.sched_getaffinity(0))) as server:
            found.append(round(server.seconds, 3))
    return [{"kind": "start", "system": system.name, "runs_s": found, "median_s": statistics.median(found)}]


class Measurement:
    """The running servers, and the load generator that sends requests to them."""

    def __init__(self, plan: Plan, servers: Mapping[str, Server], generator: Worker, write: WriteLine) -> None:
        self._plan, self._servers, self._generator, self._write = plan, servers, generator, write

    def single_client(self, beam_size: int) -> list[Row]:
        """The latency of a single client; for our server also the part of it that is not the engine's."""
        plan = self._plan
        times: dict[str, list[float]] = {name: [] for name in self._servers}
        engine: list[float] = []
        with ExitStack() as stack:
            baseline = stack.enter_context(self._engine_baseline()) if LINGON in self._servers else None
            for counted in range(plan.rounds + 1):
                for name in self._servers:
                    answers = self._closed(
                        name, beam_size, clients=1, requests=len(plan.texts_of_single_client), seconds=600
                    )
                    times[name] += [answer.latency for answer in answers] if counted else []
                if baseline:
                    found = baseline.ask(beam_size=beam_size)["times"]
                    engine += found if counted else []
        rows = [_client_row(name, beam_size, found, engine if name == LINGON else []) for name, found in times.items()]
        self._write(", ".join(f"{row['system']} single client {row['median_ms']:.2f} ms" for row in rows))
        return rows

    def clients(self, beam_size: int, clients: int) -> list[Row]:
        """Latency and sentences a second with a number of clients, of which each waits for its answer."""
        plan, rows = self._plan, []
        for name in self._servers:
            if plan.warm_up:
                self._closed(name, beam_size, clients=clients, requests=PROBE["requests"], seconds=plan.warm_up)
            found = self._closed(name, beam_size, clients=clients, requests=PROBE["requests"], seconds=plan.seconds)
            row = {"kind": "clients", "system": name, "beam_size": beam_size, "clients": clients}
            # No request is sent later than this, and the last answers are counted, so that the rate is a bit too high.
            point = summarise(found, len(found) / plan.seconds, plan.seconds, plan.objective)
            rows.append({**row, **point.row()})
            times = f"p50 {point.p50:.1f}, p99 {point.p99:.1f} ms"
            self._write(f"beam {beam_size}: {name}, {clients} clients: {times}, {point.achieved:.0f}/s")
        return rows

    def memory(self, beam_size: int) -> list[Row]:
        """The memory of the servers that this run has started, after the loads and after a rest."""
        servers = {name: server for name, server in self._servers.items() if server.pid}
        rows = [memory_row(self._plan, name, server, beam_size) for name, server in servers.items()]
        time.sleep(REST_SECONDS)
        return [row | {"rested_mb": round(servers[row["system"]].memory()["rss_mb"], 1)} for row in rows]

    def loads(self, beam_size: int) -> list[Row]:
        """Measure all systems at each load in turns, until each is saturated; the last row is the summary."""
        plan = self._plan
        capacities = {name: self._capacity(name, beam_size) for name in self._servers}
        points: dict[str, list[LoadPoint]] = {name: [] for name in self._servers}
        rows: list[Row] = []
        for rung, offered in enumerate(ladder(capacities, plan.step)):
            for name in (name for name in self._servers if not saturated(points[name])):
                point, voided = self._point(name, beam_size, offered, plan.seed + rung)
                points[name].append(point)
                row = {"kind": "load", "system": name, "beam_size": beam_size, **point.row()}
                rows.append({**row, "voided_before": voided})
        return [*rows, summary(beam_size, capacities, points)]

    def _capacity(self, name: str, beam_size: int) -> float:
        """Sentences a second with many clients in a closed loop."""
        seconds = min(PROBE_SECONDS, self._plan.seconds)
        self._closed(name, beam_size, **PROBE, seconds=seconds / 3)  # warm-up: memory for all shapes is allocated
        answers = self._closed(name, beam_size, **PROBE, seconds=seconds)
        capacity = sum(answer.code == OK for answer in answers) / seconds
        if not capacity:
            raise LingonError(f"{name} returns only errors: {answers[0].code}")
        self._write(f"beam {beam_size}: {name}: {capacity:.0f} sentences a second with {PROBE['clients']} clients")
        return capacity

    def _point(self, name: str, beam_size: int, offered: float, seed: int) -> tuple[LoadPoint, int]:
        """One load point, and how often it was void before: a void point is measured again."""
        plan, target = self._plan, self._target(name, beam_size)
        job = OpenLoad(target=target, offered=offered, seconds=plan.seconds, warm_up=plan.warm_up, seed=seed)
        point, voided = self._once(name, job), 0
        while point.void and voided < RETRIES:
            point, voided = self._once(name, job), voided + 1
        return point, voided

    def _once(self, name: str, job: OpenLoad) -> LoadPoint:
        point = summarise(self._answers(job), job.offered, job.seconds, self._plan.objective)
        latencies = f"p50 {point.p50:.0f}, p99 {point.p99:.0f} ms"
        rates = f"goodput {point.goodput:.0f}/s, lag {point.lag_p99:.1f} ms{' VOID' if point.void else ''}"
        self._write(f"beam {job.target.beam_size}: {name} at {job.offered:.0f}/s: {latencies}, {rates}")
        return point

    def _closed(self, name: str, beam_size: int, clients: int, requests: int, seconds: float) -> list[Answer]:
        job = ClosedLoad(target=self._target(name, beam_size), clients=clients, requests=requests, seconds=seconds)
        return self._answers(job)

    def _target(self, name: str, beam_size: int) -> Target:
        return Target(address=self._servers[name].address, beam_size=beam_size, timeout=self._plan.timeout)

    def _answers(self, job: LoadJob) -> list[Answer]:
        return [Answer(*each) for each in self._generator.ask(**to_json(job))["answers"]]

    def _engine_baseline(self) -> Worker:
        """The engine without a server, on the core of the servers."""
        plan = self._plan
        worker = Worker("lingon.bench.serve.engine_baseline", cores=plan.cpus.server)
        model = str(plan.bundle.folder)
        worker.ask(model=model, precision=plan.precision, threads=plan.threads, texts=plan.texts_of_single_client)
        return worker


def summary(beam_size: int, capacities: Mapping[str, float], points: Mapping[str, list[LoadPoint]]) -> Row:
    """The highest load of each system that meets the objective, and the ratio of the first system to CTranslate2."""
    reached = {name: best(found) for name, found in points.items()}
    goodput = {name: round(point.offered, 2) if point else 0.0 for name, point in reached.items()}
    first, ctranslate2 = next(iter(goodput.values())), goodput.get(CTRANSLATE2)
    return {
        "kind": "summary",
        "beam_size": beam_size,
        "capacity_per_s": {name: round(value, 2) for name, value in capacities.items()},
        "goodput_per_s": goodput,
        "ratio": round(first / ctranslate2, 3) if first and ctranslate2 else None,
        "void_points": {name: sum(point.void for point in found) for name, found in points.items()},
    }


def _client_row(name: str, beam_size: int, times: list[float], engine: list[float]) -> Row:
    row: Row = {
        "kind": "one client",
        "system": name,
        "beam_size": beam_size,
        "requests": len(times),
        "median_ms": round(statistics.median(times), 3),
    }
    if engine:
        row["engine_median_ms"] = round(statistics.median(engine), 3)
        row["overhead_ms"] = round(statistics.median(times) - statistics.median(engine), 3)
        pairs = zip(times, engine, strict=True)
        row["overhead_pairwise_ms"] = round(statistics.median(time - own for time, own in pairs), 3)
    return row


def _server_of(plan: Plan, system: System) -> AbstractContextManager[Server]:
    """A context with the server of a system; it is started unless it runs already."""
    if system.address:
        return nullcontext(Server(system.address, "", 0.0, 0))
    return serving(system.command, plan.cpus.server)


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
                serving([sys.executable, "-m", "lingon.bench.serve.null_engine", kind, str(model)], cpus.server)
            )
            for kind in KINDS
        }
        generator = stack.enter_context(Worker("lingon.bench.serve.load", cores=cpus.client))
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
