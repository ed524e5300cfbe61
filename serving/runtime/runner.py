"""The seam between deciding and computing: what the engine asks of whatever runs the graphs.

`lingon.serving.runtime.onnx_runner` answers it with ONNX Runtime; tests answer it with a few lines of NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lingon.bundle import Limits
from lingon.serving.runtime.shortlist import Shortlist

NARROWEST = 32  # source tokens; a multiple of 4 keeps sums independent of padding, see serving/runtime/onnx_runner.py

Encoded = dict[str, np.ndarray]
"""What the encoder says of a batch: memory and first recurrent states by name, (batch, ...) each."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step found, row by row.

    candidate_ids, candidate_log_probs: (rows, candidates), likeliest first: 1 where there is one beam, else two for
        each
    logits: (rows, vocab), where they were asked for
    """

    candidate_ids: np.ndarray
    candidate_log_probs: np.ndarray
    logits: np.ndarray | None


class Buffers(Protocol):
    """The states of a running batch of up to `sentences` sentences of one beam width and one memory width.

    Sentences live in slots 0, 1, ...; the rows of slot s are s * beam_size to (s + 1) * beam_size.
    """

    @property
    def token_ids(self) -> np.ndarray:
        """What each row reads in the next step, to be written to: (rows of all slots)."""

    @property
    def positions(self) -> np.ndarray:
        """How many tokens each row has read before, to be written to: (rows of all slots)."""

    @property
    def nbytes(self) -> int:
        """Bytes of all states, when every slot is full."""

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put sentence `index` of an encoder's batch into a slot; nothing of what was there stays.

        piece_ids: what it may say, ascending, where the batch was opened for a shortlist
        """

    def step(self, sentences: int, *, logits: bool) -> Step:
        """One step of the first `sentences` slots; what it returns is overwritten by the next one."""

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy the past of rows onto others, of each its first positions, one by one; returns the bytes copied."""

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot, its past's first `length` positions; returns the bytes of past copied."""


class Runner(Protocol):
    """A loaded model."""

    @property
    def limits(self) -> Limits:
        """The model's bounds."""

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder; source_ids: (batch, source_length), source_lengths: (batch)."""

    @property
    def shortlist(self) -> Shortlist | None:
        """Which pieces a source calls for, if the model can choose among those alone."""

    def open(self, sentences: int, beam_size: int, width: int, capacity: int, *, shortlist: bool = False) -> Buffers:
        """Room for a running batch: memory of width source tokens, pasts of capacity target tokens.

        shortlist: whether its sentences choose among certain pieces, each its own
        """

    def score(
        self, source_ids: np.ndarray, source_lengths: np.ndarray, target_ids: np.ndarray, target_lengths: np.ndarray
    ) -> list[Scored]:
        """Run the scorer; target_ids: (batch, target_length) without special tokens, padded, of target_lengths."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What the model thinks of a given translation.

    log_probs: (target_length), of each target token and of the end token
    attention: (target_length, source_length), each row how much its token looked at each source token; the end
        tokens' row and column are the last
    """

    log_probs: np.ndarray
    attention: np.ndarray


def width_for(source_length: int) -> int:
    """The memory bucket of a source: 32, 64, 128, ... tokens.

    A bucket of 16 would split a batch of everyday sentences in two, whose steps cost more than the wider memory.
    """
    width = NARROWEST
    while width < source_length:
        width *= 2
    return width
