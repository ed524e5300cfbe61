"""Relative positions of T5: a learned bias of each score for the distance of its key.

Raffel et al. (2020), section 2.1; the ranges of the buckets are those of its code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lingon.training.config import TransformerSettings


class RelativeBias(nn.Module):
    """A bias for each head and bucket of distances; all layers of a side share it, and cross-attention has none.

    Half of the buckets hold one distance each, the others ranges that grow with the logarithm of the distance. With
    both_sides, half of all buckets are for keys after the query; otherwise those keys are in the bucket of distance 0.
    """

    def __init__(self, settings: TransformerSettings, *, both_sides: bool) -> None:
        super().__init__()
        self.both_sides, self.farthest = both_sides, settings.relative_distance
        self.weight = nn.Parameter(torch.empty(settings.relative_buckets, settings.heads))
        nn.init.normal_(self.weight, std=settings.dim**-0.5)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (heads, queries, keys) between positions (queries) and (keys)."""
        return self.of_distances(keys - queries[:, None]).permute(2, 0, 1)

    def of_distances(self, distances: Tensor) -> Tensor:
        """Return the biases (..., heads) of distances (...), position of the key - position of the query."""
        return self.weight[self.buckets(distances)]

    def masked(self, visible: Tensor) -> Tensor:
        """Return what attention adds to its scores, -inf where a key is not seen: (batch, heads, length, length).

        visible: broadcast over that shape, True where a query sees a key
        """
        positions = torch.arange(visible.size(-1), device=visible.device)
        return torch.where(visible, self(positions, positions), -math.inf)

    def causal(self, length: int) -> Tensor:
        """Return the same, (1, heads, length, length), where a position sees those up to it."""
        ones = torch.ones(length, length, dtype=torch.bool, device=self.weight.device)
        return self.masked(ones.tril()[None, None])

    def buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance, of the same shape."""
        count = len(self.weight) // 2 if self.both_sides else len(self.weight)
        first = (distances > 0).long() * count if self.both_sides else torch.zeros_like(distances)
        far = distances.abs() if self.both_sides else (-distances).clamp_min(0)
        exact = count // 2
        share = torch.log(far.clamp_min(1).float() / exact) / math.log(self.farthest / exact)
        grown = (exact + (share * (count - exact)).long()).clamp_max(count - 1)
        return first + torch.where(far < exact, far, grown)
