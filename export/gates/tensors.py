"""The tensor gate: steps and scores of the graphs equal those of the checkpoint, over a grid of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingon.errors import ParityError
from lingon.export.differences import LOG_PROBS, Differences, finite, log_softmax
from lingon.export.gates.reference import Case, Reference
from lingon.serving.runtime.runner import BatchShape, Runner, width_for
from lingon.text import BOS, EOS
from lingon.training.data.batches import pad
from lingon.training.models.interface import FORBIDDEN_LOGIT

EMULATED = 1e-3  # largest difference of a log-probability from the emulation of 8-bit products, in an exact row
EXACT_ROWS = 0.05  # least share of exact rows; it was 0.85 for models/en-de, 0.19 for drawn weights of the base size


@dataclass(frozen=True, slots=True)
class TensorReport:
    """The number of shapes, and the differences of the log-probabilities of steps and of the scorer."""

    shapes: int
    step_difference: float
    step_mean: float
    scorer_difference: float
    scorer_mean: float


def check_tensors(runner: Runner, precision: str, grid: Sequence[Reference]) -> TensorReport:
    """Compare steps and scores over a grid of shapes, with ragged lengths and pasts.

    Raises ParityError if values differ too much, or one is not finite.
    """
    steps, scorer = Differences(), Differences()
    for reference in grid:
        _compare_steps(runner, reference, [steps] * len(reference.rows), precision)
        _compare_scores(runner, reference, [scorer] * len(reference.rows), precision)
    steps.check(f"{precision}: log-probabilities of steps", LOG_PROBS[precision])
    scorer.check(f"{precision}: log-probabilities of the scorer", LOG_PROBS[precision])
    return TensorReport(len(grid), steps.largest, steps.mean, scorer.largest, scorer.mean)


def check_emulation(runner: Runner, precision: str, grid: Sequence[Reference]) -> float:
    """Compare steps and scores of 8-bit graphs with a model that emulates them; return the share of exact rows.

    A value near the middle of two steps may be rounded to either, and then what follows in its row differs. Rows
    without such a value are exact. Raises ParityError if too few rows are: then a scale or a weight is wrong.

    grid: of the emulating model; rows of one source token are left out, because every head attends to that token
    """
    largest = []
    for reference in grid:
        rows = [Differences() for _ in reference.rows]
        _compare_steps(runner, reference, rows, precision)
        _compare_scores(runner, reference, rows, precision)
        largest += [row.largest for row, source in zip(rows, reference.case.sources, strict=True) if len(source) > 1]
    exact = sum(difference <= EMULATED for difference in largest) / len(largest)
    if exact < EXACT_ROWS:
        raise ParityError(
            f"{precision}: {exact:.0%} of {len(largest)} rows have the log-probabilities of 8-bit products within "
            f"{EMULATED:.0e}, at least {EXACT_ROWS:.0%} must"
        )
    return exact


def _compare_steps(runner: Runner, reference: Reference, differences: Sequence[Differences], precision: str) -> None:
    """Decode all rows in one batch; each starts at its own step, so that the pasts have different lengths.

    Every other step also returns logits, which sampling reads.

    differences: to add to, one for each row
    """
    case = reference.case
    rows, longest = len(case.sources), int(case.target_lengths.max())
    encoded = runner.encode(pad(case.sources).numpy(), case.source_lengths)
    buffers = runner.open(BatchShape(rows, 1, width_for(int(case.source_lengths.max())), longest + 1))
    for step in range(longest + 1):
        positions = np.maximum(step - (longest - case.target_lengths), 0)
        for row in np.flatnonzero(positions == 0).tolist():
            buffers.place(row, encoded, row)  # again: a step replaces recurrent states
        buffers.positions[:] = positions
        buffers.token_ids[:] = _tokens_at(case, positions)
        found = buffers.step(rows, logits=step % 2 == 0)
        what = f"a step's log-probabilities in {precision}"
        log_probs = finite(found.candidate_log_probs, what)  # with NaN, the ids are invalid
        for row, position in enumerate(positions):
            expected = reference.rows[row].log_probs[position]
            differences[row].add(_differences(log_probs[row], expected[found.candidate_ids[row]]))
            if found.logits is not None:
                differences[row].add(
                    _differences(log_softmax(finite(found.logits[row], what))[: len(expected)], expected)
                )


def _tokens_at(case: Case, positions: np.ndarray) -> list[int]:
    """Return the token that each row reads at its position (rows)."""
    return [[BOS, *target][position] for target, position in zip(case.targets, positions, strict=True)]


def _differences(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the differences of log-probabilities; none where both say that a piece is never generated."""
    never = np.maximum(found, expected) < FORBIDDEN_LOGIT / 2
    differences: np.ndarray = np.where(never, 0, np.abs(found - expected))
    return differences


def _compare_scores(runner: Runner, reference: Reference, differences: Sequence[Differences], precision: str) -> None:
    case = reference.case
    targets = pad([target or [EOS] for target in case.targets]).numpy()
    scored = runner.score(pad(case.sources).numpy(), case.source_lengths, targets, case.target_lengths)
    for row, (target, each) in enumerate(zip(case.targets, scored, strict=True)):
        found = finite(each.log_probs, f"the scorer's log-probabilities in {precision}")
        expected = reference.rows[row].log_probs[np.arange(len(target) + 1), [*target, EOS]]
        differences[row].add(_differences(found, expected))
