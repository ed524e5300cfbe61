"""The states of all slots on a device, and the bindings of the graphs that read and change them.

There is one binding for each graph and each number of sentences or copies. Its arrays never change, so that it can be
recorded as a CUDA graph.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.on_device.arrays import Device, DeviceArray, PackedArrays
from lingon.serving.runtime.on_device.cuda_graphs import RECORDING_RUNS, BoundRun, GraphRecorder
from lingon.serving.runtime.on_device.state_graphs import StateGraphs, bind_in_place
from lingon.serving.runtime.runner import BatchShape, GreedySteps, Step
from lingon.serving.runtime.sessions.create import TYPES

MOST_STEPS = 8
"""Steps of greedy search in one call. During these no sentence joins, and one that ends is computed for the rest of
them, for half of them on average.
"""


@dataclass(frozen=True, slots=True)
class _StepRun:
    """A step of one bucket, and the arrays that it writes."""

    run: BoundRun
    candidates: PackedArrays
    logits: DeviceArray | None


@dataclass(frozen=True, slots=True)
class _GreedyRun:
    """A step of greedy search of one bucket; history: (MOST_STEPS, rows, 2), see bundle.HISTORY."""

    run: BoundRun
    history: DeviceArray


@dataclass(frozen=True, slots=True)
class _CopyRun:
    """A run that copies some rows; places: the sources and the targets."""

    run: BoundRun
    places: PackedArrays


class StateBindings:
    """The states of the slots of a batch shape, and the runs that change them.

    states: all states by name
    thread: on which they were made, for which their runs are recorded
    token_ids, positions: what each row reads in the next step: (rows of all slots)
    memory_lengths: the source tokens of each slot: (slots); `write_lengths` brings them to the device
    """

    def __init__(
        self,
        manifest: Manifest,
        decoder: ort.InferenceSession,
        graphs: StateGraphs,
        shape: BatchShape,
        device: Device,
        recorder: GraphRecorder,
    ) -> None:
        self.shape, self._decoder, self._graphs = shape, decoder, graphs
        self._device, self._recorder, self.thread = device, recorder, threading.current_thread()
        # A recording computes a step more than once, which changes recurrent states but no others.
        self._repeatable = not manifest.states_of("recurrent")
        values = {value.name: value for value in (*decoder.get_inputs(), *decoder.get_outputs())}
        self._types = {name: TYPES[value.type] for name, value in values.items()}
        self._logits_width = values[names.LOGITS].shape[1]
        self._candidates = 1 if shape.beam_size == 1 else min(2 * shape.beam_size, manifest.candidates)
        self.memory_names = [state.name for state in manifest.states_of("memory")]
        self.states = {state.name: self._allocate(state) for state in manifest.states}
        rows, number = (shape.rows,), np.int64
        self._tokens = PackedArrays(
            device,
            {names.TOKEN_IDS: (rows, number), names.POSITIONS: (rows, number), names.STEP_INDEX: ((1,), number)},
        )
        self.token_ids, self.positions = np.zeros(rows, number), np.zeros(rows, number)
        self.memory_lengths = np.ones(shape.sentences, np.int64)
        self._lengths = device.array(self.memory_lengths)
        host = Device(CPU)
        # Inputs that kernels read on the host. A CUDA graph keeps their values.
        self._candidate_count = host.array(np.array([self._candidates]))
        self._total_length = host.array(np.array(shape.capacity, np.int32))
        self._steps: dict[tuple[int, bool], _StepRun] = {}
        self._greedy: dict[int, _GreedyRun] = {}
        self._copies: dict[int, _CopyRun] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all slots."""
        return sum(state.nbytes for state in self.states.values())

    def write_lengths(self) -> None:
        """Bring memory_lengths to the device."""
        self._lengths.write(self.memory_lengths)

    def step(self, bucket: int, sentences: int, *, logits: bool) -> Step:
        """Run a decoder step of `bucket` sentences; only the first `sentences` are not idle."""
        key = bucket, logits
        if key not in self._steps:
            self._steps[key] = self._bind_step(*key)
        found, rows = self._steps[key], sentences * self.shape.beam_size
        self._write_tokens(rows)
        self._run(found.run)
        candidates = found.candidates.read()
        values = None if found.logits is None else found.logits.read()[:rows]
        return Step(candidates[names.CANDIDATE_IDS][:rows], candidates[names.CANDIDATE_LOG_PROBS][:rows], values)

    def greedy_steps(self, bucket: int, sentences: int, steps: int) -> GreedySteps:
        """Run steps of greedy search of `bucket` sentences; only the first `sentences` are not idle."""
        if bucket not in self._greedy:
            self._greedy[bucket] = self._bind_greedy(bucket)
        found = self._greedy[bucket]
        self._write_tokens(sentences)
        if self._repeatable and self._recorder.may_record(found.run) and steps >= RECORDING_RUNS:
            # The recording goes on for as many steps. The steps below begin again and compute the same positions.
            self._recorder.record(found.run)
            self._write_tokens(sentences)
        for step in range(steps):
            self._recorder.run(found.run, wait=step == steps - 1)
        history = found.history.read()[:steps, :sentences]
        return GreedySteps(history[:, :, 0].astype(np.int64).tolist(), history[:, :, 1].tolist())

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy the past of rows; no row may be both a source and a target."""
        count = bucket_of(len(sources), self.shape.rows)
        if count not in self._copies:
            self._copies[count] = self._bind_copies(count)
        found = self._copies[count]
        for name, rows in ((names.SOURCES, sources), (names.TARGETS, targets)):
            found.places.host[name][: len(rows)] = rows
            found.places.host[name][len(rows) :] = rows[-1]  # repeats the last copy
        found.places.write()
        self._run(found.run)

    def _run(self, bound: BoundRun) -> None:
        """Run a graph that writes the same values to the same places if it runs again."""
        if self._repeatable and self._recorder.may_record(bound):
            self._recorder.record(bound)
        else:
            self._recorder.run(bound)

    def _allocate(self, state: names.State) -> DeviceArray:
        is_memory = state.kind == "memory"
        count = self.shape.sentences if is_memory else self.shape.rows
        dtype = self._types[state.name if is_memory else names.past_name(state.name)]
        sizes = {"source_length": self.shape.width, "capacity": self.shape.capacity}
        return self._device.allocate((count, *state.sized(**sizes)), dtype)

    def _write_tokens(self, rows: int) -> None:
        """Bring the tokens and positions of the first rows to the device; idle rows read their first position."""
        for name, values in ((names.TOKEN_IDS, self.token_ids), (names.POSITIONS, self.positions)):
            self._tokens.host[name][:rows] = values[:rows]
            self._tokens.host[name][rows:] = 0
        self._tokens.write()

    def _bind_step(self, sentences: int, logits: bool) -> _StepRun:
        rows = sentences * self.shape.beam_size
        binding = self._bind_states(self._decoder, sentences)
        self._candidate_count.bind(binding.bind_input, names.CANDIDATE_COUNT)
        written = (names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS)
        packed = PackedArrays(self._device, {name: ((rows, self._candidates), self._types[name]) for name in written})
        for name in written:
            packed.parts[name].bind(binding.bind_output, name)
        found = None
        if logits:
            found = self._device.allocate((rows, self._logits_width), self._types[names.LOGITS])
            found.bind(binding.bind_output, names.LOGITS)
        return _StepRun(BoundRun(self._decoder, binding), packed, found)

    def _bind_greedy(self, sentences: int) -> _GreedyRun:
        """Bind the graph of greedy search, which replaces tokens, positions, history and step index in place."""
        binding = self._bind_states(self._graphs.greedy, sentences)
        history = self._device.array(np.zeros((MOST_STEPS, sentences, 2), np.float32))
        for name in (names.TOKEN_IDS, names.POSITIONS):
            self._tokens.parts[name].bind(binding.bind_output, names.changed_name(name), sentences)
        for name, array in ((names.HISTORY, history), (names.STEP_INDEX, self._tokens.parts[names.STEP_INDEX])):
            array.bind(binding.bind_input, name)
            array.bind(binding.bind_output, names.changed_name(name))
        return _GreedyRun(BoundRun(self._graphs.greedy, binding), history)

    def _bind_copies(self, count: int) -> _CopyRun:
        session = self._graphs.copy_rows_session
        places = PackedArrays(self._device, dict.fromkeys((names.SOURCES, names.TARGETS), ((count,), np.int64)))
        rows = {name: state for name, state in self.states.items() if name not in self.memory_names}
        return _CopyRun(BoundRun(session, bind_in_place(session, rows, places.parts)), places)

    def _bind_states(self, session: ort.InferenceSession, sentences: int) -> Any:
        """Return a binding with all inputs of a decoder step, but the number of candidates, and all changed states."""
        binding: Any = session.io_binding()
        rows = sentences * self.shape.beam_size
        for name, state in self.states.items():
            if name in self.memory_names:
                state.bind(binding.bind_input, name, sentences)
            else:
                state.bind(binding.bind_input, names.past_name(name), rows)
                state.bind(binding.bind_output, names.present_name(name), rows)
        for name in (names.TOKEN_IDS, names.POSITIONS):
            self._tokens.parts[name].bind(binding.bind_input, name, rows)
        self._lengths.bind(binding.bind_input, names.MEMORY_LENGTHS, sentences)
        self._total_length.bind(binding.bind_input, names.TOTAL_LENGTH)
        return binding


def bucket_of(count: int, most: int) -> int:
    """Return the number of entries that a run computes for `count` of them: the next power of two, or the most."""
    return min(1 << (count - 1).bit_length(), most)
