"""What `lingon bench serve` measures: systems, sentences, loads."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lingon.bench.serve.latency import Objective
from lingon.bench.worker_process import Cores
from lingon.bundle import Bundle
from lingon.errors import SettingsError
from lingon.lines import read_lines
from lingon.text import Tokenizer, normalise

OURS, PEER, OTHER = "lingon", "ctranslate2", "server"
"""What the systems are called in the results; the last is a server that ran before, named by its address."""

FEW = Path(__file__).resolve().parents[2] / "tests" / "data"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Which cores run what; without two cores both run on what there is, and the figures say so."""

    server: Cores
    client: Cores

    @classmethod
    def choose(cls, server: int | None, client: int | None) -> Places:
        """A core for each; where none is named, the first and the last that this process may use."""
        usable = sorted(os.sched_getaffinity(0))
        for name, core in (("--server-core", server), ("--client-core", client)):
            if core is not None and core not in usable:
                raise SettingsError(f"{name} must be one of {', '.join(map(str, usable))}, got {core}")
        first = usable[0] if server is None else server
        last = usable[-1] if client is None else client
        return cls(server=frozenset({first}), client=frozenset({last}))

    @property
    def shared(self) -> bool:
        """Whether generator and server are in each other's way."""
        return bool(self.server & self.client)


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """A server to measure.

    command: starts it on a free port; empty where it runs already, at address
    """

    name: str
    command: tuple[str, ...] = ()
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All about a run."""

    bundle: Bundle
    texts: list[str]
    systems: tuple[System, ...]
    places: Places
    precision: str | None = None  # of the engine alone, and its threads: as our server has them
    threads: int | None = None
    beam_sizes: tuple[int, ...] = (1, 4)
    seconds: float = 10.0  # of a load point
    warm_up: float = 2.0  # seconds of the same load before them
    step: float = 1.12  # between two loads near the knee
    timeout: float = 5.0  # seconds that a request has
    seed: int = 1
    rounds: int = 5  # of one client alone, and of starts
    alone: int = 100  # sentences of one client in a round, at most
    objective: Objective = field(default_factory=Objective)

    @property
    def texts_of_one(self) -> list[str]:
        """What one client sends in a round."""
        return self.texts[: self.alone]

    def __post_init__(self) -> None:
        for name in ("seconds", "timeout"):
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.step <= 1:
            raise SettingsError(f"step must be above 1, got {self.step}")
        most = self.bundle.manifest.limits.max_beam_size
        if not all(1 <= beam_size <= most for beam_size in self.beam_sizes):
            raise SettingsError(f"beam sizes must be 1 to {most}, got {', '.join(map(str, self.beam_sizes))}")


def our_command(model: Path, options: Mapping[str, object]) -> tuple[str, ...]:
    """Starts our server on free ports; options: those of `lingon serve`, None for one that it shall choose."""
    always = {"port": 0, "metrics_port": 0, "device": "cpu", "log_level": "warning"}
    return (sys.executable, "-m", "lingon", "serve", str(model), *_flags({**always, **options}))


def peer(bundle: Bundle, folder: Path, options: Mapping[str, object], say: Callable[[str], None]) -> System | None:
    """CTranslate2 behind lingon.bench.serve.ctranslate2_server; None, and a line that says why, where it is not
    installed.

    folder: gets the bundle's weights as CTranslate2 reads them; options: those of lingon.bench.serve.ctranslate2_server
    """
    from lingon.bench.engines import ctranslate2

    if missing := ctranslate2.unavailable_reason():
        say(f"without the peer: {missing}")
        return None
    ctranslate2.prepare(bundle, folder)
    flags = _flags({"model": bundle.folder, "converted": folder, **options})
    return System(name=PEER, command=(sys.executable, "-m", "lingon.bench.serve.ctranslate2_server", *flags))


def _flags(options: Mapping[str, object]) -> list[str]:
    given = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None}
    return [part for flag in given.items() for part in flag]


def sentences(bundle: Bundle, data: Path | None, seed: int) -> list[str]:
    """Real sentences that the model reads whole, in an order of their own, so that lengths mix as they do.

    data: a folder with tatoeba.SOURCE-TARGET.test.SOURCE.gz; without it, the 500 of the tests
    """
    source, target = bundle.manifest.source_language, bundle.manifest.target_language
    path = data / f"tatoeba.{source}-{target}.test.{source}.gz" if data else FEW / f"tatoeba.{source}"
    tokenizer, most = Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits.max_source_tokens
    texts = [text for text in map(normalise, read_lines(path)) if text and len(tokenizer.encode_source(text)) <= most]
    if not texts:
        raise SettingsError(f"{path}: holds no sentence that {bundle.label} reads")
    random.Random(seed).shuffle(texts)
    return texts
