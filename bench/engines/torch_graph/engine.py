"""The bare loop in the benchmarks: a CUDA graph for a step on CUDA, the same operations one by one on the CPU.

A search has one shape, so that sentences are decoded batch by batch, similar lengths together.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from lingon.bench.engines.base import Cell, Setting, Tokens
from lingon.bench.engines.batches import Batch, batches, limit
from lingon.bench.engines.conversion import model_of
from lingon.bench.engines.torch_graph.model import Network
from lingon.bench.engines.torch_graph.search import Search, SearchShape
from lingon.bundle import Bundle, Limits, open_bundle
from lingon.errors import SettingsError

ALIGNED = 8  # positions; the kernels of attention take a mask only with rows of whole vectors


def unavailable_reason() -> str | None:
    """The reason if torch is not installed."""
    return None if importlib.util.find_spec("torch") else "torch is not installed"


def prepare(bundle: Bundle, folder: Path) -> None:
    """Do nothing: the loop reads the bundle itself."""


def load(folder: Path, setting: Setting) -> TorchGraph:
    """The weights of a bundle's folder on the device of the setting."""
    import torch

    if setting.device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("torch-graph: torch sees no CUDA device")
    if setting.precision == "int8":
        raise SettingsError("torch-graph is measured in fp32 and fp16, got int8")
    torch.set_num_threads(setting.threads)
    bundle = open_bundle(folder)
    kind = torch.float16 if setting.precision == "fp16" else torch.float32
    return TorchGraph(Network(model_of(bundle)).to(setting.device, kind).eval(), bundle.manifest.limits)


class TorchGraph:
    """See lingon.bench.engines.base.BenchEngine. The searches of a cell are kept until the next cell begins."""

    def __init__(self, network: Network, limits: Limits) -> None:
        self._network, self._limits = network, limits
        self._cell: Cell | None = None
        self._searches: dict[SearchShape, Search] = {}

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Translate one batch after the other; every sentence gets as many tokens as its limit."""
        import torch

        if not cell.is_forced:
            raise SettingsError("torch-graph decodes only outputs whose lengths are given")
        if cell != self._cell:
            self._searches.clear()  # before others are allocated
            self._cell = cell
        found: Tokens = [[] for _ in sources]
        with torch.inference_mode():
            for batch in batches(sources, cell, self._limits, cell.batch):
                chosen = [sources[index] for index in batch.indices]
                limits = [limit(len(source), cell, self._limits) for source in chosen]
                rows = self._search(batch, chosen, cell).run(chosen, limits)
                for index, tokens in zip(batch.indices, rows, strict=True):
                    found[index] = tokens
        return found

    def _search(self, batch: Batch, sources: Sequence[Sequence[int]], cell: Cell) -> Search:
        """The search of a batch."""
        width = _aligned(max(map(len, sources)))
        shape = SearchShape(len(sources), cell.beam_size, width, _aligned(batch.longest))
        if shape not in self._searches:
            self._searches[shape] = Search(self._network, shape)
        return self._searches[shape]


def _aligned(positions: int) -> int:
    return -(-positions // ALIGNED) * ALIGNED
