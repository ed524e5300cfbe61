"""Measures the layers: seconds of the forward pass in interleaved rounds, and bytes kept for the gradients."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lingon.bench.attention_cost.layers import FLOAT, LAYERS, Layer, Size
from lingon.errors import SettingsError

GIB = 2**30  # bytes
CALLS = 10_000  # at most, in one measurement

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class CostOptions:
    """What is measured, and the bounds above which a layer is left out."""

    lengths: tuple[int, ...] = tuple(2**power for power in range(4, 12))  # positions
    dim: int = 64  # width of all layers
    radius: int = 16  # positions to each side
    kernel: int = 3  # positions
    rounds: int = 7
    shortest: float = 0.02  # seconds of a measurement; faster layers are called several times
    slow: float = 5.0  # seconds of one call
    memory: float = 2.0  # GiB of weights and kept activations together
    threads: int = 1

    def __post_init__(self) -> None:
        if not self.lengths:
            raise SettingsError("lengths must name at least 1 length, got none")
        for name in ("rounds", "threads"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("slow", "memory"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} must be above 0, got {getattr(self, name)}")
        self.sizes()  # Each size checks its own values.

    @classmethod
    def quick(cls) -> CostOptions:
        """A trial of about a second."""
        return cls(lengths=(16, 32, 64), rounds=2, shortest=0.0)

    def sizes(self) -> list[Size]:
        """A size for each length, the shortest first."""
        return [
            Size(length=length, dim=self.dim, radius=self.radius, kernel=self.kernel)
            for length in sorted(set(self.lengths))
        ]


def measure(options: CostOptions, write: Callable[[str], None]) -> list[Row]:
    """Return a row for each layer and length; a row that was not measured has the reason.

    write: receives a line about each length
    """
    found: list[Row] = []
    slow: dict[str, str] = {}
    with _threads(options.threads):
        for size in options.sizes():
            rows = _measure_length(size, options, slow)
            slow.update({row["layer"]: row["reason"] for row in rows if row["reason"] is not None})
            write(f"length {size.length}: {sum(row['reason'] is None for row in rows)} of {len(rows)} layers measured")
            found += rows
    return found


def _measure_length(size: Size, options: CostOptions, left_out: dict[str, str]) -> list[Row]:
    """Measure all layers at one length, in turns. left_out: layers that a shorter length left out, with the reason."""
    generator = torch.Generator().manual_seed(size.length)
    hidden = torch.randn(1, size.length, size.dim, generator=generator)
    rows, calls = {kind.name: _formulas(kind, size) for kind in LAYERS}, {}
    layers: dict[str, Layer] = {}
    for kind in LAYERS:
        row = rows[kind.name]
        row["reason"] = left_out.get(kind.name) or too_large(kind, size, options.memory)
        if row["reason"] is None:
            layer = kind(size)
            row["kept_bytes"] = kept_bytes(layer, hidden)
            once = seconds(layer, hidden, 1)
            if once > options.slow:
                row["reason"] = f"a call at length {size.length} takes {once:.1f} s, more than {options.slow:g}"
            else:
                layers[kind.name] = layer
                calls[kind.name] = min(max(math.ceil(options.shortest / once), 1), CALLS)
    for _ in range(options.rounds):
        for name, layer in layers.items():
            rows[name]["runs_ms"].append(round(1000 * seconds(layer, hidden, calls[name]), 5))
    for name in layers:
        rows[name]["median_ms"] = statistics.median(rows[name]["runs_ms"])
    return list(rows.values())


def _formulas(kind: type[Layer], size: Size) -> Row:
    """A row without measurements."""
    return {
        "layer": kind.name,
        "length": size.length,
        "dim": size.dim,
        "radius": size.radius,
        "kernel": size.kernel,
        "weights": kind.weights(size),
        "multiply_adds": kind.multiply_adds(size),
        "formula_bytes": kind.kept_bytes(size),
        "kept_bytes": None,
        "runs_ms": [],
        "median_ms": None,
        "reason": None,
    }


def too_large(kind: type[Layer], size: Size, limit: float) -> str | None:
    """Why a layer is too large for memory; None if it is not. limit: GiB."""
    needed = (FLOAT * kind.weights(size) + kind.kept_bytes(size)) / GIB
    if needed <= limit:
        return None
    return f"weights and activations at length {size.length} need {needed:.3g} GiB, more than {limit:g}"


def seconds(layer: nn.Module, hidden: Tensor, calls: int) -> float:
    """The mean seconds of a forward pass without gradients; an additional first call is not counted."""
    with torch.inference_mode():
        layer(hidden)
        begin = time.perf_counter()
        for _ in range(calls):
            layer(hidden)
        return (time.perf_counter() - begin) / calls


def kept_bytes(layer: nn.Module, hidden: Tensor) -> int:
    """The bytes that autograd keeps of a forward pass, without weights; storage that tensors share counts once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(hidden)  # Its graph holds all that was kept, so that no two storages have the same address.
    assert output.requires_grad
    return sum(found.values())


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Threads of torch inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def growth(rows: Sequence[Row], points: int = 3) -> list[Row]:
    """For each layer the exponents of the length: measured, of the formula, and of the order.

    points: the largest measured lengths that the exponents are fitted to; a layer with fewer than 2 has None
    """
    found = []
    for kind in LAYERS:
        own = [row for row in rows if row["layer"] == kind.name and row["reason"] is None][-points:]
        lengths = [row["length"] for row in own]
        fitted = {
            name: fit_exponent(lengths, [row[column] for row in own])
            for name, column in (
                ("time_measured", "median_ms"),
                ("time_formula", "multiply_adds"),
                ("memory_measured", "kept_bytes"),
                ("memory_formula", "formula_bytes"),
            )
        }
        orders = {"time_order": kind.time.formula, "time_order_exponent": kind.time.exponent}
        orders |= {"memory_order": kind.memory.formula, "memory_order_exponent": kind.memory.exponent}
        found.append({"layer": kind.name, "lengths": lengths, **orders, **fitted})
    return found


def fit_exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """The exponent e of values ~ lengths^e by least squares of the logarithms; None for fewer than two lengths."""
    if len(lengths) < 2:
        return None
    slope, _ = statistics.linear_regression([math.log(each) for each in lengths], [math.log(each) for each in values])
    return round(slope, 3)
