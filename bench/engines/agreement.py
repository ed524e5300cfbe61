"""Agreement of two engines: the share of identical translations, and the causes of the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lingon.bench.engines.base import Cell, Tokens, batches, limit
from lingon.bundle.store import Bundle
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.text import EOS, PAD

TIE = 1e-3
"""Differences of log-probability up to this are rounding errors: float32 over some ten layers changes them by 1e-5 to
1e-4, and a hypothesis adds up tens of them."""

BATCH = 16  # sentences scored together

Cause = Literal["tie", "bound", "ours is likelier", "theirs is likelier"]
"""The cause of a difference between two hypotheses: "ours" of Lingon, "theirs" of another engine.

tie: the log-probabilities that decided, of the first different token or, in beam search, of the hypotheses, differ
    by at most TIE
bound: our length limit ended one of them, and their limit, of a batch (lingon.bench.engines.base), was higher
ours (theirs) is likelier: neither of these, so that one search found a hypothesis that the other missed
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Two different hypotheses for the sentence of this index.

    log_probs: of our hypothesis and of theirs
    gap: log-probability of the first different token, ours less theirs; 0 if no position is left to score it
    """

    index: int
    cause: Cause
    log_probs: tuple[float, float]
    gap: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of two engines' translations of the same sources."""

    sentences: int
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> float:
        """The share of sentences with identical translations."""
        return 1 - len(self.differences) / self.sentences


def compare(
    runner: OnnxRunner,
    sources: Sequence[Sequence[int]],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    cell: Cell,
    size: int | None = None,
    tie: float = TIE,
) -> Agreement:
    """Compare hypotheses (token ids without begin and end token), and score different ones by our scorer in fp32.

    runner: of the bundle's fp32 graphs, from lingon.serving.runtime.onnx_runner.load_runner
    size: sentences of a batch of the other engine, by default cell.batch; less if several workers share a batch
    tie: differences of log-probability up to this are rounding errors
    """
    limits = {
        index: batch.longest
        for batch in batches(sources, cell, runner.limits, size or cell.batch)
        for index in batch.indices
    }
    pairs = zip(ours, theirs, strict=True)
    differing = [index for index, (mine, other) in enumerate(pairs) if list(mine) != list(other)]
    found: list[Difference] = []
    for first in range(0, len(differing), BATCH):
        some = differing[first : first + BATCH]
        chosen = [sources[index] for index in some]
        mine, other = ([hypotheses[index] for index in some] for hypotheses in (ours, theirs))
        scored = zip(_scored(runner, chosen, mine), _scored(runner, chosen, other), strict=True)
        for index, log_probs in zip(some, scored, strict=True):
            both = (limit(len(sources[index]), cell, runner.limits), limits[index])
            pair = _Pair((ours[index], theirs[index]), log_probs, both, cell.beam_size, tie)
            found.append(pair.difference(index))
    return Agreement(len(sources), tuple(found))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two different hypotheses of a sentence, ours first.

    log_probs: of the tokens of each and of the end token
    limits: the maximum number of tokens of each, with the end token
    """

    hypotheses: tuple[Sequence[int], Sequence[int]]
    log_probs: tuple[np.ndarray, np.ndarray]
    limits: tuple[int, int]
    beam_size: int
    tie: float

    def difference(self, index: int) -> Difference:
        """Return the difference and its cause."""
        position, (mine, other) = self._first_difference(), self.log_probs
        gap = float(mine[position] - other[position]) if position < min(len(mine), len(other)) else 0.0
        # A hypothesis at its limit has no end token, so that the slice drops the score of one.
        ours, theirs = (float(row[:limit].sum()) for row, limit in zip(self.log_probs, self.limits, strict=True))
        cause = "bound" if self._is_bounded(position) else self._likelier(gap if self.beam_size == 1 else ours - theirs)
        return Difference(index=index, cause=cause, log_probs=(ours, theirs), gap=gap)

    def _is_bounded(self, position: int) -> bool:
        """Return whether our limit is the lower one, and ended our hypothesis or would have ended theirs."""
        limit, other = self.limits
        reached = max(map(len, self.hypotheses)) >= limit
        return limit < other and reached and (self.beam_size > 1 or position == limit)

    def _first_difference(self) -> int:
        ended = [[*hypothesis, EOS] for hypothesis in self.hypotheses]
        return next(position for position, (mine, other) in enumerate(zip(*ended, strict=False)) if mine != other)

    def _likelier(self, gap: float) -> Cause:
        """Return the cause for a difference of log-probabilities, ours less theirs."""
        if abs(gap) <= self.tie:
            return "tie"
        return "ours is likelier" if gap > 0 else "theirs is likelier"


def _scored(runner: OnnxRunner, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return the log-probabilities of each target's tokens and of the end token, up to the model's last position."""
    most = runner.limits.max_target_tokens - 1  # The begin token takes one position.
    source_ids, source_lengths = _padded(sources)
    target_ids, target_lengths = _padded([target[:most] for target in targets])
    scored = runner.score(source_ids, source_lengths, target_ids, target_lengths)
    return [
        row.log_probs[: len(target) + 1 if len(target) <= most else most]
        for row, target in zip(scored, targets, strict=True)
    ]


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), max(lengths.max(), 1)), PAD, np.int64)
    for filled, row in zip(ids, rows, strict=True):
        filled[: len(row)] = row
    return ids, lengths


class OutputComparison:
    """A comparison of outputs for one bundle with reference outputs. It loads the scorer when it first needs it."""

    def __init__(self, bundle: Bundle, *, threads: int = 1, tie: float = TIE) -> None:
        """threads: of the scorer; tie: see `compare`."""
        self._bundle, self._threads, self._tie = bundle, threads, tie

    def columns(
        self, cell: Cell, sources: Sequence[Sequence[int]], reference: Tokens | None, outputs: Tokens, *, explain: bool
    ) -> dict[str, Any]:
        """Return the columns of a result row. None means not compared.

        agreement: share of sentences with the outputs of the reference
        causes: number of differences by cause, only if `explain` (of two fp32 engines over the whole vocabulary)
        """
        if reference is None:
            return {"agreement": None, "causes": None}
        same = sum(list(one) == list(other) for one, other in zip(outputs, reference, strict=True))
        causes = self._causes(cell, sources, reference, outputs) if explain else None
        return {"agreement": round(same / len(reference), 4), "causes": causes}

    def _causes(
        self, cell: Cell, sources: Sequence[Sequence[int]], reference: Tokens, outputs: Tokens
    ) -> dict[str, int]:
        if reference == outputs:
            return {}
        compared = compare(self._runner, sources, reference, outputs, cell, tie=self._tie)
        return dict(Counter(difference.cause for difference in compared.differences))

    @cached_property
    def _runner(self) -> OnnxRunner:
        return load_runner(self._bundle, "fp32", threads=self._threads)
