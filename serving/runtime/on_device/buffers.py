"""The decoder states of a running batch on the device of the provider.

Only token ids, positions and source lengths go to the device in a step, and only candidates come back. A step computes
the next larger bucket of sentences, a power of two, so that there are few bindings (and few CUDA graphs); the rows
beyond the sentences are idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.on_device.arrays import Device, DeviceArray
from lingon.serving.runtime.on_device.state_graphs import StateGraphs, rows_of
from lingon.serving.runtime.runner import BatchShape, Encoded, Step
from lingon.serving.runtime.sessions import TYPES, raises_memory_error

MOST_STEPS = 8
"""Steps of greedy search between two looks of the host. In these, nobody joins, and sentences that end are computed on,
half of this on average.
"""


@dataclass(frozen=True, slots=True)
class _Bound:
    """The binding of one bucket, and the arrays that a step writes."""

    binding: Any
    ids: DeviceArray
    log_probs: DeviceArray
    logits: DeviceArray | None


@dataclass(frozen=True, slots=True)
class _GreedyBound:
    """The binding of one bucket for greedy search; history: (MOST_STEPS, rows, 2), see bundle.HISTORY."""

    binding: Any
    history: DeviceArray


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

    def __init__(
        self, manifest: Manifest, decoder: ort.InferenceSession, graphs: StateGraphs, shape: BatchShape, device: Device
    ) -> None:
        self._decoder, self._graphs, self._shape, self._device = decoder, graphs, shape, device
        self.beam_size = shape.beam_size
        values = {value.name: value for value in (*decoder.get_inputs(), *decoder.get_outputs())}
        self._types = {name: TYPES[value.type] for name, value in values.items()}
        self._logits_width = values[names.LOGITS].shape[1]
        self._candidates = 1 if shape.beam_size == 1 else min(2 * shape.beam_size, manifest.candidates)
        sizes = {"source_length": shape.width, "capacity": shape.capacity}
        self._states: dict[str, DeviceArray] = {}
        self._memory = [state.name for state in manifest.states_of("memory")]
        for state in manifest.states:
            is_memory = state.kind == "memory"
            count = shape.sentences if is_memory else shape.rows
            kind = self._types[state.name if is_memory else names.past_name(state.name)]
            self._states[state.name] = device.allocate((count, *state.sized(**sizes)), kind)
        self.token_ids, self.positions = np.zeros(shape.rows, np.int64), np.zeros(shape.rows, np.int64)
        self._memory_lengths = np.ones(shape.sentences, np.int64)
        host = Device(CPU)
        self._inputs = {
            names.TOKEN_IDS: device.array(self.token_ids),
            names.POSITIONS: device.array(self.positions),
            names.MEMORY_LENGTHS: device.array(self._memory_lengths),
        }
        # Inputs that kernels read on the host. A CUDA graph keeps their values.
        self._host_inputs = {
            names.CANDIDATE_COUNT: host.array(np.array([self._candidates])),
            names.TOTAL_LENGTH: host.array(np.array(shape.capacity, np.int32)),
        }
        self._step_index = device.array(np.zeros(1, np.int64))
        self._bound: dict[tuple[int, bool], _Bound] = {}
        self._greedy_bound: dict[int, _GreedyBound] = {}
        self._placements: list[_Placement] = []
        self._moves: dict[int, int] = {}  # by the slot that a sentence goes to: the slot that it leaves
        self._lengths_changed = False

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all slots."""
        return sum(state.nbytes for state in self._states.values())

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
        rows = sentences * self.beam_size
        bound = self._bound_step(self._bucket(sentences), logits)
        self._write_tokens(rows)
        self._decoder.run_with_iobinding(bound.binding)
        found = None if bound.logits is None else bound.logits.read()[:rows]
        return Step(bound.ids.read()[:rows], bound.log_probs.read()[:rows], found)

    @raises_memory_error
    def greedy_steps(self, sentences: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Run steps of greedy search for the first `sentences` slots.

        See lingon.serving.runtime.runner.GreedyBuffers.
        """
        assert self.beam_size == 1
        self._flush()
        bucket = self._bucket(sentences)
        if bucket not in self._greedy_bound:
            self._greedy_bound[bucket] = self._bind_greedy(bucket)
        bound = self._greedy_bound[bucket]
        self._write_tokens(sentences)
        self._step_index.write(np.zeros(1, np.int64))
        for _ in range(steps):
            self._graphs.greedy.run_with_iobinding(bound.binding)
        found = bound.history.read()[:steps, :sentences]
        return found[:, :, 0].astype(np.int64), found[:, :, 1]

    def _bucket(self, sentences: int) -> int:
        """Return the number of sentences that a step computes: the next power of two, or all."""
        return min(1 << (sentences - 1).bit_length(), self._shape.sentences)

    def _write_tokens(self, rows: int) -> None:
        """Bring the tokens and positions of the first rows to the device; idle rows read their first position."""
        for name, values in ((names.TOKEN_IDS, self.token_ids), (names.POSITIONS, self.positions)):
            active = values.copy()
            active[rows:] = 0
            self._inputs[name].write(active)

    @raises_memory_error
    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy the past of rows; no row may be both a source and a target."""
        self._flush()
        self._graphs.copy_rows(self._states, sources, targets)
        return len(sources) * self._row_bytes

    @raises_memory_error
    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence to another slot."""
        if target in self._moves.values() or source in self._moves:
            self._flush_moves()
        self._moves[target] = source
        self._set_length(target, self._memory_lengths[source])
        return self.beam_size * self._row_bytes

    def poison(self, slot: int) -> None:
        """Fill the states of a slot with values that no step may read. For tests."""
        self._flush()
        for name, state in self._states.items():
            values, count = state.read().copy(), 1 if name in self._memory else self.beam_size
            values[slot * count : (slot + 1) * count] = np.nan
            state.write(values)

    @property
    def _row_bytes(self) -> int:
        """Bytes of the past of one row."""
        past = sum(state.nbytes for name, state in self._states.items() if name not in self._memory)
        return past // self._shape.rows

    def _set_length(self, slot: int, length: int) -> None:
        self._memory_lengths[slot] = length
        self._lengths_changed = True

    def _flush(self) -> None:
        """Place and move the sentences that wait for it."""
        self._flush_placements()
        self._flush_moves()
        if self._lengths_changed:
            self._inputs[names.MEMORY_LENGTHS].write(self._memory_lengths)
            self._lengths_changed = False

    def _flush_placements(self) -> None:
        latest = {each.slot: each for each in self._placements}  # a slot may have been freed and filled again
        self._placements.clear()
        batches: dict[int, list[_Placement]] = {}
        for each in latest.values():
            batches.setdefault(id(each.encoded), []).append(each)
        for batch in batches.values():
            slots, indices = [each.slot for each in batch], [each.index for each in batch]
            self._graphs.place(self._states, batch[0].encoded, slots, indices, self.beam_size)

    def _flush_moves(self) -> None:
        if not self._moves:
            return
        targets, sources = list(self._moves), list(self._moves.values())
        self._moves.clear()
        if self._memory:
            self._graphs.copy_memory(self._states, sources, targets)
        rows = (rows_of(slots, self.beam_size) for slots in (sources, targets))
        self._graphs.copy_rows(self._states, *rows)

    def _bound_step(self, sentences: int, logits: bool) -> _Bound:
        """Return the binding of a bucket, which is made once."""
        key = sentences, logits
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        return self._bound[key]

    def _bind(self, sentences: int, logits: bool) -> _Bound:
        rows = sentences * self.beam_size
        binding = self._bind_states(self._decoder, sentences)
        self._host_inputs[names.CANDIDATE_COUNT].bind(binding.bind_input, names.CANDIDATE_COUNT)
        ids = self._output(binding, names.CANDIDATE_IDS, rows, self._candidates)
        log_probs = self._output(binding, names.CANDIDATE_LOG_PROBS, rows, self._candidates)
        found = self._output(binding, names.LOGITS, rows, self._logits_width) if logits else None
        return _Bound(binding, ids, log_probs, found)

    def _bind_greedy(self, sentences: int) -> _GreedyBound:
        """Bind the graph of greedy search, which replaces tokens, positions, history and step index in place."""
        binding = self._bind_states(self._graphs.greedy, sentences)
        history = self._device.array(np.zeros((MOST_STEPS, sentences, 2), np.float32))
        changed = {name: self._inputs[name] for name in (names.TOKEN_IDS, names.POSITIONS)}
        for name, array in changed.items():
            array.bind(binding.bind_output, names.changed_name(name), sentences)
        for name, array in ((names.HISTORY, history), (names.STEP_INDEX, self._step_index)):
            array.bind(binding.bind_input, name)
            array.bind(binding.bind_output, names.changed_name(name))
        return _GreedyBound(binding, history)

    def _bind_states(self, session: ort.InferenceSession, sentences: int) -> Any:
        """Return a binding with all inputs of a decoder step, but the number of candidates, and all changed states."""
        binding: Any = session.io_binding()
        rows = sentences * self.beam_size
        for name, state in self._states.items():
            if name in self._memory:
                state.bind(binding.bind_input, name, sentences)
            else:
                state.bind(binding.bind_input, names.past_name(name), rows)
                state.bind(binding.bind_output, names.present_name(name), rows)
        for name, array in self._inputs.items():
            array.bind(binding.bind_input, name, sentences if name == names.MEMORY_LENGTHS else rows)
        self._host_inputs[names.TOTAL_LENGTH].bind(binding.bind_input, names.TOTAL_LENGTH)
        return binding

    def _output(self, binding: Any, name: str, rows: int, columns: int) -> DeviceArray:
        array = self._device.allocate((rows, columns), self._types[name])
        array.bind(binding.bind_output, name)
        return array
