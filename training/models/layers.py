"""The other layers of a Transformer: embeddings, feed-forward, dropout, residual_norm connections with norms."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.config import ModelSettings


def sinusoids(positions: int, dim: int) -> Tensor:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = the cosine; (positions, dim)."""
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class FeedForward(nn.Module):
    """Equation 2, position by position: max(0, x W1 + b1) W2 + b2, or with GELU or SiLU."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(settings.dim, settings.ffn)
        self.outer = nn.Linear(settings.ffn, settings.dim)
        self.activation = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}[settings.activation]()

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, length, dim), from hidden of that shape."""
        return self.outer(self.activation(self.inner(hidden)))  # type: ignore[no-any-return]


class Dropout(nn.Module):
    """Dropout that draws one random byte an element on the CPU, where `nn.Dropout` draws a 64-bit number in turn.

    That took a quarter of a training step. The rate is rounded to a 256th, and the scale follows what is kept.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = round(256 * rate)

    def forward(self, hidden: Tensor) -> Tensor:
        """In training, hidden with some elements 0 and the others greater; else hidden."""
        if not self.training or self.dropped == 0:
            return hidden
        if hidden.device.type != "cpu":
            return functional.dropout(hidden, self.rate)
        words = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.uint8)[: hidden.numel()].view(hidden.shape)
        return hidden * (drawn >= self.dropped).to(hidden.dtype).mul_(256 / (256 - self.dropped))


class PostNorm(nn.Module):
    """Add & Norm as in the paper: LayerNorm(x + Dropout(sublayer(x)))."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.dim)
        self.dropout = Dropout(settings.dropout)

    def before(self, hidden: Tensor) -> Tensor:
        """What the sublayer reads."""
        return hidden

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """What the next sublayer gets."""
        return self.norm(hidden + self.dropout(sublayer))  # type: ignore[no-any-return]


class PreNorm(PostNorm):
    """The norm moved before the sublayer: x + Dropout(sublayer(LayerNorm(x))) (Xiong et al., 2020)."""

    def before(self, hidden: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self.norm(hidden)  # type: ignore[no-any-return]

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """What the next sublayer gets."""
        return hidden + self.dropout(sublayer)  # type: ignore[no-any-return]


def residual_norm(settings: ModelSettings) -> PostNorm:
    """The wrapper around one sublayer."""
    return PreNorm(settings) if settings.norm == "pre" else PostNorm(settings)


class Embedding(nn.Module):
    """Dropout(sqrt(dim) * piece + position), sections 3.4, 3.5 and 5.4."""

    positions: Tensor  # (max_positions, dim)

    def __init__(self, settings: ModelSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.dim)
        self.pieces = nn.Embedding(vocab, settings.dim)
        self.dropout = Dropout(settings.dropout)
        table = sinusoids(settings.max_positions, settings.dim)
        if settings.positions == "learned":
            self.positions = nn.Parameter(torch.empty_like(table).normal_(std=settings.dim**-0.5))
        else:
            self.register_buffer("positions", table, persistent=False)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """ids: (batch, length), the first of them at position `first`; returns (batch, length, dim)."""
        positions = self.positions[first : first + ids.size(1)]
        return self.dropout(self.pieces(ids) * self.scale + positions)  # type: ignore[no-any-return]
