"""The training loss: cross-entropy with label smoothing."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from lingon.text import PAD


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
