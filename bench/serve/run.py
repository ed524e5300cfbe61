"""`lingon bench serve`: its plan and its servers, a run step by step, and tables and chart of the results.

A run measures starts, a single client, capacity and loads, or the cost of a request without decoding.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from lingon.bench.results_file import (
    Row,
    load_pyplot,
    new_table,
    note,
    percentile,
    save,
    save_chart,
    search_name,
    terminal,
)
from lingon.bench.serve.load import (
    OK,
    Answer,
    ClosedLoad,
    LoadJob,
    LoadPoint,
    Objective,
    OpenLoad,
    Target,
    best,
    offered_loads,
    saturated,
    summarise,
    to_json,
)
from lingon.bench.worker_process import ChildProcess, Cores, Worker, cpu_seconds
from lingon.bench.workloads import sample_file
from lingon.bundle.names import WEIGHTS
from lingon.bundle.store import Bundle
from lingon.errors import LingonError, SettingsError
from lingon.files import read_lines
from lingon.text import normalise

LINGON, CTRANSLATE2, EXTERNAL = "lingon", "ctranslate2", "server"
"""The names of the systems in the results. EXTERNAL is a server that runs already (--server)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuPlan:
    """The cores of the server and of the load generator, which share the core of a machine with only one."""

    server: Cores
    client: Cores

    @classmethod
    def choose(cls) -> CpuPlan:
        """Return the first usable core for the server, and the last one for the load generator."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(server=frozenset(usable[:1]), client=frozenset(usable[-1:]))

    @property
    def shared(self) -> bool:
        """Whether load generator and server compete for a core."""
        return bool(self.server & self.client)


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """A server to measure.

    command: starts the server on a free port; empty if the server runs already, at address
    """

    name: str
    command: tuple[str, ...] = ()
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All settings of a run."""

    bundle: Bundle
    texts: list[str]
    cpus: CpuPlan
    systems: tuple[System, ...] = ()
    precision: str | None = None  # of the engine baseline, the same as of our server
    threads: int | None = None  # of the engine baseline, the same as of our server
    beam_sizes: tuple[int, ...] = (1, 4)
    clients: tuple[int, ...] = ()  # numbers of clients, for which only the latency is measured
    seconds: float = 10.0  # measured seconds of a load point
    warm_up: float = 2.0  # seconds of the same load before the measured ones
    step: float = 1.12  # factor between two loads near saturation
    seed: int = 1
    rounds: int = 5  # starts of each server, and rounds with a single client
    single_client_texts: int = 100  # sentences of the single client in a round, at most
    objective: Objective = field(default_factory=Objective)

    @property
    def texts_of_single_client(self) -> list[str]:
        """The sentences that the single client sends in a round."""
        return self.texts[: self.single_client_texts]

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise SettingsError(f"seconds must be above 0, got {self.seconds}")
        if self.step <= 1:
            raise SettingsError(f"step must be above 1, got {self.step}")
        most = self.bundle.manifest.limits.max_beam_size
        if not all(1 <= beam_size <= most for beam_size in self.beam_sizes):
            raise SettingsError(f"beam sizes must be 1 to {most}, got {', '.join(map(str, self.beam_sizes))}")


def lingon_system(model: Path, address: str | None, options: Mapping[str, object]) -> System:
    """Return the running server at this address. Without an address, return our server, started with these options."""
    if address:
        return System(name=EXTERNAL, address=address)
    return System(name=LINGON, command=lingon_command(model, options))


