"""The score gate: `Score` gives the engine's own translations the log-probabilities with which it found them.

A translation comes from the encoder and the decoder step, its score and its alignment from the scorer. This gate
compares the two in the arithmetic of a precision, so that its tolerance is close. It needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingon.errors import ParityError
from lingon.export.differences import Differences, Tolerance, finite, log_softmax
from lingon.export.gates.translations.decode import engine_scores, engine_search
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import BatchShape, Buffers, Runner, Step, width_for
from lingon.text import BOS, PAD

SENTENCES = 100  # first held-out sentences
TOLERANCE = {  # of the log-probability of a token, by precision
    "fp32": Tolerance(largest=1e-4),
    "fp32-cuda": Tolerance(largest=1e-4),
    "fp16": Tolerance(largest=5e-2),
    "int8": Tolerance(largest=0.25, mean=1e-3),  # a value near the middle of two steps may be rounded to either
    "int8-native": Tolerance(largest=0.25, mean=1e-3),
    "fp32-native": Tolerance(largest=1e-4),
}
SHORTLIST_TOLERANCE = Tolerance(largest=1e-4)  # of steps with the shortlist, whose products are the same
SHORTLIST_BATCH = 8  # sentences whose pieces are united


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """The number of translations and of tokens, and the differences of their log-probabilities."""

    translations: int
    tokens: int
    largest: float
    mean: float

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens of {self.translations:,} translations scored, differences up to {self.largest:.1e}"
        )


def check_scores(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    precision: str,
    forced: tuple[int, ...] = (),
    found: Sequence[tuple[Hypothesis, ...]] | None = None,
) -> ScoreReport:
    """Score all hypotheses that the engine finds for the framed sources and compare, token by token.

    forced: see `decode_all`
    found: these hypotheses, if the engine has found them already

    Raises ParityError if log-probabilities differ too much.
    """
    if found is None:
        found = engine_search(runner, sources, beam_size, length_penalty, num_hypotheses=beam_size, forced=forced)
    pairs = [(source, each) for source, hypotheses in zip(sources, found, strict=True) for each in hypotheses]
    longest = runner.limits.max_target_tokens - 1 - len(forced)  # the scorer reads BOS, too
    scored = engine_scores(runner, [(source, each.tokens[:longest]) for source, each in pairs], forced)
    differences = Differences()
    for (_, hypothesis), each in zip(pairs, scored, strict=True):
        differences.add(_differences(hypothesis, finite(each.log_probs, f"scores in {precision}"), longest))
    differences.check(f"{precision}: beam size {beam_size}: Score and search", TOLERANCE[precision])
    return ScoreReport(len(pairs), differences.count, differences.largest, differences.mean)


def _differences(hypothesis: Hypothesis, scored: np.ndarray, longest: int) -> np.ndarray:
    """Return the differences of the tokens that have both log-probabilities.

    scored: (target_length + 1), the end token last, which an unfinished hypothesis does not have
    """
    found = np.array(hypothesis.log_probs[: longest + hypothesis.finished])
    differences: np.ndarray = np.abs(found - scored[: len(found)])
    return differences


def check_shortlist_steps(runner: Runner, sources: Sequence[tuple[int, ...]], precision: str) -> Differences:
    """Check that a step with the shortlist is a step over the pieces of its sentence alone, in batches of sentences.

    The expected log-probabilities are those of the full decoder, normalised over the pieces. Raises ParityError if a
    step differs, or offers a piece that is not on the shortlist of its sentence.
    """
    differences = Differences()
    for first in range(0, len(sources), SHORTLIST_BATCH):
        batch = sources[first : first + SHORTLIST_BATCH]
        found = engine_search(runner, batch, 1, 0.0, shortlist=True)
        targets = [best.tokens[: runner.limits.max_target_tokens - 1] for best, *_ in found]
        _compare_shortlist_steps(runner, batch, targets, differences, precision)
    differences.check(f"{precision}: log-probabilities of steps with and without shortlist", SHORTLIST_TOLERANCE)
    return differences


def _compare_shortlist_steps(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    targets: Sequence[tuple[int, ...]],
    differences: Differences,
    precision: str,
) -> None:
    """Compare all steps of translations; two beams of each sentence read the same, which gives four candidates."""
    assert runner.shortlist is not None
    pieces = [runner.shortlist.select(source) for source in sources]
    lengths = np.array([len(source) for source in sources])
    ids = np.array([[*source, *[PAD] * (int(lengths.max()) - len(source))] for source in sources])
    encoded = runner.encode(ids, lengths)
    steps = max(map(len, targets)) + 1
    shape = BatchShape(len(sources), 2, width_for(int(lengths.max())), steps)
    full, short = runner.open(shape), runner.open(shape, shortlist=True)
    for slot in range(len(sources)):
        full.place(slot, encoded, slot)
        short.place(slot, encoded, slot, pieces[slot])
    for step in range(steps):
        read = [[BOS, *target][min(step, len(target))] for target in targets]
        logits = _step(full, read, step, logits=True).logits
        found = _step(short, read, step, logits=False)
        assert logits is not None
        for row in range(shape.rows):
            allowed = pieces[row // 2]
            offered, log_probs = found.candidate_ids[row], found.candidate_log_probs[row]
            if not np.isin(offered, allowed).all():
                raise ParityError(f"{precision}: a step with the shortlist offers a piece that is not on the shortlist")
            expected = log_softmax(logits[row][allowed])
            differences.add(np.abs(expected[np.searchsorted(allowed, offered)] - log_probs))
            differences.add(np.abs(expected.max() - log_probs[:1]))


def _step(buffers: Buffers, read: Sequence[int], step: int, *, logits: bool) -> Step:
    """Run a step in which both rows of each sentence read a token."""
    buffers.token_ids[:], buffers.positions[:] = np.repeat(read, 2), step
    return buffers.step(len(read), logits=logits)
