"""The states of a running batch on ONNX Runtime: arrays that are bound once, and what moves between rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.runner import Encoded, Step
from lingon.serving.runtime.sessions import SessionPair

Bound = tuple[ort.IOBinding | None, Step]
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}


class OnnxBuffers:
    """See lingon.serving.runtime.runner.Buffers. All states lie in NumPy arrays.

    On the CPU the graph reads and grows them in place: a binding is made once for every number of sentences, as the
    first n slots are the beginning of each array. On CUDA every step carries them to the card and back, which is
    right but slow: states that stay on the card are still to come.
    """

    def __init__(
        self,
        manifest: Manifest,
        session: SessionPair[ort.InferenceSession],
        sentences: int,
        beam_size: int,
        width: int,
        capacity: int,
        *,
        in_place: bool,
    ) -> None:
        self._session, self.beam_size, self.in_place = session, beam_size, in_place
        self._memory = manifest.states_of("memory")
        self._recurrent = manifest.states_of("recurrent")
        self._caches = manifest.states_of("cache")
        rows, sizes = sentences * beam_size, {"source_length": width, "capacity": capacity}
        graph = session.alone
        values = {value.name: value for value in (*graph.get_inputs(), *graph.get_outputs())}
        self._types = {name: _TYPES[value.type] for name, value in values.items()}
        self._logits = (rows, values[names.LOGITS].shape[1]) if names.LOGITS in values else (0, 0)
        candidates = 1 if beam_size == 1 else min(2 * beam_size, manifest.candidates)
        self._arrays = {
            **{each.name: np.zeros((sentences, *each.sized(**sizes)), self._types[each.name]) for each in self._memory},
            **{
                each.name: np.zeros((rows, *each.sized(**sizes)), self._types[names.past_name(each.name)])
                for each in (*self._caches, *self._recurrent)
            },
            names.MEMORY_LENGTHS: np.ones(sentences, np.int64),
            names.TOKEN_IDS: np.zeros(rows, np.int64),
            names.POSITIONS: np.zeros(rows, np.int64),
            names.CANDIDATE_COUNT: np.array([candidates]),
            names.CANDIDATE_IDS: np.zeros((rows, candidates), np.int64),
            names.CANDIDATE_LOG_PROBS: np.zeros((rows, candidates), np.float32),
        }
        self._bound: dict[tuple[ort.InferenceSession, int, bool], Bound] = {}

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence into a slot; the whole width is written, so that nothing of the last one stays."""
        for state in self._memory:
            _fill(self._arrays[state.name][slot], encoded[state.name][index])
        first = slot * self.beam_size
        for state in self._recurrent:
            self._arrays[state.name][first : first + self.beam_size] = encoded[state.name][index]
        self._arrays[names.MEMORY_LENGTHS][slot] = encoded[names.MEMORY_LENGTHS][index]

    def poison(self, slot: int) -> None:
        """Fill all that a slot holds with what must never be read: for tests."""
        first = slot * self.beam_size
        for state in self._memory:
            _fill_with_nothing(self._arrays[state.name][slot])
        for state in (*self._caches, *self._recurrent):
            _fill_with_nothing(self._arrays[state.name][first : first + self.beam_size])

    @property
    def nbytes(self) -> int:
        """Bytes of all states: address space, of which the system gives out what was once written to."""
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def token_ids(self) -> np.ndarray:
        """What each row reads next."""
        return self._arrays[names.TOKEN_IDS]

    @property
    def positions(self) -> np.ndarray:
        """How many tokens each row has read."""
        return self._arrays[names.POSITIONS]

    def step(self, sentences: int, *, logits: bool) -> Step:
        """Run the decoder over the first sentences."""
        with self._session.acquire() as session:
            binding, step = self._bound_to(session, sentences, logits)
            if binding is not None:
                session.run_with_iobinding(binding)
            else:
                self._run_copying(session, sentences, logits)
        return step

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy rows of every cache, each up to its length, and of every recurrent state."""
        copied = 0
        pasts = [(self._arrays[state.name], state.shape.index("capacity")) for state in self._caches]
        for source, target, length in zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True):
            for array, axis in pasts:
                past = (*[slice(None)] * axis, slice(length))
                array[target][past] = array[source][past]  # views: a fancy index would allocate and copy twice
                copied += array[source][past].nbytes
        for state in self._recurrent:
            self._arrays[state.name][targets] = self._arrays[state.name][sources]
        return copied

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence's memory and its rows."""
        for name in (*(state.name for state in self._memory), names.MEMORY_LENGTHS):
            self._arrays[name][target] = self._arrays[name][source]
        beams = np.arange(self.beam_size)
        rows = source * self.beam_size + beams, target * self.beam_size + beams
        return self.copy_rows(*rows, np.full(self.beam_size, length))

    def _inputs(self, sentences: int) -> Iterator[tuple[str, str, int]]:
        """Of every input of the graph: its name, the name of its array, and how much of it is read."""
        for name in (*(state.name for state in self._memory), names.MEMORY_LENGTHS):
            yield name, name, sentences
        for name in (names.TOKEN_IDS, names.POSITIONS):
            yield name, name, sentences * self.beam_size
        yield names.CANDIDATE_COUNT, names.CANDIDATE_COUNT, 1
        for state in (*self._caches, *self._recurrent):
            yield names.past_name(state.name), state.name, sentences * self.beam_size

    def _outputs(self, sentences: int, logits: bool) -> Iterator[tuple[str, str, int]]:
        """The same of every output. Past and present of a state are one array: the step appends in place."""
        for state in (*self._caches, *self._recurrent):
            yield names.present_name(state.name), state.name, sentences * self.beam_size
        for name in (names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS, *([names.LOGITS] if logits else [])):
            yield name, name, sentences * self.beam_size

    def _bound_to(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        """What `_bind` gives, made once."""
        key = (session, sentences, logits)
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        return self._bound[key]

    def _bind(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        """A binding for a step of the first sentences, where states stay in place, and where its results lie."""
        if logits and names.LOGITS not in self._arrays:
            self._arrays[names.LOGITS] = np.zeros(self._logits, self._types[names.LOGITS])
        outputs = {name: self._arrays[array][:count] for name, array, count in self._outputs(sentences, logits)}
        step = Step(outputs[names.CANDIDATE_IDS], outputs[names.CANDIDATE_LOG_PROBS], outputs.get(names.LOGITS))
        if not self.in_place:
            return None, step
        binding = session.io_binding()
        for each in self._inputs(sentences):
            self._bind_one(binding.bind_input, *each)
        for each in self._outputs(sentences, logits):
            self._bind_one(binding.bind_output, *each)
        return binding, step

    def _run_copying(self, session: ort.InferenceSession, sentences: int, logits: bool) -> None:
        feed = {name: self._arrays[array][:count] for name, array, count in self._inputs(sentences)}
        wanted = list(self._outputs(sentences, logits))
        found = session.run([name for name, _, _ in wanted], feed)
        for (_, array, count), values in zip(wanted, found, strict=True):
            self._arrays[array][:count] = values

    def _bind_one(self, bind: Any, name: str, array_name: str, count: int) -> None:
        array = self._arrays[array_name]
        bind(name, "cpu", 0, array.dtype, (count, *array.shape[1:]), array.ctypes.data)


def _fill(slot: np.ndarray, values: np.ndarray) -> None:
    """Write values into the beginning of a slot, zeros, which weigh nothing, into the rest; padding may be cut off."""
    common = tuple(slice(min(sizes)) for sizes in zip(slot.shape, values.shape, strict=True))
    if slot.shape != values.shape:
        slot[...] = 0
    slot[common] = values[common]


def _fill_with_nothing(array: np.ndarray) -> None:
    array[:] = np.nan if np.issubdtype(array.dtype, np.floating) else np.iinfo(array.dtype).max
