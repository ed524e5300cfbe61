"""The scorer returns the attention matrices that a pair asks for: those of the model, whatever its company."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lingon.export.gates_checkpoint import CaseReference
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import AttentionChoice, HeadChoice, Scored
from lingon.text import EOS
from lingon.training.batches import pad
from tests.support.random_models import (
    KINDS,
    random_grid,
    random_runner,
    random_sources,
    recurrent_grid,
    recurrent_runner,
)

systems = pytest.mark.parametrize("name", ["transformer", *KINDS])


def runner_and_grid(name: str) -> tuple[OnnxRunner, list[CaseReference]]:
    return (random_runner(), random_grid()) if name == "transformer" else (recurrent_runner(name), recurrent_grid(name))


def everything(runner: OnnxRunner, *, mean: bool = False) -> AttentionChoice:
    return tuple(
        HeadChoice(kind, tuple(range(size.layers)), tuple(range(size.heads)), mean)
        for kind, size in runner.attention.items()
    )


def score(
    runner: OnnxRunner,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    choices: Sequence[AttentionChoice],
) -> list[Scored]:
    lengths = [np.array([len(row) for row in rows]) for rows in (sources, targets)]
    padded = [pad([list(row) or [EOS] for row in rows]).numpy() for rows in (sources, targets)]
    return runner.score(padded[0], lengths[0], padded[1], lengths[1], choices)


@systems
def test_every_matrix_is_that_of_the_model_without_padding(name: str) -> None:
    runner, grid = runner_and_grid(name)
    choice = everything(runner)
    for reference in grid:
        case = reference.case
        found = score(runner, case.sources, case.targets, [choice] * len(case.sources))
        for row, scored in zip(reference.rows, found, strict=True):
            assert sum(each.matrices for each in choice) == len(scored.matrices)
            assert {each.kind for each in scored.matrices} == set(row.attention)
            for matrix in scored.matrices:
                expected = row.attention[matrix.kind][matrix.layer, matrix.head]
                assert matrix.weights.shape == expected.shape
                assert np.abs(matrix.weights - expected).max() < 1e-4


@pytest.mark.parametrize("name", ["transformer", *KINDS[1:]])
def test_no_bit_of_a_matrix_depends_on_the_company_of_its_pair(name: str) -> None:
    runner, _ = runner_and_grid(name)
    sources, targets = random_sources(9, longest=11), [each[:-1] for each in random_sources(9, longest=11, seed=1)]
    choices = [(), everything(runner, mean=True), *[everything(runner)] * 7]
    together = score(runner, sources, targets, choices)
    assert not together[0].matrices
    for source, target, choice, scored in zip(sources, targets, choices, together, strict=True):
        (alone,) = score(runner, [source], [target], [choice])
        assert np.array_equal(scored.log_probs, alone.log_probs)
        for mine, theirs in zip(scored.matrices, alone.matrices, strict=True):
            assert (mine.kind, mine.layer, mine.head) == (theirs.kind, theirs.layer, theirs.head)
            assert np.array_equal(mine.weights, theirs.weights)


@pytest.mark.parametrize("heads", [(0,), (1,), (0, 1)])
def test_a_mean_is_that_of_the_chosen_heads_alone(heads: tuple[int, ...]) -> None:
    runner = random_runner()
    source, target = random_sources(1)[0], random_sources(1, seed=1)[0][:-1]
    (each,) = score(runner, [source], [target], [(HeadChoice("cross", (1,), heads, mean=False),)])
    (mean,) = score(runner, [source], [target], [(HeadChoice("cross", (1,), heads, mean=True),)])
    (matrix,) = mean.matrices
    assert (matrix.layer, matrix.head) == (1, None)
    expected = np.mean([one.weights for one in each.matrices], axis=0)
    assert len(each.matrices) == len(heads)
    assert np.allclose(matrix.weights, expected, atol=1e-7)
