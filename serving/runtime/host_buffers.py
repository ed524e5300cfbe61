"""The decoder states of a running batch in main memory: their arrays, steps, beams, and shortlists."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from lingon.bundle import names
from lingon.bundle.manifest import Manifest, State
from lingon.serving.runtime.runner import (
    FREE,
    BatchShape,
    BeamSearch,
    BeamStates,
    Encoded,
    EndedBeams,
    GreedySteps,
    SavedPast,
    Step,
)
from lingon.serving.runtime.sessions import TYPES, SessionPair, raises_memory_error
from lingon.serving.runtime.shortlist import Shortlist, pad_pieces, unite
from lingon.text import EOS

CANDIDATES = names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS
PER_ROW = names.TOKEN_IDS, names.POSITIONS, names.BEAM_TABLE
STATES = names.BEAM_ROWS, names.BEAM_TOTALS, names.BEAM_TOKENS, names.BEAM_LOG_PROBS  # in the order of BeamStates
CHANGED = *PER_ROW, *STATES
FOUND = names.ENDED, names.ENDED_TOTALS, names.ENDED_TOKENS, names.ENDED_LOG_PROBS, names.FAILED  # fields of EndedBeams
MAY_BE_FOUND = names.ENDED_TABLE  # the last field of EndedBeams, which graphs of before do not output


class OnnxBeamSearch:
    """See lingon.serving.runtime.runner.SpreadingSearch. There is one binding for each number of sentences."""

    def __init__(
        self, session: ort.InferenceSession, beam_size: int, buffers: Mapping[str, np.ndarray], states: BeamStates
    ) -> None:
        """buffers: candidates, tokens, positions and the table of a running batch, by name."""
        self._session, self._beam_size = session, beam_size
        of_states = states.rows, states.totals, states.tokens, states.log_probs
        self._changed = {name: buffers[name] for name in PER_ROW} | dict(zip(STATES, of_states, strict=True))
        self._candidates = {name: buffers[name] for name in CANDIDATES}
        ended, failed = np.zeros(states.rows.shape, np.bool_), np.zeros(len(states.rows), np.bool_)
        found = ended, *map(np.zeros_like, of_states[1:]), failed
        self._found = dict(zip(FOUND, found, strict=True))
        if has_output(session, MAY_BE_FOUND):
            self._found[MAY_BE_FOUND] = np.zeros(states.tokens.shape, np.int32)
        self._bound: dict[int, tuple[ort.IOBinding, EndedBeams]] = {}

    @raises_memory_error
    def advance(self, sentences: int, forced: np.ndarray | None = None) -> EndedBeams:
        if forced is not None:
            self._force(forced)
        if sentences not in self._bound:
            self._bound[sentences] = self._bind(sentences)
        binding, ended = self._bound[sentences]
        self._session.run_with_iobinding(binding)
        return ended

    def spread(self, slot: int, begin: int, count: int) -> None:
        """Write the table of a slot: see lingon.serving.runtime.runner.SpreadingSearch.

        A step writes the positions of all its rows before any row reads them.
        """
        rows = slice(slot * self._beam_size, (slot + 1) * self._beam_size)
        further = np.arange(count) - np.arange(self._beam_size)[:, None]
        self._changed[names.BEAM_TABLE][rows, begin : begin + count] = further

    def _force(self, tokens: np.ndarray) -> None:
        """Replace the candidates of forced slots by their token; see BeamSearch.advance."""
        shape = -1, self._beam_size, self._candidates[names.CANDIDATE_IDS].shape[1]
        ids, log_probs = (self._candidates[name].reshape(shape) for name in CANDIDATES)
        slots = np.flatnonzero(tokens != FREE)
        slots = slots[~np.isnan(log_probs[slots]).any(axis=(1, 2))]  # the search reports the others
        ids[slots] = tokens[slots, None, None]
        log_probs[slots] = -np.inf
        log_probs[slots, :, 0] = 0

    def _bind(self, sentences: int) -> tuple[ort.IOBinding, EndedBeams]:
        binding = self._session.io_binding()
        rows = sentences * self._beam_size
        for name, array in (self._candidates | self._changed).items():
            size = rows if name in self._candidates or name in PER_ROW else sentences
            bind_first(binding.bind_input, name, array, size)
            if name in self._changed:  # the output uses the memory of the input
                bind_first(binding.bind_output, names.changed_name(name), array, size)
        for name, array in self._found.items():
            bind_first(binding.bind_output, name, array, sentences)
        return binding, EndedBeams(*(array[:sentences] for array in self._found.values()))


def has_output(session: ort.InferenceSession, name: str) -> bool:
    """Return whether a graph has an output of this name."""
    return any(each.name == name for each in session.get_outputs())


def bind_first(bind: Callable[..., None], name: str, array: np.ndarray, size: int) -> None:
    """Bind the first `size` entries of an array; bind: the method bind_input or bind_output of a binding."""
    bind(name, "cpu", 0, array.dtype, (size, *array.shape[1:]), array.ctypes.data)


def copy_table_rows(table: np.ndarray, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
    """Let rows continue the pasts of others, each up to its length, and return the bytes copied in the table.

    table: see lingon.bundle.names.BEAM_TABLE; sources, targets, lengths: (copies)
    """
    for source, target, length in zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True):
        table[target, :length] = table[source, :length] + (source - target)
    return int(lengths.sum()) * table.itemsize


class PastAttention:
    """See lingon.serving.runtime.runner.AttentionHistory. Its arrays are allocated when steps are kept first.

    A step writes its weights to `latest`, from which `keep` copies them to the past of each row.

    latest: (rows, width)
    past: (rows, capacity, width)
    """

    def __init__(self, shape: BatchShape, table: np.ndarray | None) -> None:
        """table: see lingon.bundle.names.BEAM_TABLE; None if the pasts of rows are copied."""
        self._shape, self._table, self._kept = shape, table, False
        self._index = np.arange(shape.rows)
        self.latest, self.past = np.zeros((0, 0), np.float32), np.zeros((0, 0, 0), np.float32)

    @property
    def kept(self) -> bool:
        return self._kept

    @kept.setter
    def kept(self, value: bool) -> None:
        if value and not self.past.size:
            shape = self._shape
            self.latest = np.zeros((shape.rows, shape.width), np.float32)
            self.past = np.zeros((shape.rows, shape.capacity, shape.width), np.float32)
        self._kept = value

    @property
    def nbytes(self) -> int:
        """Bytes of the address space of its arrays."""
        return self.latest.nbytes + self.past.nbytes

    def keep(self, positions: np.ndarray) -> None:
        """Keep the weights of the latest step; positions: (rows of the step), those that it computed."""
        rows = len(positions)
        self.past[self._index[:rows], positions] = self.latest[:rows]

    def restore(self, slot: int, saved: np.ndarray | None, length: int) -> None:
        first = slot * self._shape.beam_size
        steps = self.past[first : first + self._shape.beam_size, :length]
        steps[...] = 0
        if saved is not None:
            width = min(saved.shape[1], self._shape.width)
            steps[..., :width] = saved[:length, :width]

    def of_row(self, row: int, length: int) -> np.ndarray:
        if self._table is None:
            return self.past[row, :length].copy()
        return self.of_rows(row + self._table[row, :length])

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.past[rows, self._steps[: len(rows)]]
        return found

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` steps of a row to another one, if any are kept."""
        if self.past.size:
            self.past[target, :length] = self.past[source, :length]

    @functools.cached_property
    def _steps(self) -> np.ndarray:
        return np.arange(self._shape.capacity)


