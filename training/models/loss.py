"""The training loss: cross-entropy with label smoothing, and the penalty of attention far from the diagonal."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lingon.text import PAD

DIAGONAL_WIDTH = 0.2  # share of a sentence: the g of Tachibana et al. (2018)


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the sum over tokens of the cross-entropy with label smoothing; labels that are PAD add nothing.

    Szegedy et al. (2016), section 7, with a uniform prior; used by Vaswani et al. (2017), section 5.4. With
    q(k) = (1 - smoothing) * [k = label] + smoothing / vocab, the loss of a token is -sum over k of q(k) log p(k).

    logits: (batch, target_length, vocab)
    labels: (batch, target_length)
    smoothing: 0 is the negative log-likelihood
    """
    return functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )


def diagonal_penalty(weights: Tensor, source_lengths: Tensor, labels: Tensor) -> Tensor:
    """Return the sum over target tokens of the attention far from the diagonal, the mean of all layers and heads.

    The guided attention loss of Tachibana et al. (2018), section 4.1: for a target token t of T and weights alpha_tj of
    the source tokens j of S, sum over j of alpha_tj (1 - exp(-(j / S - t / T)^2 / (2 g^2))), g = DIAGONAL_WIDTH. It is
    from 0 to 1 for each target token. Labels that are PAD add nothing.

    weights: (batch, layers, heads, target_length, source_length)
    source_lengths: (batch)
    labels: (batch, target_length)
    """
    real = labels != PAD
    source = torch.arange(weights.size(-1), device=weights.device) / source_lengths[:, None]
    target = torch.arange(weights.size(-2), device=weights.device) / real.sum(1, keepdim=True)
    distance = source[:, None, :] - target[:, :, None]
    far = 1 - torch.exp(-(distance**2) / (2 * DIAGONAL_WIDTH**2))
    penalties = (weights.float().mean(dim=(1, 2)) * far).sum(-1)
    return (penalties * real).sum()
