"""The operations of a training update that the model itself needs, without padding and without repeated work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lingon.training.config import TransformerSettings

PASSES = 3
"""Forward, and twice as much backward: gradients of the inputs and of the weights of each product."""


def flops_per_target_token(settings: TransformerSettings, vocab: int, lengths: NDArray[np.int64]) -> float:
    """Return the floating point operations of training for each target token, two for each multiply-add.

    vocab: target pieces
    lengths: tokens of sources and targets with the end token, (pairs, 2)
    """
    dim, source, target = settings.dim, lengths[:, 0].astype(np.float64), lengths[:, 1].astype(np.float64)
    feed_forward = 2 * dim * settings.ffn
    encoder = settings.encoder_layers * (source * (4 * dim**2 + feed_forward) + 2 * source**2 * dim)
    by_source = source * 2 * dim**2  # keys and values of the cross-attention
    by_target = target * (6 * dim**2 + feed_forward)
    # A target position sees itself and those before it: half of the square.
    attention = dim * target * (target + 1) + 2 * dim * target * source
    decoder = settings.decoder_layers * (by_source + by_target + attention)
    total = encoder.sum() + decoder.sum() + target.sum() * dim * vocab
    return float(2 * PASSES * total / target.sum())
