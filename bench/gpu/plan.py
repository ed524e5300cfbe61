"""The plan of `lingon bench gpu`: models, cells and engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lingon.bench.decode.plan import (
    CTRANSLATE2,
    LINGON,
    LINGON_GRAPHS,
    TORCH_GRAPH,
    TRANSFORMERS,
    TRANSFORMERS_STATIC,
    EngineSetting,
)
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.workloads.workload import Workload
from lingon.errors import SettingsError

ENGINES = (LINGON, LINGON_GRAPHS, TRANSFORMERS, TRANSFORMERS_STATIC, TORCH_GRAPH, CTRANSLATE2)
DEVICES = ("cuda", "cpu")
BATCHES = (1, 8, 64, 256)
BEAM_SIZES = (1, 4)
LEAST = 8  # sentences of a cell with mixed lengths at least


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuOptions:
    """The options of the command; an empty tuple selects everything."""

    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # fixed or mix
    engines: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    device: str = "cuda"
    runs: int = 5
    slow: float = 10.0  # seconds
    quick: bool = False

    def __post_init__(self) -> None:
        choices: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
            "--model": (self.models, ("base", "big")),
            "--work": (self.workloads, ("fixed", "mix")),
            "--engine": (self.engines, ENGINES),
            "--batch": (self.batches, BATCHES),
            "--beam-size": (self.beam_sizes, BEAM_SIZES),
            "--device": ((self.device,), DEVICES),
        }
        for option, (values, offered) in choices.items():
            if unknown := [value for value in values if value not in offered]:
                raise SettingsError(f"{option} must be of {', '.join(map(str, offered))}, got {unknown[0]}")

    @property
    def largest(self) -> int:
        """The largest batch that is measured."""
        return max(self.batches or BATCHES)

    def includes(self, workload: Workload) -> bool:
        """Whether the user has not excluded a workload."""
        return not self.workloads or ("fixed" if workload.exact_length else "mix") in self.workloads


def engine_settings(options: GpuOptions, cores: int) -> list[EngineSetting]:
    """The engines in the setting that each is measured in.

    On the CPU, which has few kernels for it, only Lingon computes in half precision, because it has no other graphs
    for a card.
    """
    found = []
    for engine in options.engines or ENGINES:
        half = options.device == "cuda" or engine in (LINGON, LINGON_GRAPHS)
        setting = Setting(
            precision="fp16" if half else "fp32",
            workers=1,
            threads=cores,
            device="cuda" if options.device == "cuda" else "cpu",
            cuda_graphs=engine == LINGON_GRAPHS,
            static_cache=engine == TRANSFORMERS_STATIC,
        )
        found.append(EngineSetting(engine, setting))
    return found


def cells_of(workload: Workload, options: GpuOptions) -> list[Cell]:
    """The cells of a workload that the user has not excluded."""
    return [
        Cell(
            workload=workload.name,
            batch=batch,
            beam_size=beam_size,
            exact_length=workload.exact_length,
            target_ratio=workload.target_ratio,
        )
        for beam_size, batch in product(options.beam_sizes or BEAM_SIZES, options.batches or BATCHES)
    ]


def sources_of(workload: Workload, cell: Cell) -> Sequence[Sequence[int]]:
    """The sources of one run: a single batch, of mixed lengths two batches."""
    count = cell.batch if workload.exact_length else max(2 * cell.batch, LEAST)
    return workload.sources[:count]
