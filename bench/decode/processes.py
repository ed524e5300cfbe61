"""The engine processes for one bundle: each setting is loaded once and then measured in every cell that it supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from lingon.bench.decode.plan import LINGON, STAGGERED, EngineSetting, bytes_of, folder_of
from lingon.bench.engines.base import Cell, Tokens
from lingon.bench.worker_process import Worker
from lingon.bundle import Bundle
from lingon.files import publish_folder

EngineMode = tuple[str, EngineSetting]
"""A name in the results (the engine's, or STAGGERED) and the setting of the engine."""

Measure = Callable[[int], tuple[float, Tokens]]
"""Translate the sentences of a cell N times; returns the milliseconds of one time, and the outputs."""


@dataclass(slots=True)
class LoadedEngine:
    """The process of an engine that has loaded its model."""

    process: Worker
    load_s: float
    disk_mb: float
    peak_mb: float = 0.0


@dataclass(slots=True)
class EngineProcesses:
    """The processes of engine settings for a bundle; used as a `with`.

    show: receives a line about the current activity, for a progress display
    """

    bundle: Bundle
    settings: Sequence[EngineSetting]
    cache: Path
    show: Callable[[str], None]
    engines: dict[EngineSetting, LoadedEngine] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> EngineProcesses:
        with ExitStack() as stack:
            for each in self.settings:
                self.engines[each] = load_engine(each, self.bundle, self.cache, self.show, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def set_sources(self, sources: Sequence[Sequence[int]]) -> None:
        """Set the sources that all engines translate from now on."""
        for engine in self.engines.values():
            engine.process.ask(do="sources", sources=sources)

    def measures(self, cell: Cell, count: int) -> dict[EngineMode, Measure]:
        """For each mode that supports the cell, the function that measures it on the first `count` sources."""
        found: dict[EngineMode, Measure] = {}
        for each, engine in self.engines.items():
            if each.supports(cell):
                found[each.engine, each] = measure_of(engine, cell, count)
                if each.engine == LINGON and cell.exact_length and cell.batch > 1:
                    found[STAGGERED, each] = measure_of(engine, cell, count, staggered=True)
        return found


def load_engine(
    engine_setting: EngineSetting, bundle: Bundle, cache: Path, show: Callable[[str], None], stack: ExitStack
) -> LoadedEngine:
    """Start the process of an engine, which the stack ends; its model files are written first, if they are missing."""
    folder = folder_of(engine_setting.engine, bundle, cache)
    if not folder.is_dir():
        show(f"writing the model files of {engine_setting.engine}")
        with publish_folder(folder) as part, _worker(engine_setting) as process:
            process.ask(do="prepare", bundle=str(bundle.folder), folder=str(part))
    show(f"loading {engine_setting.label}")
    process = stack.enter_context(_worker(engine_setting))
    load_s = process.ask(do="load", folder=str(folder), setting=asdict(engine_setting.setting))["load_s"]
    return LoadedEngine(process, load_s, bytes_of(engine_setting, folder, bundle) / 2**20)


def measure_of(engine: LoadedEngine, cell: Cell, count: int, *, staggered: bool = False) -> Measure:
    """The function that measures an engine in a cell, on the first `count` sources."""
    return partial(_measure, engine, cell, count, staggered)


def _worker(engine_setting: EngineSetting) -> Worker:
    return Worker("lingon.bench.decode.worker", engine_setting.engine, label=engine_setting.label)


def _measure(engine: LoadedEngine, cell: Cell, count: int, staggered: bool, repeats: int) -> tuple[float, Tokens]:
    answer = engine.process.ask(do="translate", cell=asdict(cell), count=count, repeats=repeats, staggered=staggered)
    engine.peak_mb = answer["peak_mb"]
    return answer["ms"], answer["outputs"]
