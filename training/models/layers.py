"""The layers of a Transformer besides attention: embeddings, feed-forward, dropout, residual connections, the SSRU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.model_settings import DROPOUT_STEPS, TransformerSettings

# The layers of a Transformer besides attention: embeddings, feed-forward, dropout, residual connections.

Norm = nn.LayerNorm | nn.RMSNorm
SinusoidForm = Literal["interleaved", "halves", "inclusive-halves"]


def sinusoids(positions: int, dim: int, form: SinusoidForm = "interleaved", first: int = 0) -> Tensor:
    """Sinusoidal encodings (positions, dim) of the positions first, first + 1 and so on; dim is even.

    interleaved: Vaswani et al. (2017), section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos of it
    halves: the same, all sines before all cosines, as in OPUS-MT models for Transformers
    inclusive-halves: sines before cosines of pos / 10000^(2i/(dim-2)), whose last rate is 1 / 10000, as in fairseq and
        Marian
    """
    widest = dim - 2 if form == "inclusive-halves" else dim
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / widest))
    angle = torch.arange(first, first + positions, dtype=torch.float64)[:, None] * rate
    if form == "interleaved":
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def norm_of(settings: TransformerSettings) -> Norm:
    """Return a norm over the last dimension: LayerNorm (Ba et al., 2016), or RMSNorm (Zhang and Sennrich, 2019)."""
    kind = nn.RMSNorm if settings.norm_kind == "rms" else nn.LayerNorm
    return kind(settings.dim, settings.norm_epsilon)


class QuickGELU(nn.Module):
    """The approximation of GELU by a sigmoid: x * sigmoid(1.702 x); Hendrycks and Gimpel (2016), section 2."""

    def forward(self, value: Tensor) -> Tensor:
        return value * torch.sigmoid(1.702 * value)


ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "quick-gelu": QuickGELU,
    "silu": nn.SiLU,
}


class FeedForward(nn.Module):
    """Vaswani et al. (2017), equation 2, at every position: max(0, x W1 + b1) W2 + b2.

    Another activation can replace the ReLU max(0, x). Gated (Shazeer, 2020, equation 6): (act(x W1) * x V) W2, where W1
    and V are one matrix, W1 first.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.gated = settings.gated
        self.inner = nn.Linear(settings.dim, settings.ffn * (2 if settings.gated else 1), bias=settings.bias)
        self.outer = nn.Linear(settings.ffn, settings.dim, bias=settings.bias)
        self.activation = ACTIVATIONS[settings.activation]()

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (batch, length, dim), from hidden of the same shape."""
        if not self.gated:
            return self.outer(self.activation(self.inner(hidden)))  # type: ignore[no-any-return]
        gate, value = self.inner(hidden).chunk(2, dim=-1)
        return self.outer(self.activation(gate) * value)  # type: ignore[no-any-return]


class Dropout(nn.Module):
    """Dropout (Srivastava et al., 2014) with 16 random bits per element on the CPU.

    `nn.Dropout` draws a 64-bit number per element on the CPU, which took a quarter of a training step. The rate is
    rounded to a multiple of 1 / DROPOUT_STEPS (0.1 to 0.10001), and the kept elements are scaled by
    1 / (1 - rounded rate). On CUDA the rate is not rounded.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = round(DROPOUT_STEPS * rate)  # of the DROPOUT_STEPS numbers that an element may draw

    def forward(self, hidden: Tensor) -> Tensor:
        """Return hidden with some elements set to 0 and the others scaled up in training, hidden itself otherwise."""
        if not self.training or self.dropped == 0:
            return hidden
        if hidden.device.type != "cpu":
            return functional.dropout(hidden, self.rate)
        words = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.int16)[: hidden.numel()].view(hidden.shape)  # -DROPOUT_STEPS / 2 and up
        kept = (drawn >= self.dropped - DROPOUT_STEPS // 2).to(hidden.dtype)
        return hidden * kept.mul_(DROPOUT_STEPS / (DROPOUT_STEPS - self.dropped))


class Residual(nn.Module):
    """The residual connection of He et al. (2016) around one sublayer, with dropout: x + Dropout(sublayer(x))."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.dropout = Dropout(settings.dropout)

    def before(self, hidden: Tensor) -> Tensor:
        """Return the input of the sublayer (batch, length, dim)."""
        return hidden

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """Return the output of the connection (batch, length, dim), from its input and the output of the sublayer."""
        return hidden + self.dropout(sublayer)  # type: ignore[no-any-return]


class PostNorm(Residual):
    """That of Vaswani et al. (2017), sections 3.1 and 5.4: LayerNorm(x + Dropout(sublayer(x)))."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__(settings)
        self.norm = norm_of(settings)

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        return self.norm(super().after(hidden, sublayer))  # type: ignore[no-any-return]


class PreNorm(Residual):
    """That of Xiong et al. (2020), figure 1b: x + Dropout(sublayer(LayerNorm(x)))."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__(settings)
        self.norm = norm_of(settings)

    def before(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)  # type: ignore[no-any-return]


class BothNorms(PreNorm):
    """A norm before the sublayer and one after the sum: LayerNorm(x + Dropout(sublayer(LayerNorm(x))))."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__(settings)
        self.norm_after = norm_of(settings)

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        return self.norm_after(super().after(hidden, sublayer))  # type: ignore[no-any-return]


class SandwichNorms(PreNorm):
    """A norm before the sublayer and one of its output: x + Dropout(LayerNorm(sublayer(LayerNorm(x)))).

    Ding et al. (2021), https://arxiv.org/abs/2105.13290, section 2.4.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__(settings)
        self.norm_after = norm_of(settings)

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        # In mixed precision products return a narrow type, which autocast widens for LayerNorm and not for RMSNorm.
        return super().after(hidden, self.norm_after(sublayer.to(self.norm_after.weight.dtype)))


RESIDUALS: Mapping[str, Callable[[TransformerSettings], Residual]] = {
    "post": PostNorm,
    "pre": PreNorm,
    "both": BothNorms,
    "sandwich": SandwichNorms,
}
WITHOUT_NORM_BEFORE: Mapping[str, Callable[[TransformerSettings], Residual]] = {"pre": Residual, "both": PostNorm}
"""The residual connections around an attention that has its norm itself."""


def residual_connection(settings: TransformerSettings, *, norm_inside: bool = False) -> Residual:
    """Return the residual connection around one sublayer.

    norm_inside: whether the sublayer has the norm before it itself
    """
    return (WITHOUT_NORM_BEFORE if norm_inside else RESIDUALS)[settings.norm](settings)


class Embedding(nn.Module):
    """Dropout(sqrt(dim) * piece + position), Vaswani et al. (2017), sections 3.4, 3.5 and 5.4.

    Positions none, rotary and relative add nothing here. The scale, and a norm before the dropout, are settings.
    """

    positions: Tensor  # (max_positions, dim)

    def __init__(self, settings: TransformerSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.dim) if settings.scale_embedding else 1.0
        self.pieces = nn.Embedding(vocab, settings.dim)
        self.norm = norm_of(settings) if settings.embedding_norm else nn.Identity()
        self.dropout = Dropout(settings.dropout)
        table = sinusoids(settings.max_positions, settings.dim, settings.sinusoids, settings.first_position)
        if settings.positions == "learned":
            self.positions = nn.Parameter(torch.empty_like(table).normal_(std=settings.dim**-0.5))
        else:
            table = table if settings.positions == "sinusoidal" else torch.zeros_like(table)
            self.register_buffer("positions", table, persistent=False)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """Return (batch, length, dim), for ids (batch, length) at the positions first, first + 1 and so on."""
        positions = self.positions[first : first + ids.size(1)]
        return self.dropout(self.norm(self.pieces(ids) * self.scale + positions))  # type: ignore[no-any-return]


class CellState(NamedTuple):
    """What a cell keeps of the tokens of each row.

    cell: (rows, dim)
    length: number of these tokens (rows), int64
    """

    cell: Tensor
    length: Tensor


class SSRU(nn.Module):
    """Kim et al. (2019), section 3.1: a cell whose gate reads the input alone, so that one product computes all gates.

    f_t = sigmoid(x_t W_f + b_f), c_t = f_t * c_(t-1) + (1 - f_t) * (x_t W + b), y_t = max(0, c_t), with c_0 = 0. The
    paper has no b. A model that has none has zeros there. W_f and W are one matrix, W_f first.
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.gates = nn.Linear(settings.dim, 2 * settings.dim)

    def start(self, rows: int) -> CellState:
        """Return the state before the first token."""
        weight = self.gates.weight
        lengths = torch.zeros(rows, dtype=torch.long, device=weight.device)
        return CellState(weight.new_zeros(rows, weight.size(1)), lengths)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = True) -> Tensor:
        """Return (batch, length, dim), from hidden of the same shape. Every position reads those up to it."""
        assert visible is None
        assert causal
        keep, new = self._gated(hidden)
        cell, found = torch.zeros_like(new[:, 0]), []
        for position in range(hidden.size(1)):
            cell = keep[:, position] * cell + new[:, position]
            found.append(cell)
        return torch.stack(found, dim=1).relu()

    def step(self, hidden: Tensor, past: CellState) -> tuple[Tensor, CellState]:
        """Read one more position, hidden (rows, 1, dim), and return (rows, 1, dim), and the state after it."""
        keep, new = self._gated(hidden)
        cell = keep[:, 0] * past.cell + new[:, 0]
        return cell[:, None].relu(), CellState(cell, past.length + 1)

    def _gated(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the share of the cell that each position keeps, and what it adds: (batch, length, dim) each."""
        gate, value = self.gates(hidden).chunk(2, dim=-1)
        keep = torch.sigmoid(gate)
        return keep, (1 - keep) * value
