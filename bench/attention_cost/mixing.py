"""Four ways to mix values by queries and keys: the whole matrix, a fused kernel, a window in blocks, linear attention.

All take and return the same shapes; none has weights, masks or padding.

query: (batch, heads, length, head_dim)
past: keys and values (batch, heads, length, head_dim)

Returns the concatenated heads (batch, length, heads * head_dim).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from lingon.training.models.attention import KeyValue, attend, attend_linearly, attention_weights


def mix_by_matrix(query: Tensor, past: KeyValue) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)) V, Vaswani et al. (2017), equation 1; the matrix of weights is in memory."""
    return _concatenated(attention_weights(query, past.key) @ past.value)


def mix_fused(query: Tensor, past: KeyValue) -> Tensor:
    """The same as `mix_by_matrix` by the kernel of torch, which keeps only tiles of the matrix (Dao et al., 2022)."""
    return attend(query, past)


def mix_in_blocks(query: Tensor, past: KeyValue, radius: int) -> Tensor:
    """Attention of position i over the positions j with |i - j| <= radius, in blocks of `radius` queries.

    The blocks are those of Beltagy et al. (2020), section 3.1 and appendix A: a block of queries is multiplied with its
    own block of keys, the one before and the one after. These 3 radius keys hold all 2 radius + 1 that a query sees.
    No matrix of length x length is made.
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
    """The three blocks that each block of queries sees: (batch, heads, blocks, head_dim, 3 radius), a view.

    heads: (batch, heads, length, head_dim); added: positions that the last block lacks
    """
    return functional.pad(heads, (0, 0, radius, added + radius)).unfold(2, 3 * radius, radius)


def _within_blocks(length: int, blocks: int, radius: int, device: torch.device) -> Tensor:
    """A mask (blocks, radius, 3 radius), True where a query sees a key.

    A padded query sees the last key at least, which is less than `radius` away: no softmax is without keys.
    """
    first = torch.arange(blocks, device=device)[:, None, None] * radius
    queries = first + torch.arange(radius, device=device)[:, None]
    keys = first - radius + torch.arange(3 * radius, device=device)
    distance = (queries - keys).abs()
    return (distance <= radius) & (keys >= 0) & (keys < length)


def mix_linearly(query: Tensor, past: KeyValue) -> Tensor:
    """The linear attention of training, Katharopoulos et al. (2020), with phi(x) = elu(x) + 1."""
    return attend_linearly(query, past)


def _concatenated(mixed: Tensor) -> Tensor:
    return mixed.transpose(1, 2).flatten(2)
