"""The decoder states of a running batch on the device of the provider, and CUDA graphs of its steps.

Only token ids, positions and source lengths are copied to the device in a step, and only candidates are copied back. A
step computes the next larger bucket of sentences, a power of two, so that there are few bindings and few CUDA graphs.
The rows beyond the sentences are idle.

There is one binding for each graph and each number of sentences or copies. Its arrays never change, so that it can be
recorded as a CUDA graph. The kernels of a run are recorded once and then started together, which takes the host far
less time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon.bundle import names
from lingon.bundle.manifest import Manifest, State
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.runner import BatchShape, Encoded, GreedySteps, Step
from lingon.serving.runtime.sessions import TYPES, raises_memory_error

NAMES = {CPU: "cpu", CUDA: "cuda"}
"""The name of the memory of each provider."""

ALIGNMENT = 64  # bytes; kernels read several values at the same time


class Device:
    """The memory of a model's graphs.

    copied_bytes: bytes copied between this memory and NumPy arrays, in both directions
    """

    def __init__(self, provider: str) -> None:
        self.name, self.copied_bytes = NAMES[provider], 0

    def allocate(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Return an array with undefined values."""
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, self.name, 0)
        return DeviceArray(self, tuple(shape), np.dtype(dtype), value)

    def array(self, values: np.ndarray) -> DeviceArray:
        """Return an array with these values."""
        made = self.allocate(values.shape, values.dtype)
        made.write(values)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array on a device, or a part of one.

    value: ONNX Runtime's handle of the whole array
    offset: begin of a part in bytes
    """

    device: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: ort.OrtValue
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def address(self) -> int:
        """The address of the first value on the device."""
        return int(self.value.data_ptr()) + self.offset

    def in_blocks(self, dtype: Any, block: int) -> DeviceArray:
        """Return the same memory as an array (entries, blocks, block) of another type.

        Raises ValueError if an entry is not a multiple of the block.
        """
        entry, size = self.nbytes // self.shape[0], block * np.dtype(dtype).itemsize
        if size <= 0 or entry % size:
            raise ValueError(f"blocks must divide the {entry} bytes of an entry, got {size}")
        count = entry // size
        return replace(self, shape=(self.shape[0], count, block), dtype=np.dtype(dtype))

    def write(self, values: np.ndarray) -> None:
        """Replace all values of a whole array; values: array of the same shape and type."""
        self.value.update_inplace(np.ascontiguousarray(values))
        self.device.copied_bytes += self.nbytes

    def read(self) -> np.ndarray:
        """Return all values of a whole array."""
        self.device.copied_bytes += self.nbytes
        values: np.ndarray = self.value.numpy()
        return values

    def bind(self, bind: Callable[..., None], name: str, count: int | None = None) -> None:
        """Bind the first `count` entries, or all, to an input or output of a graph.

        bind: the method bind_input or bind_output of a binding
        """
        shape = self.shape if count is None else (count, *self.shape[1:])
        bind(name, self.device.name, 0, self.dtype.type, shape, self.address)


class PackedArrays:
    """Adjacent arrays on a device, so that one copy moves all of them.

    parts: the arrays on the device, by name
    host: arrays in main memory that `write` copies to the device, by name
    """

    def __init__(self, device: Device, arrays: Mapping[str, tuple[Sequence[int], Any]]) -> None:
        """arrays: shape and type of each array, by name."""
        self._places, end = dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]](), 0
        for name, (shape, dtype) in arrays.items():
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            self._places[name] = begin, tuple(shape), np.dtype(dtype)
            end = begin + math.prod(shape) * np.dtype(dtype).itemsize
        self._whole, self._host = device.allocate((end,), np.uint8), np.zeros(end, np.uint8)
        self.parts = {
            name: DeviceArray(device, shape, dtype, self._whole.value, begin)
            for name, (begin, shape, dtype) in self._places.items()
        }
        self.host = self._views(self._host)

    def write(self) -> None:
        """Copy the arrays of `host` to the device."""
        self._whole.write(self._host)

    def read(self) -> dict[str, np.ndarray]:
        """Return the arrays on the device, by name."""
        return self._views(self._whole.read())

    def _views(self, content: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for name, (begin, shape, dtype) in self._places.items():
            end = begin + math.prod(shape) * dtype.itemsize
            found[name] = content[begin:end].view(dtype).reshape(shape)
        return found


GRAPH_ID = "gpu_graph_id"
EAGER = "-1"  # graph id of a run that is neither recorded nor replayed
NO_WAIT = "disable_synchronize_execution_providers"
MOST_GRAPHS = 512  # graphs; ONNX Runtime keeps each until its session ends; further bindings run eagerly
RECORDING_RUNS = 2  # runs of a graph by ONNX Runtime during its recording


@dataclass(eq=False, slots=True)
class BoundRun:
    """A session with a binding whose arrays never change.

    graph_id, thread: id and thread of its CUDA graph; None before its recording
    """

    session: ort.InferenceSession
    binding: Any
    graph_id: int | None = None
    thread: threading.Thread | None = None


@dataclass(slots=True)
class GraphRecorder:
    """A runner of bindings as CUDA graphs if that is enabled, else one kernel after the other.

    A recorded graph reads and writes the addresses of its recording, and ONNX Runtime does not check that a later run
    has the same ones. Each graph therefore belongs to one binding, whose arrays never change. It also belongs to one
    thread, because ONNX Runtime separates the graphs of threads. A run on another thread, such as the warm-up of a
    server, starts its kernels one by one.

    recorded: the number of graphs so far
    """

    enabled: bool = False
    recorded: int = 0
    _options: dict[tuple[int | None, bool], ort.RunOptions] = field(default_factory=dict)

    def run(self, bound: BoundRun, *, wait: bool = True) -> None:
        """Run a binding: replay its graph on the thread of its recording, else start its kernels.

        wait: whether a replay has ended on return; if not, only another replay of the same session may follow
        """
        if not self.enabled:
            bound.session.run_with_iobinding(bound.binding)
        elif bound.thread is threading.current_thread():
            bound.session.run_with_iobinding(bound.binding, self._options_of(bound.graph_id, wait=wait))
        else:
            bound.session.run_with_iobinding(bound.binding, self._options_of(None))

    def may_record(self, bound: BoundRun) -> bool:
        """Return whether `record` would record a graph for the binding."""
        return self.enabled and bound.graph_id is None and self.recorded < MOST_GRAPHS

    def record(self, bound: BoundRun) -> None:
        """Record the graph of a binding on this thread, which computes it RECORDING_RUNS times."""
        self.recorded += 1
        bound.graph_id, bound.thread = self.recorded, threading.current_thread()
        self.run(bound)

    def _options_of(self, graph_id: int | None, *, wait: bool = True) -> ort.RunOptions:
        key = graph_id, wait
        if key not in self._options:
            options = ort.RunOptions()
            options.add_run_config_entry(GRAPH_ID, EAGER if graph_id is None else str(graph_id))
            options.add_run_config_entry(NO_WAIT, str(int(not wait)))
            self._options[key] = options
        return self._options[key]


SlotNumbers = Sequence[int] | np.ndarray
"""Indices of slots or of rows."""


@dataclass(frozen=True, slots=True)
class StateGraphs:
    """The sessions of the additional graphs for states on a device: PLACE, COPY_MEMORY, COPY_ROWS and GREEDY.

    All change their states in place.
    """

    manifest: Manifest
    place_session: ort.InferenceSession
    copy_memory_session: ort.InferenceSession
    copy_rows_session: ort.InferenceSession
    greedy: ort.InferenceSession

    def encode(
        self, encoder: ort.InferenceSession, source_ids: np.ndarray, source_lengths: np.ndarray, device: Device
    ) -> Encoded:
        """Run the encoder and return its outputs, on the device; see lingon.serving.runtime.runner.Runner."""
        inputs = {names.SOURCE_IDS: source_ids, names.SOURCE_LENGTHS: source_lengths}
        outputs = [state.name for state in self.manifest.states if state.kind != "cache"]
        found = run_on_device(encoder, device, inputs, outputs)
        return {**found, names.MEMORY_LENGTHS: source_lengths}

    def allocate(
        self, decoder: ort.InferenceSession, shape: BatchShape, device: Device, recorder: GraphRecorder
    ) -> StateBindings:
        """Return states of a batch shape."""
        return StateBindings(self.manifest, decoder, self, shape, device, recorder)

    def open(self, bindings: StateBindings) -> DeviceBuffers:
        """Return buffers of a batch with these states."""
        return DeviceBuffers(bindings, self)

    def place(
        self,
        states: Mapping[str, DeviceArray],
        encoded: Mapping[str, ort.OrtValue],
        slots: Sequence[int],
        indices: Sequence[int],
        beam_size: int,
    ) -> None:
        """Write the outputs `indices` of an encoder run into slots, with zeros beyond their source length.

        states: all states by name; encoded: the outputs of the encoder by name, on the device of the states
        """
        placed = [state.name for state in self.manifest.states if state.kind != "cache"]
        numbers = {names.SLOTS: np.array(slots), names.INDICES: np.array(indices)}
        if self.manifest.states_of("recurrent"):
            numbers |= {names.TARGETS: rows_of(slots, beam_size), names.SOURCES: np.repeat(indices, beam_size)}
        values = {names.encoded_name(name): encoded[name] for name in placed}
        _run_in_place(self.place_session, {name: states[name] for name in placed}, numbers, values)

    def copy_memory(self, states: Mapping[str, DeviceArray], sources: SlotNumbers, targets: SlotNumbers) -> None:
        """Copy the memory of slots to other slots. No slot may be both a source and a target."""
        memory = {state.name: states[state.name] for state in self.manifest.states_of("memory")}
        _run_in_place(self.copy_memory_session, memory, {names.SOURCES: sources, names.TARGETS: targets})


def run_on_device(
    session: ort.InferenceSession, device: Device, inputs: Mapping[str, np.ndarray], outputs: Iterable[str]
) -> dict[str, ort.OrtValue]:
    """Run a graph and return its outputs by name, on the device."""
    binding, wanted = session.io_binding(), list(outputs)
    for name, values in inputs.items():
        binding.bind_cpu_input(name, values)
    for name in wanted:
        binding.bind_output(name, device.name)
    session.run_with_iobinding(binding)
    device.copied_bytes += sum(values.nbytes for values in inputs.values())
    return dict(zip(wanted, binding.get_outputs(), strict=True))


def rows_of(slots: Sequence[int], beam_size: int) -> np.ndarray:
    """Return the rows of some slots: (slots * beam_size)."""
    rows: np.ndarray = (np.array(slots)[:, None] * beam_size + np.arange(beam_size)).ravel()
    return rows


def _run_in_place(
    session: ort.InferenceSession,
    states: Mapping[str, DeviceArray],
    numbers: Mapping[str, SlotNumbers],
    values: Mapping[str, ort.OrtValue] | None = None,
) -> None:
    """Run a graph that replaces each state in place.

    numbers: further inputs of int64, which are copied to the device; values: further inputs on the device
    """
    device = next(iter(states.values())).device
    kept = {name: device.array(np.array(each, np.int64)) for name, each in numbers.items()}
    binding = bind_in_place(session, states, kept)
    for name, value in (values or {}).items():
        binding.bind_ortvalue_input(name, value)
    session.run_with_iobinding(binding)


def bind_in_place(
    session: ort.InferenceSession, states: Mapping[str, DeviceArray], inputs: Mapping[str, DeviceArray]
) -> Any:
    """Return a binding of a graph that replaces each state in place; inputs: further inputs."""
    binding: Any = session.io_binding()
    declared = {value.name: value for value in session.get_inputs()}
    for name, state in states.items():
        bound = state.in_blocks(TYPES[declared[name].type], declared[name].shape[2])
        bound.bind(binding.bind_input, name)
        bound.bind(binding.bind_output, names.changed_name(name))
    for name, each in inputs.items():
        each.bind(binding.bind_input, name)
    return binding


MOST_STEPS = 8
"""Steps of greedy search in one call. During these no sentence joins, and an ended one is computed until the end of the
call, for half of the steps on average.
"""


@dataclass(frozen=True, slots=True)
class _StepRun:
    """A step of one bucket, and its output arrays."""

    run: BoundRun
    candidates: PackedArrays
    logits: DeviceArray | None


@dataclass(frozen=True, slots=True)
class GreedyRun:
    """Steps of greedy search of one bucket; history: (MOST_STEPS, rows, 2), see bundle.HISTORY."""

    run: BoundRun
    history: DeviceArray

    def choices(self, sentences: int, steps: int) -> GreedySteps:
        """Return the choices of the first steps for the first sentences."""
        history = self.history.read()[:steps, :sentences]
        return GreedySteps(history[:, :, 0].astype(np.int64).tolist(), history[:, :, 1].tolist())


@dataclass(frozen=True, slots=True)
class _CopyRun:
    """A run that copies some rows; row_numbers: the sources and the targets."""

    run: BoundRun
    row_numbers: PackedArrays


class StateBindings:
    """The states of the slots of a batch shape, and the runs that change them.

    states: all states by name
    candidates: of a row in each step
    thread: the thread that made them and records their runs
    token_ids, positions: the input of each row in the next step: (rows of all slots)
    memory_lengths: the source tokens of each slot: (slots); `write_lengths` copies them to the device
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
        self.candidates = 1 if shape.beam_size == 1 else min(2 * shape.beam_size, manifest.candidates)
        self.memory_names = [state.name for state in manifest.states_of("memory")]
        self.states = {state.name: self._allocate(state) for state in manifest.states}
        rows, number = (shape.rows,), np.int64
        self._tokens = PackedArrays(device, self._written_before_steps())
        self.token_ids, self.positions = np.zeros(rows, number), np.zeros(rows, number)
        self.memory_lengths = np.ones(shape.sentences, np.int64)
        self._lengths = device.array(self.memory_lengths)
        host = Device(CPU)
        # Kernels read these inputs on the host, and a CUDA graph keeps their values.
        self._candidate_count = host.array(np.array([self.candidates]))
        self._total_length = host.array(np.array(shape.capacity, np.int32))
        self._steps: dict[tuple[int, bool], _StepRun] = {}
        self._greedy: dict[int, GreedyRun] = {}
        self._copies: dict[int, _CopyRun] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all slots."""
        return sum(state.nbytes for state in self.states.values())

    def write_lengths(self) -> None:
        """Copy memory_lengths to the device."""
        self._lengths.write(self.memory_lengths)

    def _written_before_steps(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return shape and type of each array that is copied to the device before a step, by name."""
        rows, number = (self.shape.rows,), np.int64
        return {names.TOKEN_IDS: (rows, number), names.POSITIONS: (rows, number), names.STEP_INDEX: ((1,), number)}

    def step(self, bucket: int, sentences: int, *, logits: bool) -> Step:
        """Run a decoder step of `bucket` sentences. Rows beyond the first `sentences` are idle."""
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
        """Run steps of greedy search of `bucket` sentences. Rows beyond the first `sentences` are idle."""
        if bucket not in self._greedy:
            self._greedy[bucket] = self._bind_greedy(bucket)
        found = self._greedy[bucket]
        self._write_tokens(sentences)
        if self._repeatable and self._recorder.may_record(found.run) and steps >= RECORDING_RUNS:
            # The recording advances for as many steps. The steps below begin again and compute the same positions.
            self._recorder.record(found.run)
            self._write_tokens(sentences)
        for step in range(steps):
            self._recorder.run(found.run, wait=step == steps - 1)
        return found.choices(sentences, steps)

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy the past of rows. No row may be both a source and a target."""
        count = bucket_of(len(sources), self.shape.rows)
        if count not in self._copies:
            self._copies[count] = self._bind_copies(count)
        found = self._copies[count]
        for name, rows in ((names.SOURCES, sources), (names.TARGETS, targets)):
            found.row_numbers.host[name][: len(rows)] = rows
            found.row_numbers.host[name][len(rows) :] = rows[-1]  # repeats the last copy
        found.row_numbers.write()
        self._run(found.run)

    def _run(self, bound: BoundRun) -> None:
        """Run a graph that writes the same values to the same addresses if it runs again."""
        if self._repeatable and self._recorder.may_record(bound):
            self._recorder.record(bound)
        else:
            self._recorder.run(bound)

    def _allocate(self, state: State) -> DeviceArray:
        is_memory = state.kind == "memory"
        count = self.shape.sentences if is_memory else self.shape.rows
        dtype = self._types[state.name if is_memory else names.past_name(state.name)]
        sizes = {"source_length": self.shape.width, "capacity": self.shape.capacity}
        return self._device.allocate((count, *state.sized(**sizes)), dtype)

    def _write_tokens(self, rows: int) -> None:
        """Copy the tokens and positions of the first rows to the device. Idle rows read their first position."""
        for name, values in ((names.TOKEN_IDS, self.token_ids), (names.POSITIONS, self.positions)):
            self._tokens.host[name][:rows] = values[:rows]
            self._tokens.host[name][rows:] = 0
        self._tokens.write()

    def _bind_step(self, sentences: int, logits: bool) -> _StepRun:
        rows = sentences * self.shape.beam_size
        binding = self._bind_states(self._decoder, sentences)
        self._candidate_count.bind(binding.bind_input, names.CANDIDATE_COUNT)
        written = (names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS)
        packed = PackedArrays(self._device, {name: ((rows, self.candidates), self._types[name]) for name in written})
        for name in written:
            packed.parts[name].bind(binding.bind_output, name)
        found = None
        if logits:
            found = self._device.allocate((rows, self._logits_width), self._types[names.LOGITS])
            found.bind(binding.bind_output, names.LOGITS)
        return _StepRun(BoundRun(self._decoder, binding), packed, found)

    def _bind_greedy(self, sentences: int) -> GreedyRun:
        """Bind the graph of greedy search, which replaces tokens, positions, history and step index in place."""
        binding = self._bind_states(self._graphs.greedy, sentences)
        history = self._history(sentences)
        for name in (names.TOKEN_IDS, names.POSITIONS):
            self._tokens.parts[name].bind(binding.bind_output, names.changed_name(name), sentences)
        for name, array in ((names.HISTORY, history), (names.STEP_INDEX, self._tokens.parts[names.STEP_INDEX])):
            array.bind(binding.bind_input, name)
            array.bind(binding.bind_output, names.changed_name(name))
        return GreedyRun(BoundRun(self._graphs.greedy, binding), history)

    def _history(self, sentences: int) -> DeviceArray:
        return self._device.array(np.zeros((MOST_STEPS, sentences, 2), np.float32))

    def _bind_copies(self, count: int) -> _CopyRun:
        session = self._graphs.copy_rows_session
        row_numbers = PackedArrays(self._device, dict.fromkeys((names.SOURCES, names.TARGETS), ((count,), np.int64)))
        rows = {name: state for name, state in self.states.items() if name not in self.memory_names}
        return _CopyRun(BoundRun(session, bind_in_place(session, rows, row_numbers.parts)), row_numbers)

    def _bind_states(self, session: ort.InferenceSession, sentences: int) -> Any:
        """Return a binding with all changed states and all inputs of a decoder step except the number of candidates."""
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
    """Return the number of entries that a run computes for `count` entries: the next power of two, or the most."""
    return min(1 << (count - 1).bit_length(), most)


@dataclass(frozen=True, slots=True)
class _Placement:
    """A sentence to write into a slot."""

    slot: int
    encoded: Encoded
    index: int


class DeviceBuffers:
    """See lingon.serving.runtime.runner.Buffers.

    Sentences are placed and moved when the next step begins, all placements in one run and all moves in another.
    """

    most_steps = MOST_STEPS

    def __init__(self, bindings: StateBindings, graphs: StateGraphs) -> None:
        self.bindings, self._graphs, self._shape = bindings, graphs, bindings.shape
        self.beam_size = bindings.shape.beam_size
        self.token_ids, self.positions = bindings.token_ids, bindings.positions
        self._placements: list[_Placement] = []
        self._moves: dict[int, int] = {}  # source slots by target slot
        self._lengths_changed = False

    @property
    def nbytes(self) -> int:
        return self.bindings.nbytes

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put sentence `index` of an encoder batch into a slot. Shortlists are not available on a device."""
        assert piece_ids is None
        if self._moves:
            self._write_pending()
        self._placements.append(_Placement(slot, encoded, index))
        self._set_length(slot, encoded[names.MEMORY_LENGTHS][index])

    @raises_memory_error
    def step(self, sentences: int, *, logits: bool) -> Step:
        self._write_pending()
        return self.bindings.step(bucket_of(sentences, self._shape.sentences), sentences, logits=logits)

    weighs = False

    @raises_memory_error
    def greedy_steps(
        self, sentences: int, steps: int, forced: np.ndarray | None = None, *, weighs: bool = False
    ) -> GreedySteps:
        """Run steps of greedy search: see GreedyBuffers. Runs one step if tokens are forced, because the device
        continues with the tokens that it chose.
        """
        assert self.beam_size == 1
        assert not weighs
        self._write_pending()
        steps = steps if forced is None else 1
        found = self.bindings.greedy_steps(bucket_of(sentences, self._shape.sentences), sentences, steps)
        if forced is not None:
            found = found.with_forced(forced)
        self.token_ids[:sentences] = found.tokens[-1]
        self.positions[:sentences] += steps
        return found

    @raises_memory_error
    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        self._write_pending()
        self.bindings.copy_rows(sources, targets)
        return len(sources) * self._row_bytes

    @raises_memory_error
    def move(self, source: int, target: int, length: int) -> int:
        if target in self._moves.values() or source in self._moves:
            self._write_moves()
        self._moves[target] = source
        self._set_length(target, self.bindings.memory_lengths[source])
        return self.beam_size * self._row_bytes

    def invalidate(self, slot: int) -> None:
        """Fill the states of a slot with values that no step may read. For tests."""
        self._write_pending()
        for name, state in self.bindings.states.items():
            values, count = state.read().copy(), 1 if name in self.bindings.memory_names else self.beam_size
            values[slot * count : (slot + 1) * count] = np.nan
            state.write(values)

    @property
    def _row_bytes(self) -> int:
        states, memory = self.bindings.states, self.bindings.memory_names
        past = sum(state.nbytes for name, state in states.items() if name not in memory)
        return past // self._shape.rows

    def _set_length(self, slot: int, length: int) -> None:
        self.bindings.memory_lengths[slot] = length
        self._lengths_changed = True

    def _write_pending(self) -> None:
        """Write the pending placements and moves of sentences."""
        self._write_placements()
        self._write_moves()
        if self._lengths_changed:
            self.bindings.write_lengths()
            self._lengths_changed = False

    def _write_placements(self) -> None:
        latest = {each.slot: each for each in self._placements}  # a slot may have been freed and filled again
        self._placements.clear()
        batches: dict[int, list[_Placement]] = {}
        for each in latest.values():
            batches.setdefault(id(each.encoded), []).append(each)
        for batch in batches.values():
            slots, indices = [each.slot for each in batch], [each.index for each in batch]
            self._graphs.place(self.bindings.states, batch[0].encoded, slots, indices, self.beam_size)

    def _write_moves(self) -> None:
        if not self._moves:
            return
        targets, sources = list(self._moves), list(self._moves.values())
        self._moves.clear()
        if self.bindings.memory_names:
            self._graphs.copy_memory(self.bindings.states, sources, targets)
        self.bindings.copy_rows(*(rows_of(slots, self.beam_size) for slots in (sources, targets)))
