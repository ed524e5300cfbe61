from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from lingon.text import PAD
from lingon.training.models.loss import diagonal_penalty, smoothed_loss


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


def test_the_diagonal_penalty_is_its_formula_for_the_mean_of_all_heads_and_skips_padding() -> None:
    torch.manual_seed(0)
    labels, lengths = torch.tensor([[4, 2, PAD, PAD], [5, 6, 7, 2]]), (5, 3)
    weights, expected = torch.rand(2, 2, 3, 4, 5), 0.0
    weights[1, ..., 3:] = 0.0  # padding of the source
    for row, targets in enumerate((2, 4)):
        for t in range(targets):
            for j in range(lengths[row]):
                far = 1 - math.exp(-((j / lengths[row] - t / targets) ** 2) / (2 * 0.2**2))
                expected += far * weights[row, :, :, t, j].mean().item()
    assert diagonal_penalty(weights, torch.tensor(lengths), labels).item() == pytest.approx(expected, rel=1e-5)


def test_the_diagonal_itself_has_no_penalty_and_the_far_corner_nearly_one() -> None:
    labels, lengths = torch.tensor([[4, 5, 6, 2]]), torch.tensor([4])
    diagonal = torch.eye(4)[None, None, None]
    assert diagonal_penalty(diagonal, lengths, labels).item() == 0.0
    corner = torch.zeros_like(diagonal)
    corner[..., 0, 3] = 1.0
    assert 0.99 < diagonal_penalty(corner, lengths, labels).item() < 1.0
