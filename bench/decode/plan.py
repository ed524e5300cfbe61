"""Who takes part: every engine in every setting that it is measured in, and why one cannot."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import lingon.bench.engines
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.workloads.workload import Work
from lingon.bundle import MANIFEST, WEIGHTS, Bundle
from lingon.errors import SettingsError
from lingon.serving.system.cpu import default_engines, threads_per_engine

BATCHES = {1: (1, 8, 32, 128), 4: (1, 8, 32)}
"""The batches that are measured, by beam size."""

OURS = "lingon"
RIVAL = "ctranslate2"
STAGGERED = "lingon staggered"
MODULES = {
    OURS: "lingon.bench.engines.lingon",
    RIVAL: "lingon.bench.engines.ctranslate2",
    "transformers": "lingon.bench.engines.transformers",
    "optimum": "lingon.bench.engines.optimum",
}
"""The module of every engine; see lingon.bench.engines.base for what it holds."""

PRECISIONS: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
WITH_SHORTLIST = (OURS, RIVAL)


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """An engine in one setting: a process of its own."""

    engine: str
    setting: Setting

    @property
    def label(self) -> str:
        """As in "ctranslate2 int8 2x1": engine, precision, workers x threads of each."""
        return f"{self.engine} {self.setting.precision} {self.shape}"

    @property
    def shape(self) -> str:
        """Workers x threads of each."""
        return f"{self.setting.workers}x{self.setting.threads}"

    def takes(self, cell: Cell) -> bool:
        """Whether it can be asked for this cell: with more workers than sentences, more of them would run at a time."""
        alone = self.engine == OURS or self.setting.workers <= cell.batch
        return alone and (not cell.shortlist or self.engine in WITH_SHORTLIST)


def entrants(engines: Sequence[str], cores: int) -> list[EngineSetting]:
    """Every setting of these engines on a machine with so many cores; of all engines where none is named."""
    if unknown := [engine for engine in engines if engine not in MODULES]:
        raise SettingsError(f"--engine must be of {', '.join(MODULES)}, got {unknown[0]}")
    shapes = dict.fromkeys([(1, cores), (cores, 1)])
    many = [
        Setting(precision=precision, workers=workers, threads=threads)
        for precision in PRECISIONS
        for workers, threads in shapes
    ]
    served = [  # as `lingon serve` has it where nothing is said
        Setting(precision=precision, workers=default_engines(), threads=threads_per_engine(default_engines()))
        for precision in PRECISIONS
    ]
    table = {OURS: served, RIVAL: many}
    alone = [Setting(workers=1, threads=cores)]
    return [
        EngineSetting(name, each) for name in MODULES if name in (engines or MODULES) for each in table.get(name, alone)
    ]


def split(wanted: Iterable[EngineSetting], bundle: Bundle) -> tuple[list[EngineSetting], list[str]]:
    """Who can run this bundle, and for everybody else a line that says why not."""
    able: list[EngineSetting] = []
    lines: dict[str, None] = {}
    for entrant in wanted:
        reason = _why_not(entrant, bundle)
        if reason is None:
            able.append(entrant)
        else:
            lines[f"{entrant.engine} is left out: {reason}"] = None
    return able, list(lines)


def folder_of(engine: str, bundle: Bundle, cache: Path) -> Path:
    """Where an engine's model files are: the bundle itself, or a folder of their own below cache.

    That folder's name changes with the bundle and with the code that converts it, so that nothing stale is measured.
    """
    if engine == OURS:
        return bundle.folder
    digest = hashlib.sha256((bundle.folder / MANIFEST).read_bytes())
    for path in sorted(Path(lingon.bench.engines.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    return cache / engine / f"{bundle.manifest.name}-{bundle.manifest.version}-{digest.hexdigest()[:12]}"


def module_of(engine: str) -> ModuleType:
    """The engine's module; what it wraps is imported when it is loaded."""
    return importlib.import_module(MODULES[engine])


def bytes_of(entrant: EngineSetting, folder: Path, bundle: Bundle) -> int:
    """What its model files take on disk; of a bundle, what its precision reads."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if entrant.engine == OURS:
        weights = bundle.manifest.precisions[entrant.setting.precision].weights
        unread = {name for name in bundle.manifest.precisions if name != entrant.setting.precision}
        parts = [(path, path.relative_to(folder).parts) for path in files]
        files = [
            path for path, (first, *rest) in parts if first not in unread and (first != WEIGHTS or rest[0] in weights)
        ]
    return sum(path.stat().st_size for path in files)


def _why_not(entrant: EngineSetting, bundle: Bundle) -> str | None:
    if entrant.engine == OURS and entrant.setting.precision not in bundle.manifest.precisions:
        return f"{bundle.folder} has no precision {entrant.setting.precision}"
    reason: str | None = module_of(entrant.engine).why_not()
    return reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a user narrows the table down to; nothing said is all."""

    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        known = {"--beam-size": (self.beam_sizes, set(BATCHES)), "--batch": (self.batches, set(BATCHES[1]))}
        for option, (asked, offered) in known.items():
            if unknown := sorted(set(asked) - offered):
                raise SettingsError(f"{option} must be of {', '.join(map(str, sorted(offered)))}, got {unknown[0]}")


def cells_of(work: Work, max_length: int, wanted: Wanted, *, shortlist: bool) -> list[Cell]:
    """The cells of a work: greedy, beam search, and greedy over a shortlist where the work has one.

    max_length: target tokens at most, where the work asks for no exact length
    """
    found = []
    for short in (False, True) if shortlist else (False,):
        for beam_size, batches in BATCHES.items():
            if (short and beam_size > 1) or (wanted.beam_sizes and beam_size not in wanted.beam_sizes):
                continue
            for batch in batches:
                if not wanted.batches or batch in wanted.batches:
                    found.append(_cell(work, batch, beam_size, short, max_length))
    return found


def sentences_of(work: Work, cell: Cell) -> Sequence[Sequence[int]]:
    """The sources of one run: a single batch where every output has one length, otherwise the work's real mix."""
    return work.sources if work.exact_length is None else work.sources[: cell.batch]


def title(cell: Cell) -> str:
    """What a cell is called where it stands alone."""
    return f"{cell.work}, batch {cell.batch}, beam {cell.beam_size}{', shortlist' if cell.shortlist else ''}"


def _cell(work: Work, batch: int, beam_size: int, shortlist: bool, max_length: int) -> Cell:
    return Cell(
        work=work.name,
        batch=batch,
        beam_size=beam_size,
        shortlist=shortlist,
        exact_length=work.exact_length,
        max_length=max_length,
    )
