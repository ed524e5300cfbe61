"""Heads of attention that are made wider with zeros, because the operators of an exported step take certain widths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from lingon.importers.source import ForeignModel, Rows, Weight
from lingon.training.config import TransformerSettings
from lingon.training.config.transformer import HEAD_STEP

PARTS = {"attention.qkv": 3, "cross.query": 1, "cross.key_value": 2}
"""The products that give heads, and how many of queries, keys and values each gives; the queries are first."""
OUTPUTS = ("attention.output", "cross.output")


def with_wide_heads(source: ForeignModel) -> ForeignModel:
    """Return a source whose heads have a multiple of HEAD_STEP dimensions; it computes the same.

    The new dimensions of queries, keys and values are zeros, and nothing reads those of the values. Attention divides
    its scores by the square root of the width, so that the queries grow by what that root grows.
    """
    settings = source.settings
    narrow, wide = settings.head_dim, -(-settings.head_dim // HEAD_STEP) * HEAD_STEP
    if narrow == wide or settings.decoder_cell != "attention" or settings.score != "scaled-dot":
        return source
    return replace(
        source,
        settings=settings.model_copy(update={"head_dim": wide}),
        weights=_widened(source.weights, settings, wide),
        notes=[*source.notes, f"heads of {narrow} dimensions are widened to {wide} by zeros, which changes no result"],
    )


def _widened(
    weights: Iterator[tuple[str, Weight]], settings: TransformerSettings, wide: int
) -> Iterator[tuple[str, Weight]]:
    heads, narrow = settings.heads, settings.head_dim
    for name, weight in weights:
        product, _, kind = name.rpartition(".")
        parts = next((count for each, count in PARTS.items() if product.endswith(f".{each}")), 0)
        if isinstance(weight, Rows):
            yield name, weight
        elif parts:
            split = _with_zeros(weight.reshape(parts, heads, narrow, *weight.shape[1:]), 2, wide)
            if not product.endswith("key_value"):
                split[0] *= math.sqrt(wide / narrow)
            yield name, split.flatten(0, 2)
        elif product.endswith(tuple(f".{each}" for each in OUTPUTS)) and kind == "weight":
            yield name, _with_zeros(weight.reshape(-1, heads, narrow), 2, wide).flatten(1, 2)
        else:
            yield name, weight


def _with_zeros(tensor: Tensor, dim: int, size: int) -> Tensor:
    """Return a tensor with zeros at the end of a dimension, which then has this size."""
    shape = list(tensor.shape)
    shape[dim] = size
    widened = tensor.new_zeros(shape)
    widened.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
    return widened
