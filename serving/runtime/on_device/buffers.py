"""The decoder states of a running batch on the device of the provider.

Only token ids, positions and source lengths go to the device in a step, and only candidates come back. A step computes
the next larger bucket of sentences, a power of two, so that there are few bindings (and few CUDA graphs); the rows
beyond the sentences are idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lingon import bundle as names
from lingon.serving.runtime.on_device.bindings import MOST_STEPS, StateBindings, bucket_of
from lingon.serving.runtime.on_device.state_graphs import StateGraphs, rows_of
from lingon.serving.runtime.runner import Encoded, GreedySteps, Step
from lingon.serving.runtime.sessions.errors import raises_memory_error


@dataclass(frozen=True, slots=True)
class _Placement:
    """A sentence that is to be written into a slot."""

    slot: int
    encoded: Encoded
    index: int


class DeviceBuffers:
    """See lingon.serving.runtime.runner.Buffers.

    Sentences are placed and moved when the next step begins, all of them in one run each.
    """

    most_steps = MOST_STEPS

    def __init__(self, bindings: StateBindings, graphs: StateGraphs) -> None:
        self.bindings, self._graphs, self._shape = bindings, graphs, bindings.shape
        self.beam_size = bindings.shape.beam_size
        self.token_ids, self.positions = bindings.token_ids, bindings.positions
        self._placements: list[_Placement] = []
        self._moves: dict[int, int] = {}  # by the slot that a sentence goes to: the slot that it leaves
        self._lengths_changed = False

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all slots."""
        return self.bindings.nbytes

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put sentence `index` of an encoder batch into a slot; shortlists are not available on a device."""
        assert piece_ids is None
        if self._moves:
            self._flush()
        self._placements.append(_Placement(slot, encoded, index))
        self._set_length(slot, encoded[names.MEMORY_LENGTHS][index])

    @raises_memory_error
    def step(self, sentences: int, *, logits: bool) -> Step:
        """Run one decoder step for the first `sentences` slots."""
        self._flush()
        return self.bindings.step(bucket_of(sentences, self._shape.sentences), sentences, logits=logits)

    @raises_memory_error
    def greedy_steps(self, sentences: int, steps: int) -> GreedySteps:
        """Run steps of greedy search for the first `sentences` slots: see GreedyBuffers."""
        assert self.beam_size == 1
        self._flush()
        found = self.bindings.greedy_steps(bucket_of(sentences, self._shape.sentences), sentences, steps)
        self.token_ids[:sentences] = found.tokens[-1]
        self.positions[:sentences] += steps
        return found

    @raises_memory_error
    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy the past of rows; no row may be both a source and a target."""
        self._flush()
        self.bindings.copy_rows(sources, targets)
        return len(sources) * self._row_bytes

    @raises_memory_error
    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot."""
        if target in self._moves.values() or source in self._moves:
            self._flush_moves()
        self._moves[target] = source
        self._set_length(target, self.bindings.memory_lengths[source])
        return self.beam_size * self._row_bytes

    def poison(self, slot: int) -> None:
        """Fill the states of a slot with values that no step may read. For tests."""
        self._flush()
        for name, state in self.bindings.states.items():
            values, count = state.read().copy(), 1 if name in self.bindings.memory_names else self.beam_size
            values[slot * count : (slot + 1) * count] = np.nan
            state.write(values)

    @property
    def _row_bytes(self) -> int:
        """Bytes of the past of one row."""
        states, memory = self.bindings.states, self.bindings.memory_names
        past = sum(state.nbytes for name, state in states.items() if name not in memory)
        return past // self._shape.rows

    def _set_length(self, slot: int, length: int) -> None:
        self.bindings.memory_lengths[slot] = length
        self._lengths_changed = True

    def _flush(self) -> None:
        """Place and move the sentences that wait for it."""
        self._flush_placements()
        self._flush_moves()
        if self._lengths_changed:
            self.bindings.write_lengths()
            self._lengths_changed = False

    def _flush_placements(self) -> None:
        latest = {each.slot: each for each in self._placements}  # a slot may have been freed and filled again
        self._placements.clear()
        batches: dict[int, list[_Placement]] = {}
        for each in latest.values():
            batches.setdefault(id(each.encoded), []).append(each)
        for batch in batches.values():
            slots, indices = [each.slot for each in batch], [each.index for each in batch]
            self._graphs.place(self.bindings.states, batch[0].encoded, slots, indices, self.beam_size)

    def _flush_moves(self) -> None:
        if not self._moves:
            return
        targets, sources = list(self._moves), list(self._moves.values())
        self._moves.clear()
        if self.bindings.memory_names:
            self._graphs.copy_memory(self.bindings.states, sources, targets)
        self.bindings.copy_rows(*(rows_of(slots, self.beam_size) for slots in (sources, targets)))