def lingon_command(model: Path, options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the command that starts our server on free ports.

    options: those of `lingon serve`; None leaves an option at its default
    """
    always = {"port": 0, "metrics_port": 0, "device": "cpu", "log_level": "warning"}
    return (sys.executable, "-m", "lingon", "serve", str(model), *_flags({**always, **options}))


def ctranslate2_systems(
    bundle: Bundle, folder: Path, options: Mapping[str, object], write: Callable[[str], None]
) -> list[System]:
    """Return the server for CTranslate2, or no server and a line to `write` if it cannot run here.

    folder: the converted model is written here
    options: those of lingon.bench.serve.ctranslate2_server; None leaves an option at its default
    """
    from lingon.bench.engines import ctranslate2

    if reason := ctranslate2.unavailable_reason():
        write(f"CTranslate2 is left out: {reason}")
        return []
    ctranslate2.prepare(bundle, folder)
    flags = _flags({"model": bundle.folder, "converted": folder, **options})
    command = (sys.executable, "-m", "lingon.bench.serve.ctranslate2_server", *flags)
    return [System(name=CTRANSLATE2, command=command)]


def _flags(options: Mapping[str, object]) -> list[str]:
    given = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None}
    return [part for flag in given.items() for part in flag]


def sentences(bundle: Bundle, data: Path | None, seed: int) -> list[str]:
    """Return real sentences that the model reads whole, shuffled by the seed, so that lengths are mixed.

    data: a folder with tatoeba.SOURCE-TARGET.test.SOURCE.gz; by default the sample sentences of the repository
    """
    source, target = bundle.manifest.source_language, bundle.manifest.target_language
    path = data / f"tatoeba.{source}-{target}.test.{source}.gz" if data else sample_file(source)
    tokenizer, most = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    texts = [text for text in map(normalise, read_lines(path)) if text and len(tokenizer.encode_source(text)) <= most]
    if not texts:
        raise SettingsError(f"{path}: has no sentence of at most {most} tokens, the limit of {bundle.label}")
    random.Random(seed).shuffle(texts)
    return texts


READY = re.compile(r"^ready: .*? on (?P<address>\S+:\d+)(?:, metrics on (?P<metrics>\S+:\d+))?")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    address: HOST:PORT
    ready: the line with which the server reported that it is ready
    seconds: from the start of the process to that line
    metrics: HOST:PORT of its /metrics, if it has one
    """

    address: str
    ready: str
    seconds: float
    pid: int
    metrics: str | None = None

    def memory(self) -> dict[str, float]:
        """Return the resident memory now (rss_mb) and at its highest (peak_mb), in megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        kilobytes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
        return {"rss_mb": int(kilobytes["VmRSS"]) * 1024 / 1e6, "peak_mb": int(kilobytes["VmHWM"]) * 1024 / 1e6}


@contextmanager
def serving(command: Sequence[str], cores: Cores) -> Iterator[Server]:
    """Start a server, wait for its line `ready: ... on HOST:PORT`, and terminate it at the end of the block."""
    start = time.perf_counter()
    with ChildProcess(command, cores=cores) as process:
        found = _wait_until_ready(process, command)
        seconds = time.perf_counter() - start
        yield Server(found["address"], found.string.strip(), seconds, process.pid, found["metrics"])


def _wait_until_ready(process: ChildProcess, command: Sequence[str]) -> re.Match[str]:
    while line := process.read_line():
        if found := READY.match(line):
            return found
    raise LingonError(f"{' '.join(command[1:4])} ended before it was ready: {process.exit_reason()}")


BASE_MB = 150.0  # megabytes of Python, gRPC and ONNX Runtime
REST_SECONDS = 3.0  # after which memory is measured once more: a server may free some when there is no work
STATE_BYTES = "lingon_state_bytes"  # the gauge of a server for its decoder states


def memory_bound(graphs_mb: float, caches_mb: float) -> float:
    """Return the bound of resident memory, in megabytes."""
    return 2 * graphs_mb + caches_mb + BASE_MB


def loaded_mb(bundle: Bundle, precision: str) -> float:
    """Return the size in megabytes of the files that a server reads for a precision."""
    graphs = [name for name in bundle.manifest.checksums if name.startswith(f"{precision}/")]
    weights = [f"{WEIGHTS}/{name}" for name in bundle.manifest.precisions[precision].weights]
    return sum((bundle.folder / name).stat().st_size for name in graphs + weights) / 1e6


def gauge_sum(metrics: str, name: str) -> float | None:
    """Return the sum of all series of a gauge in the text of /metrics; None if there is no such gauge."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values)) if values else None


def memory_row(plan: Plan, name: str, server: Server, beam_size: int) -> dict[str, Any]:
    """Return the memory of a server after the loads of a beam size, for our server also the bound."""
    row = {"kind": "memory", "system": name, "beam_size": beam_size}
    held = {key: round(value, 1) for key, value in server.memory().items()}
    if name != LINGON or not server.metrics:
        return {**row, **held}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # The server is on this machine.
    with opener.open(f"http://{server.metrics}/metrics", timeout=10) as reply:
        metrics = reply.read().decode()
    precision = re.findall(r'lingon_model_info{[^}]*precision="([\w-]+)"', metrics)[0]
    graphs, caches = loaded_mb(plan.bundle, precision), gauge_sum(metrics, STATE_BYTES)
    return {
        **row,
        **held,
        "precision": precision,
        "graphs_mb": round(graphs, 1),
        "caches_mb": None if caches is None else round(caches / 1e6, 1),
        "bound_mb": round(memory_bound(graphs, (caches or 0.0) / 1e6), 1),
    }


WriteLine = Callable[[str], None]
PROBE = {"clients": 64, "requests": 1_000_000}
"""The closed-loop load that measures capacity."""
PROBE_SECONDS = 3.0
MOST_NULL_SECONDS = 4.0  # of a round without decoding
RETRIES = 2  # times that a void load point is measured again


def run(
    plan: Plan, model: Path, address: str | None, ours: dict[str, Any], peer: dict[str, Any] | None, results: Path
) -> None:
    """Measure, show the tables, and write the results and their chart.

    address: of a server that runs; without one our server is started with the flags `ours`
    peer: flags of the server for CTranslate2; None leaves it out
    """
    with tempfile.TemporaryDirectory() as folder:
        systems = [lingon_system(model, address, ours)]
        if peer is not None:
            systems += ctranslate2_systems(plan.bundle, Path(folder) / "model", peer, note)
        rows = measure(replace(plan, systems=tuple(systems)), note)
    facts = {"ours": ours, "peer": peer if len(systems) > 1 else None, "pinned": not plan.cpus.shared}
    for table in [clients_table(rows)] if plan.clients else tables(rows, plan.objective):
        terminal().print(table)
    written = save("serve-clients" if plan.clients else "serve", rows, results, **facts)
    if not plan.clients:
        draw(rows, plan.objective, written.with_suffix(".svg"))


def run_null(plan: Plan, results: Path) -> None:
    """Measure the cost of a request without decoding, show the table, and write the results."""
    seconds = min(plan.seconds, MOST_NULL_SECONDS)
    rows = measure_overhead(plan.bundle.folder, plan.texts, plan.cpus, seconds=seconds, rounds=plan.rounds, write=note)
    terminal().print(overhead_table(rows))
    save("serve-null", rows, results, pinned=not plan.cpus.shared, seconds=seconds, rounds=plan.rounds)


def measure(plan: Plan, write: WriteLine) -> list[Row]:
    """Measure everything, or only numbers of clients if the plan has any, and return the rows of the results."""
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
    """Measure the latency with so many clients, of which each waits for its answer, and return the rows."""
    with _measurement(plan, write) as measurement:
        return [
            row
            for beam_size in plan.beam_sizes
            for clients in plan.clients
            for row in measurement.clients(beam_size, clients)
        ]


@contextmanager
def _measurement(plan: Plan, write: WriteLine) -> Iterator[Measurement]:
    """Yield the measurement, with its servers and its load generator."""
    with ExitStack() as stack:
        servers = {system.name: stack.enter_context(_server_of(plan, system)) for system in plan.systems}
        generator = stack.enter_context(Worker("lingon.bench.serve.load", cores=plan.cpus.client))
        generator.ask(texts=plan.texts)
        yield Measurement(plan, servers, generator, write)


def starts(plan: Plan, system: System) -> list[Row]:
    """Return the seconds from the start of a server's process to its ready line, on all cores, as a user starts it."""
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
        """Measure the latency of a single client, for our server also its part outside of the engine."""
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
        """Measure latency and sentences a second with a number of clients, of which each waits for its answer."""
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
        """Measure the memory of the servers that this run has started, after the loads and after a rest."""
        servers = {name: server for name, server in self._servers.items() if server.pid}
        rows = [memory_row(self._plan, name, server, beam_size) for name, server in servers.items()]
        time.sleep(REST_SECONDS)
        return [row | {"rested_mb": round(servers[row["system"]].memory()["rss_mb"], 1)} for row in rows]

    def loads(self, beam_size: int) -> list[Row]:
        """Measure all systems at each load until each is saturated. The last row is the summary."""
        plan = self._plan
        capacities = {name: self._capacity(name, beam_size) for name in self._servers}
        points: dict[str, list[LoadPoint]] = {name: [] for name in self._servers}
        rows: list[Row] = []
        for number, offered in enumerate(offered_loads(capacities, plan.step)):
            for name in (name for name in self._servers if not saturated(points[name])):
                point, voided = self._point(name, beam_size, offered, plan.seed + number)
                points[name].append(point)
                row = {"kind": "load", "system": name, "beam_size": beam_size, **point.row()}
                rows.append({**row, "voided_before": voided})
        return [*rows, summary(beam_size, capacities, points)]

    def _capacity(self, name: str, beam_size: int) -> float:
        """Measure the sentences a second with many clients in a closed loop."""
        seconds = min(PROBE_SECONDS, self._plan.seconds)
        self._closed(name, beam_size, **PROBE, seconds=seconds / 3)  # warm-up: memory for all shapes is allocated
        answers = self._closed(name, beam_size, **PROBE, seconds=seconds)
        capacity = sum(answer.code == OK for answer in answers) / seconds
        if not capacity:
            raise LingonError(f"{name} returns only errors: {answers[0].code}")
        self._write(f"beam {beam_size}: {name}: {capacity:.0f} sentences a second with {PROBE['clients']} clients")
        return capacity

    def _point(self, name: str, beam_size: int, offered: float, seed: int) -> tuple[LoadPoint, int]:
        """Measure one load point, again while it is void. Return it, and how often it was void."""
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
        return Target(address=self._servers[name].address, beam_size=beam_size)

    def _answers(self, job: LoadJob) -> list[Answer]:
        return [Answer(*each) for each in self._generator.ask(**to_json(job))["answers"]]

    def _engine_baseline(self) -> Worker:
        """Start the engine without a server, on the core of the servers."""
        plan = self._plan
        worker = Worker("lingon.bench.serve.baselines", "engine", cores=plan.cpus.server)
        model = str(plan.bundle.folder)
        worker.ask(model=model, precision=plan.precision, threads=plan.threads, texts=plan.texts_of_single_client)
        return worker


def summary(beam_size: int, capacities: Mapping[str, float], points: Mapping[str, list[LoadPoint]]) -> Row:
    """Return the highest load of each system that meets the objective, and the first system's ratio to CTranslate2."""
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
    """Return a context with the server of a system. It starts the server unless it runs already."""
    if system.address:
        return nullcontext(Server(system.address, "", 0.0, 0))
    return serving(system.command, plan.cpus.server)


KINDS = ("lingon", "echo")
CLIENTS = (1, 64)


def measure_overhead(
    model: Path, texts: Sequence[str], cpus: CpuPlan, *, seconds: float, rounds: int, write: Callable[[str], None]
) -> list[Row]:
    """Return a row for each server and number of clients: medians over rounds with all servers."""
    found: dict[tuple[int, str], list[Row]] = {}
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(
                serving([sys.executable, "-m", "lingon.bench.serve.baselines", kind, str(model)], cpus.server)
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
    """Return the rows for the terminal."""
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


COLOURS = {LINGON: "#1f4e79", CTRANSLATE2: "#b3541e"}
COLUMNS = ("p50", "p95", "p99", "good")
OFFSET: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
NARROW: dict[str, Any] = {"title_justify": "left", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
"""The style of tables that are narrow enough for the README."""
LINE_STYLES = {"p99_ms": "-", "p95_ms": "--", "p50_ms": ":"}


def tables(rows: Sequence[Row], objective: Objective) -> list[Table]:
    """Return a table of load points for each beam size, one of goodput, and one of start, single client and memory."""
    beam_sizes = sorted({row["beam_size"] for row in rows if row["kind"] == "load"})
    return [
        *(_loads_table(rows, beam_size) for beam_size in beam_sizes),
        _goodput_table(rows, objective),
        _other_measurements_table(rows),
    ]


def clients_table(rows: Sequence[Row]) -> Table:
    """Return the table of latencies with a number of clients."""
    heads = ("clients", "system", "p50 ms", "p99 ms", "sentences/s", "errors")
    table = new_table(("search",), heads, title="clients that wait for answers", **NARROW)
    for row in _of(rows, "clients"):
        times = ("never" if row[name] is None else f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms"))
        figures = (f"{row['achieved_per_s']:.0f}", str(sum(row["errors"].values())))
        table.add_row(search_name(row["beam_size"]), str(row["clients"]), row["system"], *times, *figures)
    return table


def draw(rows: Sequence[Row], objective: Objective, path: Path) -> None:
    """Draw latency against offered load, a panel for each beam size."""
    pyplot = load_pyplot()
    beam_sizes = sorted({row["beam_size"] for row in rows if row["kind"] == "load"})
    figure, panels = pyplot.subplots(
        1, len(beam_sizes), figsize=(5.5 * len(beam_sizes), 4.5), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, beam_size in zip(panels[0], beam_sizes, strict=True):
        for name in _systems(rows):
            found = [row for row in _of(rows, "load", beam_size=beam_size, system=name) if not row["void"]]
            for column, style in LINE_STYLES.items():
                known = [(row["offered_per_s"], row[column]) for row in found if row[column] is not None]
                label = f"{name}, {column.removesuffix('_ms')}"
                marker = "o" if column == "p99_ms" else None
                colour = COLOURS.get(name, "#555555")
                axes.plot(*zip(*known, strict=True), style, color=colour, marker=marker, markersize=3, label=label)
            axes.plot(
                *_reached(rows, beam_size, name, objective), "*", color=COLOURS.get(name, "#555555"), markersize=12
            )
        axes.axhline(objective.milliseconds, color="black", linewidth=0.8)
        axes.annotate(f"{objective.milliseconds:g} ms", (0, objective.milliseconds), (2, 3), **OFFSET)
        axes.set(title=search_name(beam_size), xlabel="offered load, sentences a second", yscale="log", xlim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("latency since due, ms")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(_systems(rows)), frameon=False)
    save_chart(figure, path)


def _loads_table(rows: Sequence[Row], beam_size: int) -> Table:
    names = _systems(rows)
    columns = [f"{top}\n{column}" for name in names for top, column in zip((name, "", "", ""), COLUMNS, strict=True)]
    title = f"{search_name(beam_size)}: latency since due in ms, goodput a second"
    table = new_table(("load\na second",), columns, title=title, **NARROW)
    found = list(_of(rows, "load", beam_size=beam_size))
    for offered in sorted({row["offered_per_s"] for row in found}):
        cells = [f"{offered:.0f}"]
        for name in names:
            at = [row for row in found if row["system"] == name and row["offered_per_s"] == offered]
            cells += _load_cells(at[0]) if at else [""] * 4
        table.add_row(*cells)
    return table


def _load_cells(row: Row) -> list[str]:
    if row["void"]:
        return ["void", "", f"lag {row['lag_p99_ms']:.0f}", ""]
    return [*(_milliseconds(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms")), f"{row['goodput_per_s']:.0f}"]


def _goodput_table(rows: Sequence[Row], objective: Objective) -> Table:
    names = _systems(rows)
    title = f"goodput: highest load a second with p{objective.percentile:g} within {objective.milliseconds:g} ms"
    table = new_table(("search",), [*names, "ratio (target 1.5)"], title=title, **NARROW)
    for row in _of(rows, "summary"):
        reached = [f"{row['goodput_per_s'][name]:.0f}" for name in names]
        table.add_row(search_name(row["beam_size"]), *reached, f"{row['ratio']:.2f}x" if row["ratio"] else "-")
    return table


def _reached(rows: Sequence[Row], beam_size: int, name: str, objective: Objective) -> tuple[list[float], list[float]]:
    """Return the point of the goodput on the line of the objective; empty if the objective was never met."""
    found = [row["goodput_per_s"][name] for row in _of(rows, "summary", beam_size=beam_size)]
    return [load for load in found if load], [objective.milliseconds for load in found if load]


def _other_measurements_table(rows: Sequence[Row]) -> Table:
    title = f"target of memory: 2 x graphs + caches + {BASE_MB:g} MB"
    table = new_table(("measurement",), ("system", "value", "target"), title=title, **NARROW)
    for row in _of(rows, "start"):
        table.add_row("start to ready", row["system"], f"{row['median_s']:.2f} s", _target(row, "1.5 s"))
    for row in _of(rows, "one client"):
        found = f"{row['median_ms']:.2f} ms"
        table.add_row(f"single client, {search_name(row['beam_size'])}", row["system"], found, "")
        if "overhead_ms" in row:
            table.add_row("  of it outside the engine", row["system"], f"{row['overhead_ms']:.2f} ms", "1 ms")
    for row in _of(rows, "memory"):
        rested = f", after a rest {row['rested_mb']:.0f}" if "rested_mb" in row else ""
        found = f"{row['rss_mb']:.0f} MB{rested}, at most {row['peak_mb']:.0f}"
        bound = f"{row['bound_mb']:.0f} MB" if "bound_mb" in row else ""
        if row.get("caches_mb", 0) is None:
            bound += " + caches"
        table.add_row(f"memory after {search_name(row['beam_size'])}", row["system"], found, bound)
    return table


def _target(row: Row, target: str) -> str:
    return target if row["system"] == LINGON else ""


def _of(rows: Iterable[Row], kind: str, **columns: Any) -> Iterable[Row]:
    columns["kind"] = kind
    return (row for row in rows if all(row.get(name) == value for name, value in columns.items()))


def _systems(rows: Iterable[Row]) -> list[str]:
    """Return the names of the systems in the order in which they were measured."""
    return list(dict.fromkeys(row["system"] for row in _of(rows, "load")))


def _milliseconds(value: float | None) -> str:
    """Return the text for a latency. A failed request has none, so a percentile may have none either."""
    return "never" if value is None else f"{value:.0f}"
