"""Multi-head attention: scaled dot products, self-attention, cross-attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.config import ModelSettings


class KeyValue(NamedTuple):
    """Keys and values of one attention: (batch, heads, length, head_dim) each."""

    key: Tensor
    value: Tensor


def visible_positions(lengths: Tensor, longest: int) -> Tensor:
    """Mask (batch, 1, 1, longest), True at the positions before each length."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None, :]


def attend(query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Equation 1, softmax(QK^T / sqrt(head_dim)) V; returns (batch, target_length, heads * head_dim).

    query: (batch, heads, target_length, head_dim)
    visible: (batch, 1, 1, source_length), True where a key may be seen
    """
    mixed = functional.scaled_dot_product_attention(query, *past, attn_mask=visible, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself; one product for queries, keys and values."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.dim, 3 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def project(self, hidden: Tensor) -> tuple[Tensor, KeyValue]:
        """Query, and key with value, of hidden (batch, length, dim)."""
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, KeyValue(key, value)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """(batch, length, dim), from hidden of that shape."""
        query, present = self.project(hidden)
        return self.output(attend(query, present, visible, causal=causal))  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, past: KeyValue) -> tuple[Tensor, KeyValue]:
        """One more position (batch, 1, dim) after a past; also returns the past grown by it."""
        query, new = self.project(hidden)
        present = KeyValue(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
        return self.output(attend(query, present)), present


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the encoder's output."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.query = nn.Linear(settings.dim, settings.dim)
        self.key_value = nn.Linear(settings.dim, 2 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def project_key_value(self, encoder_output: Tensor) -> KeyValue:
        """Keys and values of encoder_output (batch, source_length, dim)."""
        return KeyValue(*self.key_value(encoder_output).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4))

    def project(self, hidden: Tensor) -> Tensor:
        """Queries (batch, heads, target_length, head_dim) of hidden (batch, target_length, dim)."""
        return self.query(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """(batch, target_length, dim), from hidden of that shape."""
        return self.output(attend(self.project(hidden), memory, visible))  # type: ignore[no-any-return]
