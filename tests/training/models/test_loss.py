from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from lingon.text import PAD
from lingon.training.models.loss import smoothed_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_the_smoothed_loss_is_the_cross_entropy_with_a_softened_target(smoothing: float) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 7), torch.tensor([[4, 2, PAD], [5, 2, PAD]])
    log_probs, expected = logits.log_softmax(-1), 0.0
    for row in range(2):
        for position in range(2):
            for token in range(7):
                wanted = smoothing / 7 + (1 - smoothing) * (token == int(labels[row, position]))
                expected -= wanted * log_probs[row, position, token].item()
    assert_close(smoothed_loss(logits, labels, smoothing), torch.tensor(expected))


def test_padding_adds_no_loss_and_no_gradient() -> None:
    logits = torch.zeros(1, 2, 7, requires_grad=True)
    loss = smoothed_loss(logits, torch.tensor([[4, PAD]]), 0.1)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].abs().sum() > 0 == logits.grad[0, 1].abs().sum()
    assert loss.item() == pytest.approx(math.log(7), rel=1e-5)
