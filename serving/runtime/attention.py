"""The attention matrices of a scorer: which a model has, and those that a pair asks for, without padding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.attention_kinds import AttentionKind
from lingon.serving.runtime.runner import (
    AttentionChoice,
    AttentionMatrix,
    AttentionSize,
    matrix_shape,
)

ATTENTION: dict[AttentionKind, str] = {
    "encoder": names.ENCODER_ATTENTION,
    "decoder": names.DECODER_ATTENTION,
    "cross": names.CROSS_ATTENTION,
}
"""The outputs of the scorer, (batch, layers, heads, rows, columns) each."""


def attention_sizes(scorer: ort.InferenceSession) -> dict[AttentionKind, AttentionSize]:
    """Return layers and heads of each kind that a scorer outputs; lingon.serving.runtime.validation checks them."""
    dims = {each.name: each.shape for each in scorer.get_outputs()}
    return {kind: AttentionSize(*dims[name][1:3]) for kind, name in ATTENTION.items() if name in dims}


def choose_matrices(
    choice: AttentionChoice, weights: Mapping[AttentionKind, np.ndarray], source: int, target: int
) -> tuple[AttentionMatrix, ...]:
    """Return copies of the matrices of one pair; source, target: its tokens, see `matrix_shape`.

    weights: (layers, heads, rows, columns) of each kind that is chosen, padded
    """
    found: list[AttentionMatrix] = []
    for each in choice:
        rows, columns = matrix_shape(each.kind, source, target)
        for layer in each.layers:
            of_layer = weights[each.kind][layer, list(each.heads), :rows, :columns]
            if each.mean:
                found.append(AttentionMatrix(each.kind, layer, None, of_layer.mean(axis=0)))
            else:
                one_by_one = zip(each.heads, of_layer, strict=True)
                found += [AttentionMatrix(each.kind, layer, head, one.copy()) for head, one in one_by_one]
    return tuple(found)
