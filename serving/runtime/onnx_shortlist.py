"""Running batches whose sentences choose among the pieces that their sources call for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.onnx_state import Bound, OnnxBuffers
from lingon.serving.runtime.runner import Encoded, Step
from lingon.serving.runtime.sessions import SessionPair
from lingon.serving.runtime.shortlist import Shortlist, unite


@dataclass(frozen=True, slots=True)
class ShortlistGraphs:
    """What a bundle with a shortlist has besides.

    output_rows: hands out what the output layer knows of some pieces; decoder: a step that chooses among these
    """

    shortlist: Shortlist
    output_rows: ort.InferenceSession
    decoder: SessionPair[ort.InferenceSession]


class ShortlistBuffers(OnnxBuffers):
    """Buffers whose steps compute the union of what their sentences may say, and let each say what is its own.

    The union is made anew, and the output layer's rows are gathered for it, in the first step after sentences came,
    however many they were; it gets no smaller as they leave.
    """

    def __init__(
        self,
        manifest: Manifest,
        graphs: ShortlistGraphs,
        sentences: int,
        beam_size: int,
        width: int,
        capacity: int,
        *,
        in_place: bool,
    ) -> None:
        super().__init__(manifest, graphs.decoder, sentences, beam_size, width, capacity, in_place=in_place)
        self._output_rows = graphs.output_rows
        self._gathered = [output.name for output in graphs.output_rows.get_outputs()]
        self._pieces = [np.empty(0, np.int64)] * sentences  # of each slot
        self._outdated = True
        self._current: set[tuple[ort.InferenceSession, int]] = set()  # whose binding is to the present union

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence into a slot, which may say piece_ids."""
        assert piece_ids is not None
        super().place(slot, encoded, index)
        self._pieces[slot] = piece_ids
        self._outdated = True

    def step(self, sentences: int, *, logits: bool) -> Step:
        """Run the decoder over the first sentences; it has no logits to hand out."""
        assert not logits
        if self._outdated:
            self._unite(sentences)
        return super().step(sentences, logits=False)

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence and what it may say."""
        self._pieces[target] = self._pieces[source]
        if not self._outdated:
            self._arrays[names.ALLOWED][target] = self._arrays[names.ALLOWED][source]
        return super().move(source, target, length)

    def _bound_to(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        binding, step = super()._bound_to(session, sentences, logits)
        if (session, sentences) not in self._current:
            self._current.add((session, sentences))
            if binding is not None:
                for each in self._union(sentences):
                    self._bind_one(binding.bind_input, *each)
        return binding, step

    def _unite(self, sentences: int) -> None:
        union = unite(self._pieces[:sentences])
        rows = self._output_rows.run(self._gathered, {names.PIECE_IDS: union.piece_ids})
        self._arrays |= dict(zip(self._gathered, rows, strict=True))
        self._arrays |= {names.PIECE_IDS: union.piece_ids, names.ALLOWED: union.allowed}
        self._outdated = False
        self._current.clear()

    def _inputs(self, sentences: int) -> Iterator[tuple[str, str, int]]:
        yield from super()._inputs(sentences)
        yield from self._union(sentences)

    def _union(self, sentences: int) -> Iterator[tuple[str, str, int]]:
        """The same of those inputs that change with the union."""
        for name in (names.PIECE_IDS, *self._gathered):
            yield name, name, len(self._arrays[name])
        yield names.ALLOWED, names.ALLOWED, sentences
