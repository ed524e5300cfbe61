"""The interface between the engine, which decides what to decode, and the model, which computes.

`lingon.serving.runtime.onnx_runner` implements it with ONNX Runtime. Tests implement it with a few lines of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from lingon.alignment import AttentionKind
from lingon.bundle.manifest import Limits
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import PAD, LanguageTokens, common_length

NARROWEST = 32  # source tokens; a multiple of 4, so that sums do not depend on padding, see onnx_runner.py

Encoded = dict[str, Any]
"""The output of the encoder: memory and initial recurrent states by name, (batch, ...) each.

They are NumPy arrays, or arrays on the device of the runner, which only its buffers read.
"""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The size of a running batch."""

    sentences: int  # slots, each for a sentence
    beam_size: int  # rows of each sentence
    width: int  # source tokens of each sentence, padded; see `width_for`
    capacity: int  # target tokens of each row

    @property
    def rows(self) -> int:
        return self.sentences * self.beam_size


@dataclass(frozen=True, slots=True)
class Step:
    """The results of one decoder step.

    candidate_ids, candidate_log_probs: (rows, candidates), likeliest first; one candidate for beam size 1, otherwise
        two for each beam
    logits: (rows, vocab), if requested
    """

    candidate_ids: np.ndarray
    candidate_log_probs: np.ndarray
    logits: np.ndarray | None


FREE = -1
"""In forced tokens: no token, so that the search chooses it."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedPast:
    """The decoder's own states of a row after its first input tokens, which are BOS and tokens of the target.

    They are those of the run that saved them, and depend on the source of that run. A greedy translation of the same
    source that continues from them has the results of one that computed them, to the last bit, and so have beams in the
    graphs of our operators; in others the last bits may differ. For a source that has changed, such as one with further
    words, they are an approximation: its own states would be those of its own source.

    model: what the states belong to; only buffers of the same loaded model restore them
    tokens: the input tokens, BOS first
    caches: (tokens or more, ...) each
    recurrent: (...) each; they are those after all tokens alone
    attention: (tokens or more, source tokens), where the model looked at each step, in the source of that run; None if
        its job did not ask for attention
    log_probs: (tokens - 1 or more), of the tokens after BOS, in that run; None if that run did not know them
    """

    model: object
    tokens: tuple[int, ...]
    caches: tuple[np.ndarray, ...]
    recurrent: tuple[np.ndarray, ...] = ()
    attention: np.ndarray | None = None
    log_probs: tuple[float, ...] | None = None

    @property
    def length(self) -> int:
        """The number of input tokens."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that it keeps. A cut frees none."""
        kept = 0 if self.attention is None else self.attention.nbytes
        return sum(each.nbytes for each in (*self.caches, *self.recurrent)) + kept

    @property
    def can_cut(self) -> bool:
        """Whether it has the states after fewer tokens too."""
        return not self.recurrent

    def cut(self, length: int) -> SavedPast:
        """Return the states after the first `length` tokens, in the same memory.

        Raises ValueError if there are none, see `can_cut`.
        """
        if not 1 <= length <= self.length or (length < self.length and not self.can_cut):
            least = 1 if self.can_cut else self.length
            raise ValueError(f"length must be {least} to {self.length}, got {length}")
        return self if length == self.length else replace(self, tokens=self.tokens[:length])

    def of(self, tokens: Sequence[int]) -> SavedPast | None:
        """Return the states after as many first input tokens as are the same in `tokens`, or None if there are none."""
        length = common_length(self.tokens, tokens)
        return None if length == 0 or (length < self.length and not self.can_cut) else self.cut(length)


class GreedySteps(NamedTuple):
    """The choices of several steps of greedy search: [step][sentence] each, as many steps as were run.

    tokens: the forced tokens among them
    log_probs: of the likeliest tokens, also where another one was forced, unless those of forced ones are asked for
    """

    tokens: list[list[int]]
    log_probs: list[list[float]]

    def with_forced(self, forced: np.ndarray) -> GreedySteps:
        """Return these choices with the forced tokens in them; forced: see GreedyBuffers.greedy_steps."""
        own = forced[: len(self.tokens)]
        return GreedySteps(np.where(own == FREE, self.tokens, own).tolist(), self.log_probs)


