"""The training loss and the loss of guided alignment: formulas, gradients, and mutants of them."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lingon.text import EOS, PAD
from lingon.training.models import loss
from lingon.training.models.interface import AttentionModel
from lingon.training.models.loss import diagonal_penalty, smoothed_loss
from tests.support.mutants import SourceMutant
from tests.support.random_models import SYSTEMS, random_system


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


LENGTHS, TARGETS = (5, 3), (2, 4)  # of two sentences, end tokens included
LABELS = torch.tensor([[4, EOS, PAD, PAD], [5, 6, 7, EOS]])
LINKS = [{0: [1, 2]}, {0: [0], 2: [0, 1]}]  # the source tokens of each target token that has links

MUTANTS = [
    SourceMutant("loss", "def guided_loss", "return -(", "return ("),
    SourceMutant("loss", "def guided_loss", ".log()).sum()", ").sum()"),
    SourceMutant("loss", "def guided_loss", ".log()).sum()", ".log()).mean()"),
    SourceMutant("loss", "class AttentionLoss", "self.layer, list", "0, list"),
    SourceMutant("loss", "class AttentionLoss", "list(self.heads)]", "[0, 1, 2]]"),
    SourceMutant("loss", "class AttentionLoss", "mean(dim=1)", "sum(dim=1)"),
    SourceMutant("loss", "class AttentionLoss", "self.guided * guided", "guided"),
    SourceMutant("loss", "class AttentionLoss", "loss = loss + self.guided", "loss = self.guided"),
    SourceMutant("loss", "class AttentionLoss", "self.diagonal * diagonal", "diagonal"),
]


def random_weights() -> Tensor:
    """Attention (batch, layers, heads, target_length, source_length) without weight on padding."""
    torch.manual_seed(3)
    scores = torch.randn(2, 2, 3, 4, 5)
    scores[1, ..., LENGTHS[1] :] = -math.inf
    return scores.softmax(dim=-1)


def alignment() -> Tensor:
    shares = torch.zeros(2, 4, 5)
    for row, links in enumerate(LINKS):
        for t, linked in links.items():
            shares[row, t, linked] = 1 / len(linked)
    return shares


def transcription(weights: Tensor, diagonal: float, guided: float, layer: int, heads: tuple[int, ...]) -> float:
    """The terms of the attention in NumPy, token by token."""
    values, total = weights.double().numpy(), 0.0
    for row, links in enumerate(LINKS):
        for t in range(TARGETS[row]):
            mean = values[row, :, :, t].mean(axis=(0, 1))
            for j in range(LENGTHS[row]):
                distance = j / LENGTHS[row] - t / TARGETS[row]
                total += diagonal * mean[j] * (1 - math.exp(-(distance**2) / (2 * 0.2**2)))
        for t, linked in links.items():
            guide = values[row, layer, list(heads), t].mean(axis=0)
            total -= guided * np.log(guide[linked]).sum() / len(linked)
    return total


def check(module: ModuleType) -> None:
    for chosen in ((0.3, 0.7, 1, (0, 2)), (0.0, 0.5, 0, (1,)), (0.4, 0.0, 1, (0,))):
        found = module.AttentionLoss(*chosen)(random_weights(), torch.tensor(LENGTHS), LABELS, alignment())
        assert float(found) == pytest.approx(transcription(random_weights(), *chosen), rel=1e-5)


def test_the_terms_of_the_attention_are_their_formulas() -> None:
    check(loss)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mistake_in_the_formulas_is_found(mutant: SourceMutant) -> None:
    with pytest.raises(AssertionError):
        check(mutant.load())


def test_attention_that_has_all_its_weight_on_the_only_link_of_each_token_has_no_loss() -> None:
    shares = torch.zeros(1, 2, 3)
    shares[0, 0, 2] = 1.0
    assert float(loss.guided_loss(shares, shares)) == 0.0


def test_a_link_outside_a_local_window_is_finite_and_has_no_gradient() -> None:
    weights = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    found = loss.guided_loss(weights, torch.tensor([[[1.0, 0.0]]]))
    found.backward()
    assert found.isfinite()
    assert weights.grad is not None
    assert not weights.grad.any()


def test_the_gradient_flows_into_linked_tokens_of_the_guided_heads_alone() -> None:
    weights = random_weights().requires_grad_()
    loss.AttentionLoss(0.0, 1.0, 1, (0, 2))(weights, torch.tensor(LENGTHS), LABELS, alignment()).backward()
    assert weights.grad is not None
    reached = weights.grad != 0
    assert not reached[:, 0].any()
    assert not reached[:, 1, 1].any()
    for head in (0, 2):
        assert torch.equal(reached[:, 1, head], alignment() > 0)


def guided_gradients(model: AttentionModel[Any, Any]) -> dict[str, float]:
    """The norm of the gradient of each weight by guided alignment alone."""
    sources, targets = (
        torch.tensor([[5, 6, 7, 8, EOS], [5, 6, EOS, PAD, PAD]]),
        torch.tensor([[1, 4, 9, 9], [1, 5, 6, 7]]),
    )
    lengths = torch.tensor(LENGTHS)
    weights = model.attention(sources, lengths, targets)
    loss.AttentionLoss(0.0, 1.0, 0, (0,))(weights, lengths, LABELS, alignment()).backward()
    return {name: 0.0 if each.grad is None else float(each.grad.norm()) for name, each in model.named_parameters()}


@pytest.mark.parametrize("name", [name for name in SYSTEMS if not name.startswith("rnnenc")])
def test_guidance_reaches_the_encoder_and_never_the_output_layer(name: str) -> None:
    model = random_system(name, tie="none")
    assert isinstance(model, AttentionModel)
    found = guided_gradients(model.train())
    assert max(norm for each, norm in found.items() if each.startswith(("source_embedding", "encoder"))) > 0
    assert all(norm == 0 for each, norm in found.items() if each.startswith("output."))


def test_guidance_of_a_layer_of_the_transformer_leaves_later_layers_and_other_heads_alone() -> None:
    found = guided_gradients(random_system("transformer", tie="none").train())
    assert found["decoder.0.cross.query.weight"] > 0
    assert all(norm == 0 for each, norm in found.items() if each.startswith("decoder.1."))
    assert found["decoder.0.cross.output.weight"] == 0
