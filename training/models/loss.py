"""The training loss: cross-entropy with label smoothing, and what it may have of the attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lingon.text import PAD

DIAGONAL_WIDTH = 0.2  # share of a sentence: the g of Tachibana et al. (2018)


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the sum over tokens of the cross-entropy with label smoothing. Labels that are PAD add nothing.

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


def guided_loss(weights: Tensor, alignment: Tensor) -> Tensor:
    """Return the sum over target tokens with links of the cross-entropy between their alignment and the attention.

    Guided alignment of Chen et al. (2016), section 3, with cross-entropy: -sum over t and j of A_tj log alpha_tj. The
    shares A_tj of a token with links have the sum 1. Tokens without links add nothing. A link that attention cannot
    give weight, because it is outside a local window, adds a constant.

    weights: (batch, target_length, source_length), of one head, or the mean of several
    alignment: A, (batch, target_length, source_length)
    """
    smallest = torch.finfo(torch.float32).tiny  # keeps the logarithm finite
    return -(alignment * weights.float().clamp(min=smallest).log()).sum()


class AttentionLoss(NamedTuple):
    """What the loss has of the attention: the weight of each term, and the guided heads of a decoder layer."""

    diagonal: float
    guided: float
    layer: int
    heads: tuple[int, ...]

    def __call__(
        self, weights: Tensor, source_lengths: Tensor, labels: Tensor, alignment: Tensor | None = None
    ) -> Tensor:
        """Return the sum over the target tokens.

        weights: (batch, layers, heads, target_length, source_length)
        source_lengths: (batch)
        labels: (batch, target_length)
        alignment: (batch, target_length, source_length); needed if guided is not 0
        """
        loss = weights.new_zeros((), dtype=torch.float32)
        if self.diagonal:
            loss = loss + self.diagonal * diagonal_penalty(weights, source_lengths, labels)
        if self.guided:
            assert alignment is not None, "batches of a guided run have alignments"
            loss = loss + self.guided * guided_loss(weights[:, self.layer, list(self.heads)].mean(dim=1), alignment)
        return loss
