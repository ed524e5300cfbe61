"""The reference search, greedy and beam: simple and slow, to check the engine in `serving`.

The engine is a second, fast implementation of the same search. The two share no code, so that each checks the other.
Both follow these rules:

- A step adds the log-probability of every live hypothesis to those of its continuations, and ranks all continuations
  of a sentence. Of equal ones, the one with the better-ranked parent comes first, then the one with the lower token id.
- Of the 2 * beam_size best continuations, those that end with the end token and rank within the first beam_size become
  finished. The best beam_size continuations that do not end stay live.
- score = log-probability / length ** length_penalty. The length counts the end token, and 0 is no penalty.
- The search of a sentence stops when enough hypotheses are finished and no live one scores above the worst of these.
  Without a length penalty, num_hypotheses are enough, because scores only fall. With one, beam_size are enough.
- At max_length, the live hypotheses are taken as unfinished results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lingon.errors import SettingsError
from lingon.text import BOS, EOS
from lingon.training.batches import pad
from lingon.training.models.interface import AnyModel, select_rows

LENGTH_FACTOR, LENGTH_EXTRA = 2.0, 16  # most target tokens: LENGTH_FACTOR * source tokens + LENGTH_EXTRA


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """The settings of a search."""

    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 0.0
    length_factor: float = LENGTH_FACTOR  # a target has at most length_factor * source tokens + length_extra tokens
    length_extra: int = LENGTH_EXTRA
    forced: tuple[int, ...] = ()  # target tokens that are read after BOS, and that are no part of a translation

    def __post_init__(self) -> None:
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise SettingsError(
                f"num_hypotheses must be from 1 to beam_size ({self.beam_size}), got {self.num_hypotheses}"
            )
        if not 0 <= self.length_penalty <= 10:  # the bounds of a bundle
            raise SettingsError(f"length_penalty must be from 0 to 10, got {self.length_penalty}")

    def max_length(self, source_length: int, positions: int) -> int:
        """Return the most target tokens for a source of source_length tokens, the end tokens counted."""
        longest = positions - len(self.forced)
        return min(int(self.length_factor * source_length) + self.length_extra, longest)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation in tokens.

    tokens: token ids without begin and end token
    score: log-probability / length ** length_penalty
    finished: whether it ends with the end token, or False if it ends at the length limit
    """

    tokens: tuple[int, ...]
    score: float
    finished: bool


PairIds = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a source, and those that its translation begins with."""


@dataclass(slots=True)
class _Beam:
    """The search of one sentence: live hypotheses with their log-probabilities, best first, and finished ones."""

    max_length: int
    live: list[tuple[tuple[int, ...], float]] = field(default_factory=lambda: [((), 0.0)])
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, log_probs: Tensor, settings: SearchSettings) -> list[int]:
        """Take one step; log_probs is (live, vocab). Return the index of the parent of every live hypothesis."""
        totals = log_probs + torch.tensor([score for _, score in self.live])[:, None]
        parents: list[int] = []
        live: list[tuple[tuple[int, ...], float]] = []
        for rank, (index, total) in enumerate(_largest(totals.flatten(), 2 * settings.beam_size)):
            parent, token = divmod(index, totals.size(1))
            if token == EOS:
                if rank < settings.beam_size:
                    self._finish(self.live[parent][0], total, settings, finished=True)
            elif len(live) < settings.beam_size:
                live.append(((*self.live[parent][0], token), total))
                parents.append(parent)
        self.live = live
        if self._is_done(settings):
            self.live, parents = [], []
        elif len(live[0][0]) == self.max_length:
            for tokens, total in live:
                self._finish(tokens, total, settings, finished=False)
            self.live, parents = [], []
        return parents

    def best(self, count: int) -> list[Hypothesis]:
        """Return the `count` best finished hypotheses, the best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)[:count]

    def _finish(self, tokens: tuple[int, ...], total: float, settings: SearchSettings, *, finished: bool) -> None:
        score = normalised_score(total, len(tokens) + finished, settings)
        self.finished.append(Hypothesis(tokens, score, finished))

    def _is_done(self, settings: SearchSettings) -> bool:
        enough = settings.num_hypotheses if settings.length_penalty == 0 else settings.beam_size
        if len(self.finished) < enough or not self.live:
            return not self.live
        tokens, total = self.live[0]
        return self.best(enough)[-1].score >= normalised_score(total, len(tokens), settings)


def _largest(values: Tensor, count: int) -> list[tuple[int, float]]:
    """Return index and value of the `count` largest, the largest first, and of equal ones the first one first.

    That is a stable sort of all values, without sorting all: of 58,000 pieces and four beams it took most of a step.
    """
    least = values.topk(min(count, len(values))).values[-1]
    chosen = (~(values < least)).nonzero()[:, 0]  # at least `count`: NaN counts as large, as it does for topk
    ranked = values[chosen].sort(descending=True, stable=True)
    indices = chosen[ranked.indices[:count]].tolist()
    return list(zip(indices, ranked.values[:count].tolist(), strict=True))


def normalised_score(total: float, length: int, settings: SearchSettings) -> float:
    """Return the score of a hypothesis of this total log-probability and length."""
    return total / float(length**settings.length_penalty)


@torch.inference_mode()
def translate(
    model: AnyModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    batch_size: int = 64,
    on_progress: Callable[[int, int], object] = lambda done, of: None,
) -> list[list[Hypothesis]]:
    """Return the best num_hypotheses translations of each source, the best first.

    sources: token ids, as the tokenizer of the model frames them
    on_progress: called after each batch with the number of sources that are done and the number of all
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        for index, hypotheses in zip(chosen, _translate(model, [sources[i] for i in chosen], settings), strict=True):
            found[index] = hypotheses
        on_progress(first + len(chosen), len(order))
    return found


def _translate(model: AnyModel, sources: Sequence[Sequence[int]], settings: SearchSettings) -> list[list[Hypothesis]]:
    device = model.output.weight.device
    lengths = torch.tensor([len(source) for source in sources])
    memory = model.encode(pad(sources).to(device), lengths.to(device))
    beams = [_Beam(settings.max_length(len(source), model.settings.max_positions)) for source in sources]
    past, rows = model.start(memory), torch.arange(len(sources))
    sentences = rows
    *read, last = (torch.full((len(sources),), token) for token in (BOS, *settings.forced))
    for each in read:
        _, past = model.decode_step(each.to(device), past, memory)
    tokens = last
    while len(rows):
        past = select_rows(past, rows.to(device))
        if not torch.equal(sentences[rows], sentences):  # else each row reads the same memory as before
            memory, sentences = select_rows(memory, rows.to(device)), sentences[rows]
        logits, past = model.decode_step(tokens.to(device), past, memory)
        rows, tokens = _advance(beams, model.log_probs(logits).cpu(), settings)
    return [beam.best(settings.num_hypotheses) for beam in beams]


def _advance(beams: list[_Beam], log_probs: Tensor, settings: SearchSettings) -> tuple[Tensor, Tensor]:
    """Take a step in every beam; return, for each live hypothesis, the row that it continues and its last token."""
    rows: list[int] = []
    tokens: list[int] = []
    first = 0
    for beam in beams:
        width = len(beam.live)
        if width:
            rows += [first + parent for parent in beam.advance(log_probs[first : first + width], settings)]
            tokens += [live[-1] for live, _ in beam.live]
        first += width
    return torch.tensor(rows, dtype=torch.long), torch.tensor(tokens, dtype=torch.long)