STEPS_SECONDS = 0.001  # seconds; several steps then stop, so that no sentence that joins or leaves waits longer

Bound = tuple[ort.IOBinding, Step]
"""A binding, and the output arrays of its step."""


class Slice(NamedTuple):
    """The part of an array that is one input or output of a graph."""

    name: str  # name of the input or output
    array: str  # name of the array
    size: int  # entries of the first dimension, from 0


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The common properties of the buffers of all batches of a graph, read once for all batches.

    model: of the graph; the states of all its graphs are alike
    memory, recurrent, caches: the states of the graph
    types: types of its inputs and outputs
    padded: whether the graph may read memory beyond the length of a sentence, as all graphs do except those of our
        operators, the only ones that read float16
    vocab: pieces with logits; 0 if it outputs none
    candidates: the most candidates of a row
    attends: whether it outputs where its rows look
    """

    model: Manifest
    memory: tuple[State, ...]
    recurrent: tuple[State, ...]
    caches: tuple[State, ...]
    types: Mapping[str, type[np.generic]]
    padded: bool
    vocab: int
    candidates: int
    attends: bool = False

    @classmethod
    def of(cls, manifest: Manifest, graph: ort.InferenceSession) -> StateLayout:
        """Return the layout of a decoder of a bundle."""
        values = {value.name: value for value in (*graph.get_inputs(), *graph.get_outputs())}
        types = {name: TYPES[value.type] for name, value in values.items()}
        memory = manifest.states_of("memory")
        return cls(
            manifest,
            memory,
            manifest.states_of("recurrent"),
            manifest.states_of("cache"),
            types,
            any(types[each.name] != np.float16 for each in memory),
            values[names.LOGITS].shape[1] if names.LOGITS in values else 0,
            manifest.candidates,
            names.STEP_ATTENTION in values,
        )


class OnnxBuffers:
    """See lingon.serving.runtime.runner.Buffers. All states are NumPy arrays in main memory.

    The graph reads and extends the states in place. There is one binding per number of sentences, because the first n
    slots are the first part of each array.
    """

    most_steps = 32  # of most sentences all; STEPS_SECONDS bounds them where others may wait

    def __init__(
        self,
        layout: StateLayout,
        session: SessionPair[ort.InferenceSession],
        shape: BatchShape,
        beam: ort.InferenceSession | None = None,
    ) -> None:
        """beam: the graph of beam search, if the bundle has one."""
        self._session, self.beam_size, self._beam = session, shape.beam_size, beam
        self._memory, self._recurrent, self._caches = layout.memory, layout.recurrent, layout.caches
        self._model, self._types, self._padded = layout.model, layout.types, layout.padded
        self._logits_shape = (shape.rows, layout.vocab) if layout.vocab else (0, 0)
        self._arrays = self._allocate(shape, layout.candidates)
        self._of_sentences = [self._arrays[each.name] for each in self._memory] + [self._arrays[names.MEMORY_LENGTHS]]
        self._replaced = [self._arrays[each.name] for each in self._recurrent]
        self._replaced_bytes = sum(int(array[0].nbytes) for array in self._replaced)
        # (rows, capacity, ...) each.
        self._pasts = [
            np.moveaxis(self._arrays[each.name], 1 + each.shape.index("capacity"), 1) for each in self._caches
        ]
        self._position_bytes = sum(int(past[0, 0].nbytes) for past in self._pasts)
        self.attention = PastAttention(shape, self._arrays.get(names.BEAM_TABLE)) if layout.attends else None
        self._bound: dict[tuple[ort.InferenceSession, int, bool, bool], Bound] = {}

    def _allocate(self, shape: BatchShape, max_candidates: int) -> dict[str, np.ndarray]:
        """Return all arrays but the logits, by name."""
        sizes = {"source_length": shape.width, "capacity": shape.capacity}
        candidates = 1 if shape.beam_size == 1 else min(2 * shape.beam_size, max_candidates)
        memory: dict[str, np.ndarray] = {
            each.name: np.zeros((shape.sentences, *each.sized(**sizes)), self._types[each.name])
            for each in self._memory
        }
        past: dict[str, np.ndarray] = {
            each.name: np.zeros((shape.rows, *each.sized(**sizes)), self._types[names.past_name(each.name)])
            for each in (*self._caches, *self._recurrent)
        }
        if names.BEAM_TABLE in self._types:
            past[names.BEAM_TABLE] = np.zeros((shape.rows, shape.capacity), np.int32)
        return {
            **memory,
            **past,
            names.MEMORY_LENGTHS: np.ones(shape.sentences, np.int64),
            names.TOKEN_IDS: np.zeros(shape.rows, np.int64),
            names.POSITIONS: np.zeros(shape.rows, np.int64),
            names.CANDIDATE_COUNT: np.array([candidates]),
            names.CANDIDATE_IDS: np.zeros((shape.rows, candidates), np.int64),
            names.CANDIDATE_LOG_PROBS: np.zeros((shape.rows, candidates), np.float32),
        }

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence into a slot. The graph then reads nothing of the previous sentence."""
        for state in self._memory:
            _fill(self._arrays[state.name][slot], encoded[state.name][index], padded=self._padded)
        first = slot * self.beam_size
        for state in self._recurrent:
            self._arrays[state.name][first : first + self.beam_size] = encoded[state.name][index]
        if names.BEAM_TABLE in self._arrays:
            self._arrays[names.BEAM_TABLE][first : first + self.beam_size] = 0
        self._arrays[names.MEMORY_LENGTHS][slot] = encoded[names.MEMORY_LENGTHS][index]

    def invalidate(self, slot: int) -> None:
        """Fill the states of a slot with values that no step may read. For tests."""
        first = slot * self.beam_size
        for state in self._memory:
            _fill_with_invalid(self._arrays[state.name][slot])
        for state in (*self._caches, *self._recurrent):
            _fill_with_invalid(self._arrays[state.name][first : first + self.beam_size])
        if self.attention is not None:
            _fill_with_invalid(self.attention.past[first : first + self.beam_size])

    @property
    def nbytes(self) -> int:
        """Bytes of the address space of all arrays. The system backs only the written parts with memory."""
        kept = 0 if self.attention is None else self.attention.nbytes
        return sum(array.nbytes for array in self._arrays.values()) + kept

    @property
    def token_ids(self) -> np.ndarray:
        return self._arrays[names.TOKEN_IDS]

    @property
    def positions(self) -> np.ndarray:
        return self._arrays[names.POSITIONS]

    @raises_memory_error
    def step(self, sentences: int, *, logits: bool) -> Step:
        with self._session as session:
            if self._session.chooses:
                session = self._session.for_step(session, sentences * self.beam_size)
            binding, step = self._bound_step(session, sentences, logits)
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            if self._session.chooses:
                self._session.measure_step(session, sentences * self.beam_size, time.perf_counter() - start)
        if (attention := self._kept_attention) is not None:
            attention.keep(self.positions[: sentences * self.beam_size])
        return step

    @property
    def weighs(self) -> bool:
        """See GreedyBuffers."""
        return self._logits_shape[1] > 0

    @raises_memory_error
    def greedy_steps(
        self, sentences: int, steps: int, forced: np.ndarray | None = None, *, weighs: bool = False
    ) -> GreedySteps:
        """Run steps of greedy search until a row ends or for STEPS_SECONDS: see GreedyBuffers.

        For the engine, reading the tokens and checking for waiting jobs takes as long as a step of a small model.
        """
        found = GreedySteps([], [])
        with self._session as session:
            if self._session.chooses:
                session = self._session.for_step(session, sentences)
            binding, step = self._bound_step(session, sentences, logits=False)
            ids, log_probs = step.candidate_ids[:, 0], step.candidate_log_probs[:, 0]
            token_ids, positions = (self._arrays[name][:sentences] for name in (names.TOKEN_IDS, names.POSITIONS))
            attention, chooses = self._kept_attention, self._session.chooses
            start = time.perf_counter()
            stop = start + STEPS_SECONDS
            while True:
                own = None if forced is None else forced[len(found.tokens)]
                if own is not None and (own == FREE).all():
                    own = forced = None  # a prefix has no gaps, so that no later step has forced tokens
                if own is not None and weighs:  # all logits are written in these steps alone
                    weighing, with_logits = self._bound_step(session, sentences, logits=True)
                    session.run_with_iobinding(weighing)
                    _weigh(with_logits, own)
                else:
                    session.run_with_iobinding(binding)
                if attention is not None:
                    attention.keep(positions)
                if own is not None:
                    np.copyto(ids, own, where=own != FREE)
                token_ids[:] = ids
                positions += 1
                tokens = ids.tolist()
                found.tokens.append(tokens)
                found.log_probs.append(log_probs.tolist())
                begun, start = start, time.perf_counter()
                if chooses:
                    self._session.measure_step(session, sentences, start - begun)
                if EOS in tokens or start > stop or len(found.tokens) == steps:
                    return found

    @property
    def can_cut(self) -> bool:
        return not self._recurrent

    def save(self, row: int, tokens: tuple[int, ...]) -> SavedPast:
        """Copy the states of a row: see PastBuffers."""
        caches = tuple(past[row, : len(tokens)].copy() for past in self._pasts)
        return SavedPast(self._model, tokens, caches, tuple(array[row].copy() for array in self._replaced))

    def restore(self, slot: int, past: SavedPast) -> bool:
        """Copy a past to a slot: see PastBuffers. With a table the first row has it alone, and the others read it."""
        if past.model is not self._model or any(past.length >= own.shape[1] for own in self._pasts):
            return False
        first, length = slot * self.beam_size, past.length
        table = self._arrays.get(names.BEAM_TABLE)
        every = slice(first, first + self.beam_size)
        for own, saved in zip(self._pasts, past.caches, strict=True):
            own[every if table is None else first, :length] = saved[:length]
        for array, state in zip(self._replaced, past.recurrent, strict=True):
            array[every] = state
        if table is not None:
            table[every, :length] = -np.arange(self.beam_size)[:, None]
        return True

    def beam_search(self, states: BeamStates) -> BeamSearch | None:
        return None if self._beam is None else OnnxBeamSearch(self._beam, self.beam_size, self._arrays, states)

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy rows of every cache, each up to its length, and of every recurrent state.

        With a table only the row of the table is copied. It holds the source row of each position of the past.
        """
        table = self._arrays.get(names.BEAM_TABLE)
        if table is None:
            return self._copy_pasts(sources.tolist(), targets.tolist(), lengths.tolist())
        return copy_table_rows(table, sources, targets, lengths)

    def _copy_pasts(self, sources: Sequence[int], targets: Sequence[int], lengths: Sequence[int]) -> int:
        for source, target, length in zip(sources, targets, lengths, strict=True):
            for past in self._pasts:
                past[target, :length] = past[source, :length]
            for array in self._replaced:
                array[target] = array[source]
            if self.attention is not None:
                self.attention.copy(source, target, length)
        return sum(lengths) * self._position_bytes + len(sources) * self._replaced_bytes

    def move(self, source: int, target: int, length: int) -> int:
        for array in self._of_sentences:
            array[target] = array[source]
        first, last = source * self.beam_size, target * self.beam_size
        if names.BEAM_TABLE in self._arrays:  # its entries stay valid, because all rows of the sentence move
            table = self._arrays[names.BEAM_TABLE]
            table[last : last + self.beam_size] = table[first : first + self.beam_size]
        sources, targets = range(first, first + self.beam_size), range(last, last + self.beam_size)
        return self._copy_pasts(sources, targets, [length] * self.beam_size)

    def _inputs(self, sentences: int) -> Iterator[Slice]:
        """Yield the inputs of the graph for a step of the first `sentences` slots."""
        for name in (*(state.name for state in self._memory), names.MEMORY_LENGTHS):
            yield Slice(name, name, sentences)
        for name in (names.TOKEN_IDS, names.POSITIONS):
            yield Slice(name, name, sentences * self.beam_size)
        if names.BEAM_TABLE in self._arrays:
            yield Slice(names.BEAM_TABLE, names.BEAM_TABLE, sentences * self.beam_size)
        yield Slice(names.CANDIDATE_COUNT, names.CANDIDATE_COUNT, 1)
        for state in (*self._caches, *self._recurrent):
            yield Slice(names.past_name(state.name), state.name, sentences * self.beam_size)

    def _outputs(self, sentences: int, logits: bool) -> Iterator[Slice]:
        """Yield the outputs of the graph. Past and present of a state are one array, extended in place."""
        for state in (*self._caches, *self._recurrent):
            yield Slice(names.present_name(state.name), state.name, sentences * self.beam_size)
        for name in (names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS, *([names.LOGITS] if logits else [])):
            yield Slice(name, name, sentences * self.beam_size)

    def _bound_step(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        key = (session, sentences, logits, self._kept_attention is not None)
        if key not in self._bound:
            self._bound[key] = self._bind(session, sentences, logits)
        return self._bound[key]

    @property
    def _kept_attention(self) -> PastAttention | None:
        """Where the weights of a step are kept, or None if they are not."""
        return self.attention if self.attention is not None and self.attention.kept else None

    def _bind(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        """Bind the arrays for a step of the first `sentences` slots."""
        if logits and names.LOGITS not in self._arrays:
            self._arrays[names.LOGITS] = np.zeros(self._logits_shape, self._types[names.LOGITS])
        outputs = {name: self._arrays[array][:size] for name, array, size in self._outputs(sentences, logits)}
        step = Step(outputs[names.CANDIDATE_IDS], outputs[names.CANDIDATE_LOG_PROBS], outputs.get(names.LOGITS))
        binding = session.io_binding()
        self._bind_slices(binding.bind_input, self._inputs(sentences))
        self._bind_slices(binding.bind_output, self._outputs(sentences, logits))
        if (attention := self._kept_attention) is not None:
            bind_first(binding.bind_output, names.STEP_ATTENTION, attention.latest, sentences * self.beam_size)
        return binding, step

    def _bind_slices(self, bind: Callable[..., None], slices: Iterable[Slice]) -> None:
        for name, array, size in slices:
            bind_first(bind, name, self._arrays[array], size)


def _weigh(step: Step, forced: np.ndarray) -> None:
    """Put the log-probabilities of forced tokens in the place of those of the likeliest ones.

    forced: (sentences), FREE for none
    """
    assert step.logits is not None
    rows = np.flatnonzero(forced != FREE)
    likeliest = step.candidate_ids[rows, 0]
    step.candidate_log_probs[rows, 0] += step.logits[rows, forced[rows]] - step.logits[rows, likeliest]


def _fill(slot: np.ndarray, values: np.ndarray, *, padded: bool) -> None:
    """Write `values` to the beginning of a slot, and zeros without effect to the rest if it is padded.

    Values beyond the size of the slot are padding and are cut off.
    """
    if slot.shape == values.shape:  # the case of most sentences
        slot[...] = values
        return
    common = tuple(slice(min(sizes)) for sizes in zip(slot.shape, values.shape, strict=True))
    if padded:
        slot[...] = 0
    slot[common] = values[common]


def _fill_with_invalid(array: np.ndarray) -> None:
    """Write NaN, or the largest integer, to every element."""
    array[:] = np.nan if np.issubdtype(array.dtype, np.floating) else np.iinfo(array.dtype).max


SMALL_VOCABULARY = 8192  # pieces; for many sentences, computing all of them is faster than making their union
MANY, FEW = 3, 1  # sentences; a step computes all pieces from MANY on, and continues to do so down to FEW


@dataclass(frozen=True)
class ShortlistGraphs:
    """The additional graphs of a bundle with a shortlist.

    output_rows: the graph that gathers the rows of the output layer for some target pieces
    decoder: the decoder step that reads these rows and computes the logits of these pieces only
    vocab: pieces of the target
    packed: whether a product reads the rows unchanged; others are packed in every step, which takes longer for more
    """

    shortlist: Shortlist
    output_rows: ort.InferenceSession
    decoder: SessionPair[ort.InferenceSession]
    vocab: int
    packed: bool = False

    @functools.cached_property
    def row_names(self) -> list[str]:
        """The names of the rows of the output layer, which are several arrays."""
        return [output.name for output in self.output_rows.get_outputs()]

    def inputs_of(self, piece_ids: np.ndarray) -> dict[str, np.ndarray]:
        """Return the inputs of a step for these pieces: their ids, and their rows of the output layer."""
        inputs = {names.PIECE_IDS: piece_ids}
        return inputs | dict(zip(self.row_names, self.output_rows.run(self.row_names, inputs), strict=True))

    @functools.cached_property
    def inputs_of_all(self) -> dict[str, np.ndarray]:
        """`inputs_of` all pieces of the vocabulary. All batches share the arrays."""
        return self.inputs_of(pad_pieces(np.arange(self.vocab)))

    @property
    def may_compute_all(self) -> bool:
        """Whether a step computes all pieces if that is faster than the union for its sentences."""
        return self.packed and self.vocab <= SMALL_VOCABULARY


class ShortlistBuffers(OnnxBuffers):
    """Buffers whose steps compute the union of the sentences' pieces. Each sentence chooses from its own pieces.

    The first step after placements of sentences recomputes the union and gathers its rows of the output layer. The
    union does not shrink when sentences leave. With many sentences and a small vocabulary it is the whole vocabulary,
    which does not change with them.
    """

    def __init__(
        self,
        layout: StateLayout,
        graphs: ShortlistGraphs,
        shape: BatchShape,
        beam: ort.InferenceSession | None = None,
    ) -> None:
        super().__init__(layout, graphs.decoder, shape, beam)
        self._graphs = graphs
        # (slots, vocab, padded as piece ids are), True at the permitted pieces of the sentence of a slot.
        self._permitted = np.zeros((shape.sentences, len(pad_pieces(np.arange(graphs.vocab)))), np.bool_)
        self._whole = False  # whether the union is the whole vocabulary
        self._outdated = True  # whether sentences were placed since the union was computed
        self._bound_to_union: set[ort.IOBinding] = set()  # to the current union

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        assert piece_ids is not None
        super().place(slot, encoded, index)
        permitted = self._permitted[slot]
        permitted[:] = False
        permitted[piece_ids] = True
        self._outdated = self._outdated or not self._whole

    def move(self, source: int, target: int, length: int) -> int:
        self._permitted[target] = self._permitted[source]
        if not self._outdated:
            self._arrays[names.ALLOWED][target] = self._arrays[names.ALLOWED][source]
        return super().move(source, target, length)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._permitted.nbytes

    def _bound_step(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        assert not logits  # the graph returns none
        if self._outdated or (self._whole and sentences <= FEW):
            self._update_union(sentences)
        binding, step = super()._bound_step(session, sentences, logits)
        if binding not in self._bound_to_union:
            self._bound_to_union.add(binding)
            self._bind_slices(binding.bind_input, self._union_inputs(sentences))
        return binding, step

    def _update_union(self, sentences: int) -> None:
        self._whole = self._graphs.may_compute_all and sentences >= MANY
        if self._whole:
            self._arrays |= {**self._graphs.inputs_of_all, names.ALLOWED: self._permitted}
        else:
            union = unite(self._permitted[:sentences])
            self._arrays |= {**self._graphs.inputs_of(union.piece_ids), names.ALLOWED: union.allowed}
        self._outdated = False
        self._bound_to_union.clear()

    def _union_inputs(self, sentences: int) -> Iterator[Slice]:
        """Yield the inputs whose arrays change with every union."""
        for name in (names.PIECE_IDS, *self._graphs.row_names):
            yield Slice(name, name, len(self._arrays[name]))
        yield Slice(names.ALLOWED, names.ALLOWED, sentences)
