"""One step of beam search by a graph: the choice of tokens and pasts without NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.serving.runtime.runner import BeamStates, EndedBeams
from lingon.serving.runtime.sessions.errors import raises_memory_error

CANDIDATES = names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS
PER_ROW = names.TOKEN_IDS, names.POSITIONS, names.BEAM_TABLE
STATES = names.BEAM_ROWS, names.BEAM_TOTALS, names.BEAM_TOKENS, names.BEAM_LOG_PROBS  # as the fields of BeamStates
CHANGED = *PER_ROW, *STATES
FOUND = names.ENDED, names.ENDED_TOTALS, names.ENDED_TOKENS, names.ENDED_LOG_PROBS, names.FAILED  # of EndedBeams


class OnnxBeamSearch:
    """See lingon.serving.runtime.runner.BeamSearch. There is one binding for each number of sentences."""

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
        self._bound: dict[int, tuple[ort.IOBinding, EndedBeams]] = {}

    @raises_memory_error
    def advance(self, sentences: int) -> EndedBeams:
        """See BeamSearch."""
        if sentences not in self._bound:
            self._bound[sentences] = self._bind(sentences)
        binding, ended = self._bound[sentences]
        self._session.run_with_iobinding(binding)
        return ended

    def _bind(self, sentences: int) -> tuple[ort.IOBinding, EndedBeams]:
        binding = self._session.io_binding()
        rows = sentences * self._beam_size
        for name, array in (self._candidates | self._changed).items():
            size = rows if name in self._candidates or name in PER_ROW else sentences
            bind_first(binding.bind_input, name, array, size)
            if name in self._changed:  # in the same memory
                bind_first(binding.bind_output, names.changed_name(name), array, size)
        for name, array in self._found.items():
            bind_first(binding.bind_output, name, array, sentences)
        return binding, EndedBeams(*(array[:sentences] for array in self._found.values()))


def bind_first(bind: Callable[..., None], name: str, array: np.ndarray, size: int) -> None:
    """Bind the first `size` entries of an array; bind: the method bind_input or bind_output of a binding."""
    bind(name, "cpu", 0, array.dtype, (size, *array.shape[1:]), array.ctypes.data)
