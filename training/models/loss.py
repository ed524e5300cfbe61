"""What is learned from: cross-entropy against softened labels."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from lingon.text import PAD


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The sum over tokens of the cross-entropy with label smoothing (section 5.4); PAD is not counted.

    logits: (batch, target_length, vocab), labels: (batch, target_length)
    """
    return functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
