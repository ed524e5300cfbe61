"""The decoder states of a running batch for the graphs in our own operators for CUDA.

The operators write states in the memory of their inputs, and one run computes several steps of greedy or of beam
search. The host keeps all that is small: tokens, positions, and the beams with their table. It copies them to the
device before a run, and repeats the search over the candidates of the run. A change of rank copies nothing of a past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon.bundle import names
from lingon.serving.runtime.device_buffers import (
    BoundRun,
    Device,
    DeviceArray,
    DeviceBuffers,
    GraphRecorder,
    GreedyRun,
    PackedArrays,
    StateBindings,
    StateGraphs,
    bucket_of,
    run_on_device,
)
from lingon.serving.runtime.host_buffers import CANDIDATES, PER_ROW, OnnxBeamSearch, copy_table_rows
from lingon.serving.runtime.runner import BatchShape, BeamStates, Encoded, EndedBeams, GreedySteps, Step
from lingon.serving.runtime.sessions import raises_memory_error

TILE = 16  # queries that a program of the encoder's attention computes
ADVANCED = names.TOKEN_IDS, names.POSITIONS, names.STEP_INDEX
"""What a run of several steps returns, for a run that would follow it."""

PACKED_SOURCE = names.SOURCE_IDS, names.SOURCE_POSITIONS, names.SOURCE_TILES
LOGGED = names.LOGGED_IDS, names.LOGGED_LOG_PROBS


def pack(source_ids: np.ndarray, source_lengths: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of an encoder run: the tokens without padding, their positions, and tiles of queries.

    source_ids: (batch, source_length); source_lengths: (batch)
    """
    places = np.arange(source_ids.shape[1])
    real = places < source_lengths[:, None]
    begins, counts = _begins(source_lengths), -(-source_lengths // TILE)
    sentence = np.repeat(np.arange(len(counts)), counts)
    done = TILE * (np.arange(len(sentence)) - np.repeat(_begins(counts), counts))  # queries of the tiles before
    lengths, first = source_lengths[sentence], begins[sentence]
    tiles = np.stack([first + done, np.minimum(lengths - done, TILE), first, lengths], axis=1)
    return {
        names.SOURCE_IDS: source_ids[real].astype(np.int64),
        names.SOURCE_POSITIONS: np.broadcast_to(places, real.shape)[real].astype(np.int64),
        names.SOURCE_TILES: tiles.astype(np.int32),
    }


def memory_targets(source_lengths: np.ndarray, slots: Sequence[int], indices: Sequence[int]) -> np.ndarray:
    """Return where to write the memory of sentences `indices` of an encoder run: int32 (tokens, 4).

    source_lengths: of all sentences of the run. Each row is a row of the memory, a slot, a position in the slot, and 0
    """
    lengths, begins = source_lengths[indices], _begins(source_lengths)[indices]
    positions = np.arange(lengths.sum()) - np.repeat(_begins(lengths), lengths)
    columns = np.repeat(begins, lengths) + positions, np.repeat(slots, lengths), positions, np.zeros_like(positions)
    return np.stack(columns, axis=1).astype(np.int32)


def _begins(lengths: np.ndarray) -> np.ndarray:
    """Return where each of adjacent parts begins."""
    found: np.ndarray = np.cumsum(lengths) - lengths
    return found


@dataclass(frozen=True, slots=True)
class CardGraphs(StateGraphs):
    """See StateGraphs; with the graphs of several steps, and the graph of beam search in main memory."""

    several_greedy: ort.InferenceSession
    several_beams: ort.InferenceSession
    beam: ort.InferenceSession

    def encode(
        self, encoder: ort.InferenceSession, source_ids: np.ndarray, source_lengths: np.ndarray, device: Device
    ) -> Encoded:
        """See StateGraphs. The memory of all sentences is one array without padding."""
        found = run_on_device(encoder, device, pack(source_ids, source_lengths), [names.MEMORY])
        return {**found, names.MEMORY_LENGTHS: source_lengths}

    def allocate(
        self, decoder: ort.InferenceSession, shape: BatchShape, device: Device, recorder: GraphRecorder
    ) -> StateBindings:
        """See StateGraphs."""
        return CardBindings(self.manifest, decoder, self, shape, device, recorder)

    def open(self, bindings: StateBindings) -> DeviceBuffers:
        """See StateGraphs."""
        assert isinstance(bindings, CardBindings)
        return CardBuffers(bindings, self)

    def place(
        self,
        states: Mapping[str, DeviceArray],
        encoded: Mapping[str, Any],
        slots: Sequence[int],
        indices: Sequence[int],
        beam_size: int,
    ) -> None:
        """Write the memory of sentences `indices` of an encoder run into slots, and nothing beyond their lengths."""
        device, session = next(iter(states.values())).device, self.place_session
        targets = device.array(memory_targets(encoded[names.MEMORY_LENGTHS], slots, indices))
        binding = session.io_binding()
        binding.bind_ortvalue_input(names.MEMORY, encoded[names.MEMORY])
        targets.bind(binding.bind_input, names.MEMORY_TARGETS)
        for state in self.manifest.states_of("memory"):
            states[state.name].bind(binding.bind_input, state.name)
        for output in session.get_outputs():
            binding.bind_output(output.name, device.name)
        session.run_with_iobinding(binding)

    @property
    def greedy_count(self) -> int:
        """The steps of a run of the graph for several steps of greedy search."""
        return _steps_of(self.several_greedy, names.HISTORY)

    @property
    def beam_count(self) -> int:
        """The steps of a run of the graph for several steps of beam search."""
        return _steps_of(self.several_beams, names.LOGGED_IDS)


def _steps_of(session: ort.InferenceSession, name: str) -> int:
    """Return the first dimension of an input, which has an entry for each step. Raises ValueError if it is none."""
    count = next(each.shape[0] for each in session.get_inputs() if each.name == name)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{name} must be declared for a number of steps, got {count}")
    return count


@dataclass(frozen=True, slots=True)
class _BeamRun:
    """Several steps of beam search of one bucket, and the candidates of each: (steps, rows, candidates)."""

    run: BoundRun
    logged: PackedArrays


class CardBindings(StateBindings):
    """See StateBindings.

    rows, totals: of the hypotheses, (slots, beam_size) each; see lingon.serving.runtime.runner.BeamStates
    table: see lingon.bundle.names.BEAM_TABLE
    """

    _graphs: CardGraphs

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        shape = self.shape
        self.table = np.zeros((shape.rows, shape.capacity), np.int32)
        self.rows = np.tile(np.arange(shape.beam_size), (shape.sentences, 1))
        self.totals = np.zeros(self.rows.shape, np.float32)
        self._fixed_table = None if shape.beam_size > 1 else self._device.array(self.table)
        self._unread: list[DeviceArray] = []
        self._several_greedy: dict[int, GreedyRun] = {}
        self._several_beams: dict[int, _BeamRun] = {}

    def greedy_steps(self, bucket: int, sentences: int, steps: int) -> GreedySteps:
        """See StateBindings. The usual number of steps is one run, which may be repeated, because it changes no input
        that it reads.
        """
        if steps != self._graphs.greedy_count:
            return super().greedy_steps(bucket, sentences, steps)
        if bucket not in self._several_greedy:
            self._several_greedy[bucket] = self._bind_several_greedy(bucket)
        found = self._several_greedy[bucket]
        self._write_tokens(sentences)
        self._run(found.run)
        return found.choices(sentences, steps)

    def beam_steps(self, bucket: int, sentences: int) -> tuple[np.ndarray, np.ndarray]:
        """Run several steps of beam search of `bucket` sentences and return their candidates and log-probabilities.

        Both are (steps, rows, candidates). Rows beyond those of the first `sentences` are idle.
        """
        if bucket not in self._several_beams:
            self._several_beams[bucket] = self._bind_several_beams(bucket)
        found, rows = self._several_beams[bucket], sentences * self.shape.beam_size
        self._write_tokens(rows)
        if self._recorder.may_record(found.run):
            # The recording advances the beams. The run below begins again and computes the same positions.
            self._recorder.record(found.run)
            self._write_tokens(rows)
        self._recorder.run(found.run)
        logged = found.logged.read()
        ids, log_probs = (logged[name][:, :rows] for name in LOGGED)
        return ids, log_probs

    def _written_before_steps(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        shape = self.shape
        found = super()._written_before_steps()
        if shape.beam_size > 1:
            by_rank = shape.sentences, shape.beam_size
            found |= {names.BEAM_ROWS: (by_rank, np.int64), names.BEAM_TOTALS: (by_rank, np.float32)}
            found[names.BEAM_TABLE] = (shape.rows, shape.capacity), np.int32
        return found

    def _write_tokens(self, rows: int) -> None:
        """See StateBindings. The beams of idle sentences are in order, and their past is their own."""
        if self.shape.beam_size > 1:
            host, sentences = self._tokens.host, rows // self.shape.beam_size
            host[names.BEAM_ROWS][:] = np.arange(self.shape.beam_size)
            host[names.BEAM_TOTALS][:], host[names.BEAM_TABLE][:] = 0, 0
            host[names.BEAM_ROWS][:sentences] = self.rows[:sentences]
            host[names.BEAM_TOTALS][:sentences] = self.totals[:sentences]
            host[names.BEAM_TABLE][:rows] = self.table[:rows]
        super()._write_tokens(rows)

    def _bind_states(self, session: ort.InferenceSession, sentences: int) -> Any:
        """See StateBindings. States are inputs only."""
        binding: Any = session.io_binding()
        rows = sentences * self.shape.beam_size
        for name, state in self.states.items():
            if name in self.memory_names:
                state.bind(binding.bind_input, name, sentences)
            else:
                state.bind(binding.bind_input, names.past_name(name), rows)
        for name in (names.TOKEN_IDS, names.POSITIONS):
            self._tokens.parts[name].bind(binding.bind_input, name, rows)
        table = self._fixed_table or self._tokens.parts[names.BEAM_TABLE]
        table.bind(binding.bind_input, names.BEAM_TABLE, rows)
        self._lengths.bind(binding.bind_input, names.MEMORY_LENGTHS, sentences)
        return binding

    def _bind_greedy(self, sentences: int) -> GreedyRun:
        """Bind the graph of one step, which replaces tokens, positions and step index, so that it can be repeated."""
        binding, history = self._bind_states(self._graphs.greedy, sentences), self._history(sentences)
        history.bind(binding.bind_input, names.HISTORY)
        self._tokens.parts[names.STEP_INDEX].bind(binding.bind_input, names.STEP_INDEX)
        for name in ADVANCED:
            count = 1 if name == names.STEP_INDEX else sentences
            self._tokens.parts[name].bind(binding.bind_output, names.changed_name(name), count)
        return GreedyRun(BoundRun(self._graphs.greedy, binding), history)

    def _history(self, sentences: int) -> DeviceArray:
        return self._device.array(np.zeros((self._graphs.greedy_count, sentences, 2), np.float32))

    def _bind_several_greedy(self, sentences: int) -> GreedyRun:
        session = self._graphs.several_greedy
        binding = self._bind_several(session, sentences)
        history = self._history(sentences)
        history.bind(binding.bind_input, names.HISTORY)
        return GreedyRun(BoundRun(session, binding), history)

    def _bind_several_beams(self, sentences: int) -> _BeamRun:
        """Bind the graph of several steps of beam search, which replaces rows, totals and table."""
        session = self._graphs.several_beams
        binding = self._bind_several(session, sentences)
        self._candidate_count.bind(binding.bind_input, names.CANDIDATE_COUNT)
        for name in (names.BEAM_ROWS, names.BEAM_TOTALS):
            self._tokens.parts[name].bind(binding.bind_input, name, sentences)
        size = self._graphs.beam_count, sentences * self.shape.beam_size, self.candidates
        types = dict(zip(LOGGED, (np.int64, np.float32), strict=True))
        logged = PackedArrays(self._device, {name: (size, dtype) for name, dtype in types.items()})
        for name in LOGGED:
            logged.parts[name].bind(binding.bind_input, name)
        return _BeamRun(BoundRun(session, binding), logged)

    def _bind_several(self, session: ort.InferenceSession, sentences: int) -> Any:
        """Return a binding with the inputs of all steps and with outputs that nothing reads."""
        binding = self._bind_states(session, sentences)
        self._tokens.parts[names.STEP_INDEX].bind(binding.bind_input, names.STEP_INDEX)
        for name in ADVANCED:
            count = 1 if name == names.STEP_INDEX else sentences * self.shape.beam_size
            unread = self._device.allocate((count,), np.int64)
            unread.bind(binding.bind_output, names.changed_name(name))
            self._unread.append(unread)  # a binding does not keep them
        return binding


class CardBuffers(DeviceBuffers):
    """See DeviceBuffers. A table says which row has each position of a past, so that no past is copied for a rank."""

    bindings: CardBindings
    _graphs: CardGraphs

    def __init__(self, bindings: CardBindings, graphs: CardGraphs) -> None:
        super().__init__(bindings, graphs)
        self.most_steps = graphs.greedy_count
        shape, candidates = bindings.shape, bindings.candidates
        self._candidates = {
            name: np.zeros((shape.rows, candidates), dtype)
            for name, dtype in zip(CANDIDATES, (np.int64, np.float32), strict=True)
        }

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """See DeviceBuffers."""
        super().place(slot, encoded, index, piece_ids)
        self.bindings.table[self._rows(slot)] = 0

    def step(self, sentences: int, *, logits: bool) -> Step:
        """See DeviceBuffers. A search that follows reads the candidates."""
        found = super().step(sentences, logits=logits)
        self.keep_candidates(found.candidate_ids, found.candidate_log_probs)
        return found

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy rows of the table. Returns their bytes."""
        return copy_table_rows(self.bindings.table, sources, targets, lengths)

    def move(self, source: int, target: int, length: int) -> int:
        """See DeviceBuffers. Entries of the table stay valid, because all rows of the sentence move."""
        self.bindings.table[self._rows(target)] = self.bindings.table[self._rows(source)]
        return super().move(source, target, length)

    def beam_search(self, states: BeamStates) -> CardBeamSearch:
        """See lingon.serving.runtime.runner.BeamBuffers."""
        bindings = self.bindings
        bindings.rows, bindings.totals = states.rows, states.totals
        per_row: tuple[np.ndarray, ...] = bindings.token_ids, bindings.positions, bindings.table
        arrays = self._candidates | dict(zip(PER_ROW, per_row, strict=True))
        search = OnnxBeamSearch(self._graphs.beam, self.beam_size, arrays, states)
        return CardBeamSearch(self, search, self._graphs.beam_count)

    @raises_memory_error
    def beam_steps(self, sentences: int) -> tuple[np.ndarray, np.ndarray]:
        """Run several steps of beam search; see CardBindings. Tokens, positions and beams of the host do not change."""
        self._write_pending()
        return self.bindings.beam_steps(bucket_of(sentences, self._shape.sentences), sentences)

    def invalidate(self, slot: int) -> None:
        """See DeviceBuffers."""
        super().invalidate(slot)
        self.bindings.table[self._rows(slot)] = np.iinfo(np.int32).max

    def keep_candidates(self, ids: np.ndarray, log_probs: np.ndarray) -> None:
        """Make candidates, (rows, candidates) each, those of the last step, for the search on the host."""
        for name, values in zip(CANDIDATES, (ids, log_probs), strict=True):
            self._candidates[name][: len(values)] = values

    def _rows(self, slot: int) -> slice:
        return slice(slot * self.beam_size, (slot + 1) * self.beam_size)


@dataclass(frozen=True, slots=True)
class CardBeamSearch:
    """See lingon.serving.runtime.runner.SeveralBeamSteps.

    The device searches as well, with the same bits, but does not say which hypotheses ended. The host searches again
    over the candidates of each step, and is the one that says.

    host: the search over the candidates of one step
    """

    buffers: CardBuffers
    host: OnnxBeamSearch
    most_steps: int

    def advance(self, sentences: int, forced: np.ndarray | None = None) -> EndedBeams:
        """See BeamSearch."""
        return self.host.advance(sentences, forced)

    def several(self, sentences: int) -> Iterator[EndedBeams]:
        """See SeveralBeamSteps."""
        found = self.buffers.beam_steps(sentences)
        return self._advance_over(sentences, *found)

    def _advance_over(self, sentences: int, ids: np.ndarray, log_probs: np.ndarray) -> Iterator[EndedBeams]:
        for step in range(len(ids)):
            self.buffers.keep_candidates(ids[step], log_probs[step])
            yield self.host.advance(sentences)
