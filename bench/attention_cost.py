"""`lingon bench attention-cost`: time and memory of one layer of each kind by the length, beside their formulas.

The ways to mix values take and return the same shapes. None has weights, masks or padding.

query: (batch, heads, length, head_dim)
past: keys and values (batch, heads, length, head_dim)

Returns the concatenated heads (batch, length, heads * head_dim).
"""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Group
from rich.text import Text
from torch import Tensor, nn
from torch.nn import functional

from lingon.bench.results_file import Row, load_pyplot, new_table, note, save, save_chart, terminal
from lingon.errors import SettingsError
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import KeyValue, SelfAttention, attend, attend_linearly, attention_weights
from lingon.training.models.layers import sinusoids
from lingon.training.models.recurrent import GatedUnit


def mix_by_matrix(query: Tensor, past: KeyValue) -> Tensor:
    """Compute softmax(Q K^T / sqrt(head_dim)) V, Vaswani et al. (2017), equation 1, with the matrix in memory."""
    return _concatenated(attention_weights(query, past.key) @ past.value)


def mix_in_blocks(query: Tensor, past: KeyValue, radius: int) -> Tensor:
    """Attend from position i to the positions j with |i - j| <= radius, in blocks of `radius` queries.

    Beltagy et al. (2020), section 3.1 and appendix A, describe the blocks: a block of queries is multiplied with its
    own block of keys and with the blocks before and after it. These 3 radius keys hold the 2 radius + 1 that a query
    sees. No matrix of length x length is made.
    """
    length, blocks = query.size(2), -(-query.size(2) // radius)
    added = blocks * radius - length
    queries = functional.pad(query, (0, 0, 0, added)).view(*query.shape[:2], blocks, radius, -1)
    keys, values = (_neighbourhoods(each, radius, added) for each in past)
    scores = queries @ keys / math.sqrt(query.size(-1))
    scores = scores.masked_fill(~_within_blocks(length, blocks, radius, query.device), -math.inf)
    mixed = scores.softmax(dim=-1) @ values.transpose(-2, -1)
    return _concatenated(mixed.flatten(2, 3)[:, :, :length])


def _neighbourhoods(heads: Tensor, radius: int, added: int) -> Tensor:
    """Return the three blocks that each block of queries sees: a view (batch, heads, blocks, head_dim, 3 radius).

    heads: (batch, heads, length, head_dim); added: positions that the last block lacks
    """
    return functional.pad(heads, (0, 0, radius, added + radius)).unfold(2, 3 * radius, radius)


def _within_blocks(length: int, blocks: int, radius: int, device: torch.device) -> Tensor:
    """Return a mask (blocks, radius, 3 radius), True where a query sees a key.

    A padded query sees the last key at least, which is less than `radius` away: no softmax is without keys.
    """
    first = torch.arange(blocks, device=device)[:, None, None] * radius
    queries = first + torch.arange(radius, device=device)[:, None]
    keys = first - radius + torch.arange(3 * radius, device=device)
    distance = (queries - keys).abs()
    return (distance <= radius) & (keys >= 0) & (keys < length)


def _concatenated(mixed: Tensor) -> Tensor:
    return mixed.transpose(1, 2).flatten(2)


FLOAT = 4
"""Bytes of an element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of a layer and of its input."""

    length: int  # positions, T
    dim: int = 64  # width, D; even
    radius: int = 16  # positions to each side that windowed attention sees, r
    kernel: int = 3  # positions that the convolution sees, K; odd

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("dim", 2), ("radius", 1), ("kernel", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.dim % 2:
            raise SettingsError(f"dim must be even, got {self.dim}")
        if not self.kernel % 2:
            raise SettingsError(f"kernel must be odd, got {self.kernel}")


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a cost, and its exponent of the length."""

    formula: str
    exponent: int


class Layer(nn.Module, ABC):
    """A layer from (batch, length, dim) to the same shape."""

    name: ClassVar[str]
    time: ClassVar[Order]
    memory: ClassVar[Order]

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size

    @staticmethod
    @abstractmethod
    def multiply_adds(size: Size) -> int:
        """Return the multiply-adds of one sequence."""

    @staticmethod
    @abstractmethod
    def kept_bytes(size: Size) -> int:
        """Return the bytes that the forward pass of one sequence keeps for the gradients, without weights."""

    @staticmethod
    @abstractmethod
    def weights(size: Size) -> int:
        """Return the number of weights of the layer."""


class Attention(Layer):
    """The projections of queries, keys, values and output around a way to mix, Vaswani et al. (2017), figure 2.

    The projections have 4 T D^2 multiply-adds. The formulas count them. The orders, as in the papers, do not.
    """

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.attention = SelfAttention(TransformerSettings.model_validate({"dim": size.dim, "heads": 1}))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.attention.output(self.mix(*self.attention.project(hidden)))  # type: ignore[no-any-return]

    @abstractmethod
    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        """Return the mixed values. See `lingon.bench.attention_cost`."""

    @staticmethod
    def weights(size: Size) -> int:
        return 4 * size.dim * (size.dim + 1)


class SelfAttentionLayer(Attention):
    """Every position over all others, Vaswani et al. (2017), equation 1: softmax(Q K^T / sqrt(D)) V.

    T^2 D multiply-adds for Q K^T and T^2 D for the product with V. Kept: the input, Q, K, V and the mixed values (T D
    each), and the matrix of the weights (T^2).
    """

    name = "self-attention"
    time = Order("T^2 D", 2)
    memory = Order("T^2", 2)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_by_matrix(query, past)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 4 * size.length * size.dim**2 + 2 * size.length**2 * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (5 * size.length * size.dim + size.length**2)


class FusedSelfAttention(SelfAttentionLayer):
    """The same by the kernel of training and export, with the same operations (Dao et al., 2022, theorem 1).

    Kept: the input, Q, K, V and the mixed values (T D each), and the logarithm of each softmax's sum (T).
    """

    name = "self-attention, fused"
    memory = Order("T D", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return attend(query, past)  # keeps only tiles of the matrix of weights

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (5 * size.length * size.dim + size.length)


class WindowedSelfAttention(Attention):
    """Every position over those at most r away, Vaswani et al. (2017), section 4, in blocks of r queries.

    T' is T rounded up to whole blocks. Each block has 3 r keys (Beltagy et al., 2020, section 3.1): 3 T' r D
    multiply-adds for the scores and as many for the values. Kept: the input (T D), the padded Q and mixed values (T' D
    each), K and V with a block more on each side ((T' + 2 r) D each), the weights (3 T' r), and a byte of the mask for
    each.
    """

    name = "windowed attention"
    time = Order("T r D", 1)
    memory = Order("T (r + D)", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return mix_in_blocks(query, past, self.size.radius)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 4 * size.length * size.dim**2 + 6 * _whole_blocks(size) * size.radius * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        padded, weights = _whole_blocks(size), 3 * _whole_blocks(size) * size.radius
        vectors = size.length + 2 * padded + 2 * (padded + 2 * size.radius)
        return FLOAT * (vectors * size.dim + weights) + weights


def _whole_blocks(size: Size) -> int:
    """Return the length rounded up to a multiple of the radius."""
    return -(-size.length // size.radius) * size.radius


class LinearAttention(Attention):
    """Katharopoulos et al. (2020), equations 5 to 7, with a state of D x D. Section 3.2 has the orders.

    T D^2 multiply-adds for the state, T D^2 for its products with the queries and T D for the norms. Kept: the input,
    Q, K, V, phi(Q), phi(K), the mixed values before and after the division (T D each), the state (D^2), its norm (D)
    and the norms of the queries (T).
    """

    name = "linear attention"
    time = Order("T D^2", 1)
    memory = Order("T D + D^2", 1)

    def mix(self, query: Tensor, past: KeyValue) -> Tensor:
        return attend_linearly(query, past)

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 6 * size.length * size.dim**2 + size.length * size.dim

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * (8 * size.length * size.dim + size.dim**2 + size.dim + size.length)


class FullyConnected(Layer):
    """One product y = W x + b over the whole sequence as a vector of T D elements. Its matrix has T^2 D^2 weights.

    Every output depends on every input: T^2 D^2 multiply-adds. Kept: the input (T D).
    """

    name = "fully connected"
    time = Order("T^2 D^2", 2)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.product = nn.Linear(size.length * size.dim, size.length * size.dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.product(hidden.flatten(1)).view_as(hidden)  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return (size.length * size.dim) ** 2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return size.length * size.dim * (size.length * size.dim + 1)


class Convolution(Layer):
    """A convolution of width K with padding, Gehring et al. (2017), section 3.2, without its gates.

    y_i = sum_k W_k x_(i + k - (K - 1) / 2) + b: K T D^2 multiply-adds. Kept: the input (T D).
    """

    name = "convolution"
    time = Order("K T D^2", 1)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.convolution = nn.Conv1d(size.dim, size.dim, size.kernel, padding=size.kernel // 2)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.convolution(hidden.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return size.kernel * size.length * size.dim**2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return size.dim * (size.kernel * size.dim + 1)


class Recurrent(Layer):
    """The GRU of Cho et al. (2014), equations 5 to 8: T steps that depend on each other.

    Three gates, each with a product of the input and one of the state: 6 T D^2 multiply-adds. Kept: the input, the
    state before each step, and six vectors of its gates (T D each).
    """

    name = "recurrence (GRU)"
    time = Order("T D^2", 1)
    memory = Order("T D", 1)

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.unit = GatedUnit(size.dim, size.dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.unit(hidden, self.unit.start(hidden.size(0)))  # type: ignore[no-any-return]

    @staticmethod
    def multiply_adds(size: Size) -> int:
        return 6 * size.length * size.dim**2

    @staticmethod
    def kept_bytes(size: Size) -> int:
        return FLOAT * 8 * size.length * size.dim

    @staticmethod
    def weights(size: Size) -> int:
        return 6 * size.dim * (size.dim + 1)


LAYERS: tuple[type[Layer], ...] = (
    SelfAttentionLayer,
    FusedSelfAttention,
    WindowedSelfAttention,
    LinearAttention,
    FullyConnected,
    Convolution,
    Recurrent,
)


GIB = 2**30  # bytes
CALLS = 10_000  # at most, in one measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class CostOptions:
    """The measurements, and the bounds above which a layer is left out."""

    lengths: tuple[int, ...] = tuple(2**power for power in range(4, 12))  # positions
    dim: int = 64  # width of all layers
    radius: int = 16  # positions to each side
    kernel: int = 3  # positions
    rounds: int = 7
    shortest: float = 0.02  # seconds of a measurement at least, for which faster layers are called several times
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
        """Return the options of a trial of about a second."""
        return cls(lengths=(16, 32, 64), rounds=2, shortest=0.0)

    def sizes(self) -> list[Size]:
        """Return a size for each length, the shortest first."""
        return [
            Size(length=length, dim=self.dim, radius=self.radius, kernel=self.kernel)
            for length in sorted(set(self.lengths))
        ]


def measure(options: CostOptions, write: Callable[[str], None]) -> list[Row]:
    """Return a row for each layer and length. A row without a measurement has the reason.

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
    """Measure all layers at one length. left_out: layers that a shorter length left out, with the reason."""
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
    """Return a row without measurements."""
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
    """Return why a layer is too large for memory; None if it is not. limit: GiB."""
    needed = (FLOAT * kind.weights(size) + kind.kept_bytes(size)) / GIB
    if needed <= limit:
        return None
    return f"weights and activations at length {size.length} need {needed:.3g} GiB, more than {limit:g}"


def seconds(layer: nn.Module, hidden: Tensor, calls: int) -> float:
    """Return the mean seconds of a forward pass without gradients, after one call that is not counted."""
    with torch.inference_mode():
        layer(hidden)
        begin = time.perf_counter()
        for _ in range(calls):
            layer(hidden)
        return (time.perf_counter() - begin) / calls


def kept_bytes(layer: nn.Module, hidden: Tensor) -> int:
    """Return the bytes that autograd keeps of a forward pass, without weights. Count shared storage once."""
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
    """Set the number of torch's threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def growth(rows: Sequence[Row], points: int = 3) -> list[Row]:
    """Return the exponents of the length for each layer: measured, of the formula, and of the order.

    points: of the largest measured lengths, to which the exponents are fitted. A layer with fewer than 2 has None
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
    """Fit e of values ~ lengths^e by least squares of the logarithms, and return None for fewer than two lengths."""
    if len(lengths) < 2:
        return None
    slope, _ = statistics.linear_regression([math.log(each) for each in lengths], [math.log(each) for each in values])
    return round(slope, 3)


KIB = 1024  # bytes

_STYLES = dict(
    zip(
        (kind.name for kind in LAYERS),
        (
            ("#b3541e", "o"),
            ("#e5a877", "v"),
            ("#1f4e79", "D"),
            ("#3f9b8f", "^"),
            ("#555555", "s"),
            ("#8e5ea2", "o"),
            ("#c9a200", "P"),
        ),
        strict=True,
    )
)
"""Colour and marker by layer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One of the two costs. formula is drawn as it is, or scaled to the last measured value."""

    name: str
    unit: str
    measured: str  # column of the rows
    formula: str  # column of the rows
    divisor: float
    scaled: bool


TIME = Cost("time", "ms", "median_ms", "multiply_adds", 1.0, True)
MEMORY = Cost("memory", "KiB", "kept_bytes", "formula_bytes", KIB, False)


def tables(rows: Sequence[Row], growths: Sequence[Row]) -> list[Group]:
    """Return a table of times and one of memory. The last columns are the exponents of the growth."""
    return [_table(cost, rows, growths) for cost in (TIME, MEMORY)]


def left_out_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lengths and the reason for each layer that was not measured at all lengths."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            found.setdefault((row["layer"], row["reason"]), []).append(str(row["length"]))
    return [f"not measured: {layer} at {', '.join(lengths)} ({reason})" for (layer, reason), lengths in found.items()]


def _table(cost: Cost, rows: Sequence[Row], growths: Sequence[Row]) -> Group:
    """Return a table of layers. Columns: order, lengths, and exponents measured, of the formula, of the order."""
    lengths = sorted({row["length"] for row in rows})
    heads = (*map(str, lengths), "growth", "formula", "order")
    shown = new_table(("layer", "order"), heads, box=None, padding=(0, 1, 0, 0))
    for growth in growths:
        own = {row["length"]: row for row in rows if row["layer"] == growth["layer"]}
        cells = [_cell(own[length][cost.measured], cost.divisor) for length in lengths]
        exponents = [_cell(growth[f"{cost.name}_{name}"], 1) for name in ("measured", "formula")]
        order = growth[f"{cost.name}_order"], str(growth[f"{cost.name}_order_exponent"])
        shown.add_row(growth["layer"], order[0], *cells, *exponents, order[1])
    what = "median time" if cost.scaled else "kept for the gradients, without weights"
    title = f"{what} in {cost.unit}; exponents of the length T: measured, of the formula, of the order"
    return Group(Text(title, "bold"), shown)


def _cell(value: float | None, divisor: float) -> str:
    if value is None:
        return "-"
    shown = value / divisor
    return f"{shown:.2f}" if shown < 10 else f"{shown:.1f}" if shown < 100 else f"{shown:,.0f}"


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write the chart of time and memory against the length."""
    pyplot = load_pyplot()
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 5.4), layout="constrained")
    for panel, cost in zip(panels, (TIME, MEMORY), strict=True):
        _draw_cost(panel, cost, rows)
    _draw_weights(panels[1], rows)
    panels[0].set(title="time of the forward pass", ylabel="milliseconds")
    panels[1].set(title="memory kept for the gradients", ylabel="KiB")
    known = [panel.get_legend_handles_labels() for panel in panels]
    # The handles of the first panel have lines. The second panel adds the weights.
    legend = {
        label: handle for handles, labels in reversed(known) for handle, label in zip(handles, labels, strict=True)
    }
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False)
    save_chart(figure, output)


def _draw_cost(panel: Any, cost: Cost, rows: Sequence[Row]) -> None:
    """Draw markers for measured values, and dashed lines for the formula over all lengths."""
    for kind in LAYERS:
        own = [row for row in rows if row["layer"] == kind.name]
        measured = [row for row in own if row["reason"] is None]
        if not measured:
            continue
        scale = measured[-1][cost.measured] / measured[-1][cost.formula] if cost.scaled else 1.0
        lengths, values = [row["length"] for row in measured], [row[cost.measured] / cost.divisor for row in measured]
        panel.plot(lengths, values, label=f"{kind.name}: {_shown(kind.time.formula)}", **_style(kind.name, cost))
        formula = [scale * row[cost.formula] / cost.divisor for row in own]
        panel.plot([row["length"] for row in own], formula, "--", color=_STYLES[kind.name][0], linewidth=1)
    panel.plot([], [], "--", color="black", linewidth=1, label="formula")
    _scale_axes(panel, sorted({row["length"] for row in rows}))


def _style(layer: str, cost: Cost) -> dict[str, Any]:
    """Return the style of a layer.

    Lines join the times alone, because measured memory is on the line of the formula and would cover it.

    The marker of the fully connected layer is hollow, because the convolution keeps as much.
    """
    colour, marker = _STYLES[layer]
    hollow = layer == FullyConnected.name
    size: dict[str, Any] = {"markersize": 8, "fillstyle": "none"} if hollow else {"markersize": 4}
    return {"color": colour, "marker": marker, "linewidth": 1.6, "linestyle": "-" if cost.scaled else "none", **size}


def _shown(formula: str) -> str:
    return f"O({formula.replace('^2', '²')})"


def _draw_weights(panel: Any, rows: Sequence[Row]) -> None:
    """Draw the weights of the fully connected layer, the only ones that grow with the length."""
    own = [row for row in rows if row["layer"] == FullyConnected.name]
    weights = [FLOAT * row["weights"] / KIB for row in own]
    colour, _ = _STYLES[FullyConnected.name]
    panel.plot(
        [row["length"] for row in own],
        weights,
        color=colour,
        linestyle=":",
        linewidth=1.4,
        label="weights of fully connected",
    )


def _scale_axes(panel: Any, lengths: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(lengths, [str(length) for length in lengths])
    panel.set_xlabel("length T")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def draw_positions(output: Path, positions: int = 128, dim: int = 128) -> None:
    """Write a picture of the sinusoidal positional encoding.

    Left: the whole table (positions, dim). Right: three of its sines against the position.
    """
    pyplot, table = load_pyplot(), sinusoids(positions, dim).numpy()
    figure, (heat, curves) = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    image = heat.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", origin="upper", interpolation="nearest")
    heat.set(xlabel="dimension (even: sine, odd: cosine)", ylabel="position", title="sinusoidal positional encoding")
    figure.colorbar(image, ax=heat, fraction=0.05)
    for dimension, colour in _dimensions(dim).items():
        wavelength = f"{2 * math.pi * 10000 ** (dimension / dim):.1f}"
        curves.plot(table[:, dimension], color=colour, label=f"dimension {dimension}, wavelength {wavelength}")
    curves.set(xlabel="position", xlim=(0, positions - 1), ylim=(-1.1, 1.1), title="three of its sines")
    curves.grid(alpha=0.3)
    curves.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save_chart(figure, output)


def _dimensions(dim: int) -> Mapping[int, str]:
    """Return three even dimensions, of short, medium and long wavelength, with their colours."""
    dimensions = (dim // 8 // 2 * 2, dim // 4 // 2 * 2, 3 * dim // 8 // 2 * 2)
    return dict(zip(dimensions, ("#b3541e", "#1f4e79", "#3f9b8f"), strict=True))


def run(options: CostOptions, results: Path) -> None:
    """Measure, show the tables, and write the results and both pictures."""
    rows, console = measure(options, note), terminal()
    growths = growth(rows)
    for table in tables(rows, growths):
        console.print(table)
    for line in left_out_lines(rows):
        print(line)
    path = save("attention-cost", rows, results, threads=options.threads, growth=growths)
    draw(rows, path.with_suffix(".svg"))
    draw_positions(path.with_name(path.name.replace("attention-cost.json", "positional-encoding.svg")))
