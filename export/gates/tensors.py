"""The tensor gate: steps and scores of the graphs equal those of the checkpoint, over a grid of shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lingon.errors import ParityError
from lingon.serving.runtime.runner import BatchShape, Runner, width_for
from lingon.text import BOS, EOS, UNK
from lingon.training.data.batches import pad
from lingon.training.models.transformer import Transformer

TOLERANCE = {"float32": 1e-4, "float16": 5e-2}  # largest difference of a log-probability, by arithmetic
ROWS, SOURCES, PASTS = (1, 2, 5), (1, 7, 16, 33), (0, 1, 6)


@dataclass(frozen=True, slots=True)
class TensorReport:
    """The largest differences of log-probabilities of steps and of the scorer, and the number of shapes."""

    shapes: int
    step_difference: float
    scorer_difference: float
    tolerance: float


def check_tensors(model: Transformer, runner: Runner, dtype: str) -> TensorReport:
    """Compare steps and scores over a grid of (rows, source_length, past), with ragged lengths and pasts.

    dtype: type of the arithmetic of the graphs. Raises ParityError if values differ too much, or one is not finite.
    """
    steps, scores = [], []
    random = np.random.default_rng(0)
    for rows in ROWS:
        for longest in sorted({min(length, runner.limits.max_source_tokens) for length in SOURCES}):
            for past in PASTS:
                case = Case.draw(random, model, rows, longest, past)
                steps.append(_step_difference(model, runner, case, dtype))
                scores.append(_score_difference(model, runner, case, dtype))
    report = TensorReport(len(steps), max(steps), max(scores), TOLERANCE[dtype])
    largest = max(report.step_difference, report.scorer_difference)
    if largest > report.tolerance:
        raise ParityError(f"{dtype}: log-probabilities differ by {largest:.2e}, more than {report.tolerance:.0e}")
    return report


@dataclass(frozen=True, slots=True)
class Case:
    """Random sources (ids, EOS last) and random targets of the lengths of the pasts (ids, without BOS and EOS)."""

    sources: list[list[int]]
    targets: list[list[int]]

    @classmethod
    def draw(cls, random: np.random.Generator, model: Transformer, rows: int, longest: int, past: int) -> Case:
        source_vocab = model.source_embedding.pieces.num_embeddings
        target_vocab = model.target_embedding.pieces.num_embeddings

        def ids(length: int, vocab: int) -> list[int]:
            return list(random.integers(UNK + 1, vocab, length).tolist())

        lengths = [longest, *random.integers(min(2, longest), longest + 1, rows - 1)]
        pasts = [past, *random.integers(0, past + 1, rows - 1)]
        return cls(
            [[*ids(int(length) - 1, source_vocab), EOS] for length in lengths],
            [ids(int(length), target_vocab) for length in pasts],
        )

    @property
    def source_lengths(self) -> np.ndarray:
        return np.array([len(source) for source in self.sources])

    @property
    def target_lengths(self) -> np.ndarray:
        return np.array([len(target) for target in self.targets])


@torch.inference_mode()
def expected_log_probs(model: Transformer, case: Case) -> list[np.ndarray]:
    """Return the checkpoint's log-probabilities (target_length + 1, vocab) of each row, computed without other rows."""
    rows = []
    for source, target in zip(case.sources, case.targets, strict=True):
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))
        rows.append(_finite(model.log_probs(logits)[0].numpy(), "the checkpoint's log-probabilities"))
    return rows


def _step_difference(model: Transformer, runner: Runner, case: Case, dtype: str) -> float:
    """Decode all rows in one batch; each starts at its own step, so that the pasts have different lengths."""
    rows, longest = len(case.sources), int(case.target_lengths.max())
    encoded = runner.encode(pad(case.sources).numpy(), case.source_lengths)
    buffers = runner.open(BatchShape(rows, 1, width_for(int(case.source_lengths.max())), longest + 1))
    for row in range(rows):
        buffers.place(row, encoded, row)
    expected, differences = expected_log_probs(model, case), []
    for step in range(longest + 1):
        positions = np.maximum(step - (longest - case.target_lengths), 0)
        buffers.positions[:] = positions
        buffers.token_ids[:] = [
            [BOS, *target][position] for target, position in zip(case.targets, positions, strict=True)
        ]
        found = buffers.step(rows, logits=False)
        log_probs = _finite(
            found.candidate_log_probs, f"a step's log-probabilities in {dtype}"
        )  # with NaN, the ids are invalid
        for row, position in enumerate(positions):
            likely = expected[row][position][found.candidate_ids[row]]
            differences.append(float(np.abs(likely - log_probs[row]).max()))
    return max(differences)


def _score_difference(model: Transformer, runner: Runner, case: Case, dtype: str) -> float:
    targets = pad([target or [EOS] for target in case.targets]).numpy()
    scored = runner.score(pad(case.sources).numpy(), case.source_lengths, targets, case.target_lengths)
    differences = []
    for target, row, log_probs in zip(case.targets, scored, expected_log_probs(model, case), strict=True):
        likely = log_probs[np.arange(len(target) + 1), [*target, EOS]]
        found = _finite(row.log_probs, f"the scorer's log-probabilities in {dtype}")
        differences.append(float(np.abs(likely - found).max()))
    return max(differences)


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    """Return the values; raise ParityError if one is NaN or infinite, because comparisons with NaN never fail."""
    nonfinite = values[~np.isfinite(values)]
    if nonfinite.size:
        raise ParityError(f"{what} are not all finite: one is {nonfinite.flat[0]}")
    return values
