"""Multi-head attention of Vaswani et al. (2017), section 3.2: scaled dot products, self- and cross-attention."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.config import TransformerSettings


class KeyValue(NamedTuple):
    """Keys and values of one attention: (batch, heads, length, head_dim) each."""

    key: Tensor
    value: Tensor


def visible_positions(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (batch, 1, 1, longest), True at the positions before each length.

    lengths: (batch)
    """
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None, :]


def attend(query: Tensor, past: KeyValue, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(head_dim)) V.

    query: (batch, heads, target_length, head_dim)
    past: keys and values (batch, heads, source_length, head_dim)
    visible: (batch, 1, 1, source_length), True where a key may be seen; None if every key may be seen
    causal: whether position i sees only the keys 0 to i

    Returns the concatenated heads (batch, target_length, heads * head_dim).
    """
    mixed = functional.scaled_dot_product_attention(query, *past, attn_mask=visible, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


def attention_weights(query: Tensor, key: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Return the weights by which `attend` mixes the values, softmax(Q K^T / sqrt(head_dim)) of equation 1.

    query, visible, causal: as in `attend`
    key: (batch, heads, source_length, head_dim)

    Returns (batch, heads, target_length, source_length).
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself, section 3.2.2; one product gives queries, keys and values."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.dim, 3 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def project(self, hidden: Tensor) -> tuple[Tensor, KeyValue]:
        """Return the queries, and the keys with the values: (batch, heads, length, head_dim) each.

        hidden: (batch, length, dim)
        """
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, KeyValue(key, value)

    def forward(self, hidden: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return (batch, length, dim).

        hidden: (batch, length, dim)
        visible, causal: as in `attend`
        """
        query, present = self.project(hidden)
        return self.output(attend(query, present, visible, causal=causal))  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, past: KeyValue) -> tuple[Tensor, KeyValue]:
        """Attend from one new position over the past and itself.

        hidden: (batch, 1, dim)
        past: keys and values (batch, heads, length, head_dim)

        Returns (batch, 1, dim), and the keys and values of length + 1 positions.
        """
        query, new = self.project(hidden)
        present = KeyValue(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
        return self.output(attend(query, present)), present


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder over the output of the encoder, section 3.2.3."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.query = nn.Linear(settings.dim, settings.dim)
        self.key_value = nn.Linear(settings.dim, 2 * settings.dim)
        self.output = nn.Linear(settings.dim, settings.dim)

    def project_key_value(self, encoder_output: Tensor) -> KeyValue:
        """Return keys and values (batch, heads, source_length, head_dim).

        encoder_output: (batch, source_length, dim)
        """
        return KeyValue(*self.key_value(encoder_output).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4))

    def project(self, hidden: Tensor) -> Tensor:
        """Return queries (batch, heads, target_length, head_dim) of hidden (batch, target_length, dim)."""
        return self.query(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def forward(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """Return (batch, target_length, dim).

        hidden: (batch, target_length, dim)
        memory: from `project_key_value`
        visible: (batch, 1, 1, source_length)
        """
        return self.output(attend(self.project(hidden), memory, visible))  # type: ignore[no-any-return]

    def weights(self, hidden: Tensor, memory: KeyValue, visible: Tensor) -> Tensor:
        """Return the weights by which `forward` mixes the values (batch, heads, target_length, source_length)."""
        return attention_weights(self.project(hidden), memory.key, visible)
