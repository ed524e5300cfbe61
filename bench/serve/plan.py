"""The plan of `lingon bench serve`: servers as processes, their memory, sentences, cores, settings of the load."""

from __future__ import annotations

import os
import random
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingon.bench.serve.load import Objective
from lingon.bench.worker_process import ChildProcess, Cores
from lingon.bench.workloads import sample_file
from lingon.bundle.names import WEIGHTS
from lingon.bundle.store import Bundle
from lingon.errors import LingonError, SettingsError
from lingon.files import read_lines
from lingon.text import normalise

LINGON, CTRANSLATE2, EXTERNAL = "lingon", "ctranslate2", "server"
"""The names of the systems in the results; EXTERNAL is a server that runs already (--server)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuPlan:
    """The cores of the server and of the load generator; on a machine with one core both share it."""

    server: Cores
    client: Cores

    @classmethod
    def choose(cls, server: int | None, client: int | None) -> CpuPlan:
        """One core for each; by default the first and the last core that this process may use."""
        usable = sorted(os.sched_getaffinity(0))
        for name, core in (("--server-core", server), ("--client-core", client)):
            if core is not None and core not in usable:
                raise SettingsError(f"{name} must be one of {', '.join(map(str, usable))}, got {core}")
        first = usable[0] if server is None else server
        last = usable[-1] if client is None else client
        return cls(server=frozenset({first}), client=frozenset({last}))

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
    systems: tuple[System, ...]
    cpus: CpuPlan
    precision: str | None = None  # of the engine baseline, the same as of our server
    threads: int | None = None  # of the engine baseline, the same as of our server
    beam_sizes: tuple[int, ...] = (1, 4)
    clients: tuple[int, ...] = ()  # numbers of clients; with them, only the latency with so many is measured
    seconds: float = 10.0  # measured seconds of a load point
    warm_up: float = 2.0  # seconds of the same load before the measured ones
    step: float = 1.12  # factor between two loads near saturation
    timeout: float = 5.0  # seconds: deadline of a request
    seed: int = 1
    rounds: int = 5  # starts of each server, and rounds with a single client
    single_client_texts: int = 100  # sentences of the single client in a round, at most
    objective: Objective = field(default_factory=Objective)

    @property
    def texts_of_single_client(self) -> list[str]:
        """The sentences that the single client sends in a round."""
        return self.texts[: self.single_client_texts]

    def __post_init__(self) -> None:
        for name in ("seconds", "timeout"):
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.step <= 1:
            raise SettingsError(f"step must be above 1, got {self.step}")
        most = self.bundle.manifest.limits.max_beam_size
        if not all(1 <= beam_size <= most for beam_size in self.beam_sizes):
            raise SettingsError(f"beam sizes must be 1 to {most}, got {', '.join(map(str, self.beam_sizes))}")


def lingon_system(model: Path, address: str | None, options: Mapping[str, object]) -> System:
    """The running server at this address; without one, our server, started with these options."""
    if address:
        return System(name=EXTERNAL, address=address)
    return System(name=LINGON, command=lingon_command(model, options))


def lingon_command(model: Path, options: Mapping[str, object]) -> tuple[str, ...]:
    """The command that starts our server on free ports.

    options: those of `lingon serve`; None leaves an option at its default
    """
    always = {"port": 0, "metrics_port": 0, "device": "cpu", "log_level": "warning"}
    return (sys.executable, "-m", "lingon", "serve", str(model), *_flags({**always, **options}))


def ctranslate2_systems(
    bundle: Bundle, folder: Path, options: Mapping[str, object], write: Callable[[str], None]
) -> list[System]:
    """The server of lingon.bench.serve.ctranslate2_server; empty, with a line to `write`, if it cannot run here.

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
    """Real sentences that the model reads whole, shuffled by the seed, so that lengths are mixed.

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
        """Resident memory now (rss_mb) and at its highest (peak_mb), in megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        kilobytes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
        return {"rss_mb": int(kilobytes["VmRSS"]) * 1024 / 1e6, "peak_mb": int(kilobytes["VmHWM"]) * 1024 / 1e6}


@contextmanager
def serving(command: Sequence[str], cores: Cores) -> Iterator[Server]:
    """Start a server and wait for its line `ready: ... on HOST:PORT`; terminate it at the end of the block."""
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
    """The bound of resident memory, in megabytes."""
    return 2 * graphs_mb + caches_mb + BASE_MB


def loaded_mb(bundle: Bundle, precision: str) -> float:
    """The size in megabytes of the files that a server reads for a precision."""
    graphs = [name for name in bundle.manifest.checksums if name.startswith(f"{precision}/")]
    weights = [f"{WEIGHTS}/{name}" for name in bundle.manifest.precisions[precision].weights]
    return sum((bundle.folder / name).stat().st_size for name in graphs + weights) / 1e6


def gauge_sum(metrics: str, name: str) -> float | None:
    """The sum of all series of a gauge in the text of /metrics; None if there is no such gauge."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values)) if values else None


def memory_row(plan: Plan, name: str, server: Server, beam_size: int) -> dict[str, Any]:
    """The memory of a server after the loads of a beam size; for our server also the bound."""
    row = {"kind": "memory", "system": name, "beam_size": beam_size}
    held = {key: round(value, 1) for key, value in server.memory().items()}
    if name != LINGON or not server.metrics:
        return {**row, **held}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
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