class Buffers(Protocol):
    """The decoder states of a running batch, allocated for a BatchShape.

    Sentences occupy slots 0, 1, ... The rows of slot s are s * beam_size to (s + 1) * beam_size - 1.
    """

    @property
    def token_ids(self) -> np.ndarray:
        """The input token of each row in the next step; writable: (rows of all slots)."""

    @property
    def positions(self) -> np.ndarray:
        """The number of input tokens of each row so far; writable: (rows of all slots)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all slots."""

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put sentence `index` of an encoder batch into a slot and overwrite the previous content of the slot.

        piece_ids: (pieces) in any order, the permitted target pieces of the sentence; only if opened with a shortlist
        """

    def step(self, sentences: int, *, logits: bool) -> Step:
        """Run one decoder step for the first `sentences` slots. The next step overwrites the returned arrays."""

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy the first `lengths` positions of the past of row `sources` to row `targets`, one pair after the other.

        sources, targets, lengths: (copies). Returns the number of bytes copied.
        """

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot with `length` positions of its past. Returns the copied bytes of past."""


@runtime_checkable
class GreedyBuffers(Protocol):
    """Buffers that can run several steps of greedy search in one call."""

    @property
    def most_steps(self) -> int:
        """The most steps of one call."""

    @property
    def weighs(self) -> bool:
        """Whether it can return the log-probabilities of forced tokens."""

    def greedy_steps(
        self, sentences: int, steps: int, forced: np.ndarray | None = None, *, weighs: bool = False
    ) -> GreedySteps:
        """Run steps for the first `sentences` slots, of one row each. A row's input is its last token.

        Runs at most `steps`. Buffers that read the tokens may stop after any step. Otherwise rows continue after their
        end token. Advances token_ids and positions.

        forced: (steps, sentences) int64, the token that a row takes in a step instead of its likeliest one, or FREE
        weighs: whether the log-probability of a forced token is its own; only if the buffers can, see `weighs`
        """


@runtime_checkable
class PastBuffers(Protocol):
    """Buffers that can save the past of a row, and continue from it."""

    @property
    def can_cut(self) -> bool:
        """Whether a saved past has the states after fewer tokens too, and not only the latest ones."""

    def save(self, row: int, tokens: tuple[int, ...]) -> SavedPast:
        """Return a copy of the states of a row after its first input tokens, which must be all unless `can_cut`."""

    def restore(self, slot: int, past: SavedPast) -> bool:
        """Make a past that of all rows of a slot, and return whether it was possible.

        It is not for a past of another model, or one that leaves no room for a token. Call it after `place`. The caller
        sets the positions of the rows.
        """


@dataclass(frozen=True, slots=True)
class BeamStates:
    """The hypotheses of beam search, by slot. A step changes these arrays.

    rows, totals: (slots, beam_size), the row of the hypothesis of each rank within its slot, and its log-probability
    tokens, log_probs: (slots, beam_size, capacity), by row: its tokens and their log-probabilities
    """

    rows: np.ndarray
    totals: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray


@dataclass(frozen=True, slots=True)
class EndedBeams:
    """The hypotheses that ended in a step. The next step overwrites the arrays.

    flags, totals: (sentences, beam_size), by rank: whether the hypothesis ended, and its log-probability
    tokens, log_probs: (sentences, beam_size, capacity), up to its end; log_probs includes the end token
    failed: (sentences), True for unchanged sentences with NaN
    rows: (sentences, beam_size, capacity), by rank: the row of the sentence that computed each token up to its end, the
        end token included; None if the graphs do not say it
    """

    flags: np.ndarray
    totals: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray
    failed: np.ndarray
    rows: np.ndarray | None = None


class BeamSearch(Protocol):
    """Beam search over the candidates of the last step of some buffers."""

    def advance(self, sentences: int, forced: np.ndarray | None = None) -> EndedBeams:
        """Continue the first `sentences` slots with their candidates: their states, tokens, positions and pasts.

        forced: (sentences) int64, the only token that continues the hypotheses of a slot, with log-probability 0, or
            FREE. The candidates of such a slot are not read.
        """


@runtime_checkable
class SeveralBeamSteps(BeamSearch, Protocol):
    """Beam search that can run several decoder steps, with the search after each, in one call."""

    @property
    def most_steps(self) -> int:
        """The steps of one call."""

    def several(self, sentences: int) -> Iterator[EndedBeams]:
        """Run the next steps of the first `sentences` slots and return what ends in each.

        States, tokens and positions are those after a step when its hypotheses are yielded. A caller that stops before
        the last step must not continue these sentences.
        """


@runtime_checkable
class SpreadingSearch(BeamSearch, Protocol):
    """Beam search over buffers in which the rows of a sentence can compute several positions of a past in one step."""

    def spread(self, slot: int, begin: int, count: int) -> None:
        """Let row r of a slot have position begin + r of a past that all its rows read, for the first `count` rows.

        All rows of the slot must have the same past up to `begin`.
        """


@runtime_checkable
class BeamBuffers(Protocol):
    """Buffers that can search without the host."""

    def beam_search(self, states: BeamStates) -> BeamSearch | None:
        """Return the search that changes these states, or None if the graphs have none."""


class AttentionHistory(Protocol):
    """Where the rows of some buffers looked: the mean of the heads for alignments, at every step that was kept.

    kept: whether the steps that follow are kept; writable. A row has steps from when they are kept on
    """

    kept: bool

    def restore(self, slot: int, saved: np.ndarray | None, length: int) -> None:
        """Put the attention of a saved past in the first `length` steps of a slot, 0 for what it does not say.

        saved: see SavedPast
        """

    def of_row(self, row: int, length: int) -> np.ndarray:
        """Return a copy of the first `length` steps of the past of a row, (length, width)."""

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of steps that several rows computed, (length, width); rows: (length), the row of each step."""


