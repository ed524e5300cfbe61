"""The plan of `lingon bench serve`: the servers to measure, the sentences, the cores, and the settings of the load."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lingon.bench.serve.load.latency import Objective
from lingon.bench.worker_process import Cores
from lingon.bench.workloads.sample_sentences import sample_file
from lingon.bundle import Bundle
from lingon.errors import SettingsError
from lingon.lines import read_lines
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
    """The server of lingon.bench.serve.servers.ctranslate2; empty, with a line to `write`, if it cannot run here.

    folder: the converted model is written here
    options: those of lingon.bench.serve.servers.ctranslate2; None leaves an option at its default
    """
    from lingon.bench.engines import ctranslate2

    if reason := ctranslate2.unavailable_reason():
        write(f"CTranslate2 is left out: {reason}")
        return []
    ctranslate2.prepare(bundle, folder)
    flags = _flags({"model": bundle.folder, "converted": folder, **options})
    command = (sys.executable, "-m", "lingon.bench.serve.servers.ctranslate2", *flags)
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
