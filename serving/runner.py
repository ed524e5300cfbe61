"""The seam between deciding and computing: what the engine asks of whatever runs the graphs.

`serving.onnx_runner` answers it with ONNX Runtime; tests answer it with a few lines of NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lingon.bundle import Limits
from serving.job import Scored

Encoded = dict[str, np.ndarray]
"""What the encoder says of a batch: memory and first recurrent states by name, (batch, ...) each."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step found, row by row.

    candidate_ids, candidate_log_probs: (rows, candidates), likeliest first
    logits: (rows, vocab), where they were asked for
    """

    candidate_ids: np.ndarray
    candidate_log_probs: np.ndarray
    logits: np.ndarray | None


class Buffers(Protocol):
    """The states of a running batch of up to `sentences` sentences of one beam width and one memory width.

    Sentences live in slots 0, 1, ...; the rows of slot s are s * beam_size to (s + 1) * beam_size.
    """

    def place(self, slot: int, encoded: Encoded, index: int) -> None:
        """Put sentence `index` of an encoder's batch into a slot; nothing of what was there stays."""

    def step(self, sentences: int, token_ids: np.ndarray, positions: np.ndarray, *, logits: bool) -> Step:
        """One step of the first `sentences` slots; token_ids and positions: (sentences * beam_size).

        What it returns is overwritten by the next step.
        """

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, length: int) -> int:
        """Copy the past of rows onto others, its first `length` positions; returns the bytes copied."""

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot, its past's first `length` positions; returns the bytes of past copied."""


class Runner(Protocol):
    """A loaded model."""

    @property
    def limits(self) -> Limits:
        """The model's bounds."""

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder; source_ids: (batch, source_length), source_lengths: (batch)."""

    def open(self, sentences: int, beam_size: int, width: int, capacity: int) -> Buffers:
        """Room for a running batch: memory of width source tokens, pasts of capacity target tokens."""

    def score(
        self, source_ids: np.ndarray, source_lengths: np.ndarray, target_ids: np.ndarray, target_lengths: np.ndarray
    ) -> list[Scored]:
        """Run the scorer; target_ids: (batch, target_length) without special tokens, padded, of target_lengths."""
