"""Whether two engines found the same translations, and why not where they did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lingon.bench.engines.base import Cell
from lingon.bench.engines.batches import batches, limit
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.text import EOS, PAD

TIE = 1e-3
"""Log-probabilities this close are decided by how sums were rounded: float32 over some ten layers moves them by 1e-5
to 1e-4, and a hypothesis adds up tens of them."""

BATCH = 16  # sentences that are scored together

Cause = Literal["tie", "bound", "ours is likelier", "theirs is likelier"]
"""Why two hypotheses differ.

tie: what decided between them, the first token that differs or, in beam search, the hypotheses themselves, lies within
    TIE of each other
bound: our length limit ended one of them, where theirs, that of a batch (lingon.bench.engines.batches), let a search go
on ours (theirs) is likelier: neither; one search found what the other one missed
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Two hypotheses for the sentence of this index.

    log_probs: of ours and of theirs as a whole
    gap: by how much the first token that differs is likelier in ours; 0 where no position is left to score it
    """

    index: int
    cause: Cause
    log_probs: tuple[float, float]
    gap: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two engines' translations of the same sources compare."""

    sentences: int
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> float:
        """The share of sentences that came out alike."""
        return 1 - len(self.differences) / self.sentences

    def line(self) -> str:
        """All of it in a line."""
        causes = Counter(difference.cause for difference in self.differences)
        told = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
        return f"{self.identical:.2%} of {self.sentences} sentences identical{f' ({told})' if told else ''}"


def compare(
    runner: OnnxRunner,
    sources: Sequence[Sequence[int]],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    cell: Cell,
    size: int | None = None,
) -> Agreement:
    """Compare hypotheses, token ids without begin and end token; what differs is scored by our scorer, in fp32.

    runner: of a bundle's fp32 graphs, from lingon.serving.runtime.onnx_runner.load_runner
    size: sentences of a batch of theirs, if not cell.batch: where several workers share it, it is less
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
            found.append(_Pair((ours[index], theirs[index]), log_probs, both, cell.beam_size).difference(index))
    return Agreement(len(sources), tuple(found))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two different hypotheses of a sentence, ours first.

    log_probs: of each of their tokens and of the end token
    limits: the most tokens that either may have, the end token counted
    """

    hypotheses: tuple[Sequence[int], Sequence[int]]
    log_probs: tuple[np.ndarray, np.ndarray]
    limits: tuple[int, int]
    beam_size: int

    def difference(self, index: int) -> Difference:
        """What is to be said of them."""
        place, (mine, other) = self._first_difference(), self.log_probs
        gap = float(mine[place] - other[place]) if place < min(len(mine), len(other)) else 0.0
        # At its limit a hypothesis has no end token, and the slice leaves out what was scored for it.
        ours, theirs = (float(row[:limit].sum()) for row, limit in zip(self.log_probs, self.limits, strict=True))
        cause = "bound" if self._is_bounded(place) else _decided(gap if self.beam_size == 1 else ours - theirs)
        return Difference(index=index, cause=cause, log_probs=(ours, theirs), gap=gap)

    def _is_bounded(self, place: int) -> bool:
        """Whether our limit, where it is the lower one, ended ours or would have ended theirs."""
        limit, other = self.limits
        reached = max(map(len, self.hypotheses)) >= limit
        return limit < other and reached and (self.beam_size > 1 or place == limit)

    def _first_difference(self) -> int:
        ended = [[*hypothesis, EOS] for hypothesis in self.hypotheses]
        return next(place for place, (mine, other) in enumerate(zip(*ended, strict=False)) if mine != other)


def _decided(gap: float) -> Cause:
    """What a difference of log-probabilities says, ours less theirs."""
    if abs(gap) <= TIE:
        return "tie"
    return "ours is likelier" if gap > 0 else "theirs is likelier"


def _scored(runner: OnnxRunner, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Log-probabilities of each target's tokens and of the end token after them, as far as the model has positions."""
    most = runner.limits.max_target_tokens - 1  # the begin token takes a position
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