@runtime_checkable
class AttendingBuffers(Protocol):
    """Buffers whose graphs say where each row looks."""

    @property
    def attention(self) -> AttentionHistory | None:
        """What keeps it, or None if the graphs do not say it."""


class Runner(Protocol):
    """A loaded model.

    Raises MemoryError if a run or an allocation lacks memory. The model stays usable.
    """

    @property
    def limits(self) -> Limits:
        """The limits of the model."""

    def capacity(self, width: int) -> int:
        """Return the target tokens of a row whose sources have this width, language tokens included."""

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder; source_ids: (batch, source_length), source_lengths: (batch)."""

    @property
    def shortlist(self) -> Shortlist | None:
        """The vocabulary shortlist, or None if the model has none."""

    @property
    def any_width(self) -> bool:
        """Whether results do not depend on the width of a batch, so that a sentence may join a wider one."""

    @property
    def steps_attend(self) -> bool:
        """Whether decoder steps say where they look, so that hypotheses have attention if the options ask for it."""

    @property
    def spread(self) -> int:
        """The number of sentences from which on several batches, each with a share of the cores, end sooner.

        Fewer sentences end sooner in one batch with all cores.
        """

    @property
    def run_bytes(self) -> int:
        """About the most bytes of memory that one run takes beyond weights and states."""

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Buffers:
        """Allocate the states of a running batch.

        shortlist: whether each sentence chooses among its own target pieces, instead of the whole vocabulary
        """

    @property
    def attention(self) -> Mapping[AttentionKind, AttentionSize]:
        """The attention of the model, in the order of AttentionKind; empty for a model without attention."""

    def score(
        self,
        source_ids: np.ndarray,
        source_lengths: np.ndarray,
        target_ids: np.ndarray,
        target_lengths: np.ndarray,
        choices: Sequence[AttentionChoice] = (),
    ) -> list[Scored]:
        """Run the scorer.

        source_ids: (batch, source_length), target_ids: (batch, target_length) without BOS and EOS; padded
        source_lengths, target_lengths: (batch)
        choices: (batch), the attention matrices to return with each pair; empty if no pair needs matrices
        """

    def free_memory(self) -> None:
        """Free the memory that the scorer keeps for further large runs. Call it when none follow."""


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """The number of attention matrices of a kind in a model."""

    layers: int
    heads: int  # heads of each layer


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """Matrices of one kind: each of these heads of each of these layers, or the mean of the heads. Both ascend."""

    kind: AttentionKind
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    mean: bool

    @property
    def matrices(self) -> int:
        return len(self.layers) * (1 if self.mean else len(self.heads))


AttentionChoice = tuple[HeadChoice, ...]
"""The attention matrices to return with a pair, in the order of their kinds; empty for none."""


@dataclass(frozen=True, slots=True)
class AttentionMatrix:
    """The attention of a head, or the mean of several heads if head is None.

    weights: (rows, columns), see `matrix_shape`
    """

    kind: AttentionKind
    layer: int
    head: int | None
    weights: np.ndarray


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a given translation.

    log_probs: (target_length + 1), of each target token and of the end token
    attention: (target_length + 1, source_length), the weight of each source token for each target token; the last row
        and the last column are those of the end tokens
    matrices: the requested ones
    """

    log_probs: np.ndarray
    attention: np.ndarray
    matrices: tuple[AttentionMatrix, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether no score and no weight is NaN or infinite, by one sum of each array."""
        arrays = self.log_probs, self.attention, *(matrix.weights for matrix in self.matrices)
        return all(np.isfinite(each.sum()) for each in arrays)

    def without(self, tokens: LanguageTokens) -> Scored:
        """Return these scores without the rows and columns of the tokens of the languages."""
        source = slice(len(tokens.before), -len(tokens.after) or None)
        target = slice(len(tokens.forced), None)
        kinds: dict[AttentionKind, tuple[slice, slice]] = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }
        matrices = tuple(replace(each, weights=each.weights[kinds[each.kind]]) for each in self.matrices)
        attention = self.attention[target, source] if self.attention.size else self.attention
        return Scored(self.log_probs[target], attention, matrices)


def matrix_shape(kind: AttentionKind, source: int, target: int) -> tuple[int, int]:
    """Return the numbers of rows and columns of a matrix.

    encoder: both are the source tokens. decoder: a row for each prediction, a column for BOS and each token but EOS.
    cross: a row for each prediction, a column for each source token.

    source: all its tokens; target: tokens with EOS, or as many with BOS
    """
    return (source if kind == "encoder" else target, target if kind == "decoder" else source)


def width_for(source_length: int) -> int:
    """Return the width of the memory for a source: 32, 64, 128, ... tokens.

    Widths from 16 on would split a batch of everyday sentences in two, and two steps cost more than a wider memory.
    """
    width = NARROWEST
    while width < source_length:
        width *= 2
    return width


def padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of ids padded to (rows, longest), at least two columns, and their lengths.

    A product with a single column takes another path in the kernels, with sums that differ in the last bit.
    """
    lengths = [len(row) for row in rows]
    width = max(*lengths, 2)
    return np.array([[*row, *[PAD] * (width - len(row))] for row in rows]), np.array(lengths)
