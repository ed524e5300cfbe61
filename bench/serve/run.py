"""`lingon bench serve`, step by step: starts, one client alone, capacity, then the ladder of loads, by turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from lingon.bench.serve.latency import OK, Answer, Point, best, saturated, summarise
from lingon.bench.serve.load import Closed, Job, Load, Target, ladder, to_json
from lingon.bench.serve.memory import memory_row
from lingon.bench.serve.plan import OURS, PEER, Plan, System
from lingon.bench.serve.processes import Server, serving
from lingon.bench.worker_process import Worker
from lingon.errors import LingonError

Row = dict[str, Any]
Say = Callable[[str], None]
PROBE = {"clients": 64, "requests": 1_000_000}
PROBE_SECONDS = 3.0
AGAIN = 2  # times that a void load point is measured anew


def measure(plan: Plan, say: Say) -> list[Row]:
    """All rows of the results."""
    if plan.places.shared:
        say("server and generator share a core: the generator's own work counts against the server")
    say("starts, on all cores")
    rows = [row for system in plan.systems if system.command for row in starts(plan, system)]
    with ExitStack() as stack:
        servers = {system.name: stack.enter_context(_running(plan, system)) for system in plan.systems}
        generator = stack.enter_context(Worker("lingon.bench.serve.generator", cores=plan.places.client))
        generator.ask(texts=plan.texts)
        series = Series(plan, servers, generator, say)
        for beam_size in plan.beam_sizes:
            rows += series.one_client(beam_size)
            rows += series.loads(beam_size)
            rows += [memory_row(plan, name, server, beam_size) for name, server in servers.items() if server.pid]
    return rows


def starts(plan: Plan, system: System) -> list[Row]:
    """Seconds from the start of a server's process to its ready line, on all cores as a user starts it."""
    found = []
    for _ in range(plan.rounds):
        with serving(system.command, frozenset(os.sched_getaffinity(0))) as server:
            found.append(round(server.seconds, 3))
    return [{"kind": "start", "system": system.name, "runs_s": found, "median_s": statistics.median(found)}]


class Series:
    """Servers that run, and the generator that asks them."""

    def __init__(self, plan: Plan, servers: Mapping[str, Server], generator: Worker, say: Say) -> None:
        self._plan, self._servers, self._generator, self._say = plan, servers, generator, say

    def one_client(self, beam_size: int) -> list[Row]:
        """Latency of a client that is alone; for our server, how much of it is not the engine's."""
        plan = self._plan
        times: dict[str, list[float]] = {name: [] for name in self._servers}
        engine: list[float] = []
        with ExitStack() as stack:
            alone = stack.enter_context(self._alone()) if OURS in self._servers else None
            for counted in range(plan.rounds + 1):
                for name in self._servers:
                    answers = self._closed(name, beam_size, clients=1, requests=len(plan.texts_of_one), seconds=600)
                    times[name] += [answer.latency for answer in answers] if counted else []
                if alone:
                    found = alone.ask(beam_size=beam_size)["times"]
                    engine += found if counted else []
        rows = [_client_row(name, beam_size, found, engine if name == OURS else []) for name, found in times.items()]
        self._say(", ".join(f"{row['system']} one client {row['median_ms']:.2f} ms" for row in rows))
        return rows

    def loads(self, beam_size: int) -> list[Row]:
        """Every system at every load, by turns, until it is beyond saturation; then what came of it."""
        plan = self._plan
        capacities = {name: self._capacity(name, beam_size) for name in self._servers}
        points: dict[str, list[Point]] = {name: [] for name in self._servers}
        rows: list[Row] = []
        for rung, offered in enumerate(ladder(capacities, plan.step)):
            for name in (name for name in self._servers if not saturated(points[name])):
                point, voided = self._point(name, beam_size, offered, plan.seed + rung)
                points[name].append(point)
                row = {"kind": "load", "system": name, "beam_size": beam_size, **point.row()}
                rows.append({**row, "voided_before": voided})
        return [*rows, summary(beam_size, capacities, points)]

    def _capacity(self, name: str, beam_size: int) -> float:
        """Sentences a second with many clients, each of which waits for its answer."""
        seconds = min(PROBE_SECONDS, self._plan.seconds)
        self._closed(name, beam_size, **PROBE, seconds=seconds / 3)  # all shapes have been seen once
        answers = self._closed(name, beam_size, **PROBE, seconds=seconds)
        capacity = sum(answer.code == OK for answer in answers) / seconds
        if not capacity:
            raise LingonError(f"{name} answers nothing but errors: {answers[0].code}")
        self._say(f"beam {beam_size}: {name} answers {capacity:.0f} sentences a second to {PROBE['clients']} clients")
        return capacity

    def _point(self, name: str, beam_size: int, offered: float, seed: int) -> tuple[Point, int]:
        """One load point, and how often it was void before: where the generator was late, it is measured again."""
        plan, target = self._plan, self._target(name, beam_size)
        job = Load(target=target, offered=offered, seconds=plan.seconds, warm_up=plan.warm_up, seed=seed)
        point, voided = self._once(name, job), 0
        while point.void and voided < AGAIN:
            point, voided = self._once(name, job), voided + 1
        return point, voided

    def _once(self, name: str, job: Load) -> Point:
        point = summarise(self._answers(job), job.offered, job.seconds, self._plan.objective)
        times = f"p50 {point.p50:.0f}, p99 {point.p99:.0f} ms, good {point.goodput:.0f}/s, lag {point.lag_p99:.1f} ms"
        verdict = " VOID" if point.void else ""
        self._say(f"beam {job.target.beam_size}: {name} at {job.offered:.0f}/s: {times}{verdict}")
        return point

    def _closed(self, name: str, beam_size: int, clients: int, requests: int, seconds: float) -> list[Answer]:
        job = Closed(target=self._target(name, beam_size), clients=clients, requests=requests, seconds=seconds)
        return self._answers(job)

    def _target(self, name: str, beam_size: int) -> Target:
        return Target(address=self._servers[name].address, beam_size=beam_size, timeout=self._plan.timeout)

    def _answers(self, job: Job) -> list[Answer]:
        return [Answer(*each) for each in self._generator.ask(**to_json(job))["answers"]]

    def _alone(self) -> Worker:
        """The engine by itself, on the core that the servers have."""
        plan = self._plan
        worker = Worker("lingon.bench.serve.engine_baseline", cores=plan.places.server)
        model = str(plan.bundle.folder)
        worker.ask(model=model, precision=plan.precision, threads=plan.threads, texts=plan.texts_of_one)
        return worker


def summary(beam_size: int, capacities: Mapping[str, float], points: Mapping[str, list[Point]]) -> Row:
    """The highest load of each system at which the objective is met, and the first one's against the peer's."""
    reached = {name: best(found) for name, found in points.items()}
    goodput = {name: round(point.offered, 2) if point else 0.0 for name, point in reached.items()}
    ours, peer = next(iter(goodput.values())), goodput.get(PEER)
    return {
        "kind": "summary",
        "beam_size": beam_size,
        "capacity_per_s": {name: round(value, 2) for name, value in capacities.items()},
        "goodput_per_s": goodput,
        "ratio": round(ours / peer, 3) if ours and peer else None,
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


def _running(plan: Plan, system: System) -> AbstractContextManager[Server]:
    """A context with the server of a system, started here unless it runs already."""
    if system.address:
        return nullcontext(Server(system.address, "", 0.0, 0))
    return serving(system.command, plan.places.server)
