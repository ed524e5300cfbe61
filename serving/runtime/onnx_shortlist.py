"""Running batches that use the vocabulary shortlist: each sentence chooses among the target pieces of its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Manifest
from lingon.serving.runtime.onnx_state import Bound, OnnxBuffers, Slice
from lingon.serving.runtime.runner import BatchShape, Encoded
from lingon.serving.runtime.sessions import SessionPair
from lingon.serving.runtime.shortlist import Shortlist, unite


@dataclass(frozen=True, slots=True)
class ShortlistGraphs:
    """The additional graphs of a bundle with a shortlist.

    output_rows: the graph that gathers the rows of the output layer for some target pieces
    decoder: the decoder step that reads these rows and computes the logits of these pieces only
    """

    shortlist: Shortlist
    output_rows: ort.InferenceSession
    decoder: SessionPair[ort.InferenceSession]


class ShortlistBuffers(OnnxBuffers):
    """Buffers whose steps compute the union of the sentences' pieces; each sentence chooses from its own pieces.

    The first step after sentences were placed, however many, recomputes the union and gathers its rows of the output
    layer. The union does not shrink when sentences leave.
    """

    def __init__(
        self,
        manifest: Manifest,
        graphs: ShortlistGraphs,
        shape: BatchShape,
        beam: ort.InferenceSession | None = None,
        *,
        padded: bool = True,
    ) -> None:
        super().__init__(manifest, graphs.decoder, shape, beam, padded=padded)
        self._output_rows = graphs.output_rows
        self._row_names = [output.name for output in graphs.output_rows.get_outputs()]
        self._pieces = [np.empty(0, np.int64)] * shape.sentences  # by slot, the pieces that its sentence may use
        self._outdated = True  # whether sentences were placed since the union was computed
        # Sessions and numbers of sentences whose binding reads the current union.
        self._bound_to_union: set[tuple[ort.InferenceSession, int]] = set()

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence, which may use piece_ids, into a slot."""
        assert piece_ids is not None
        super().place(slot, encoded, index)
        self._pieces[slot] = piece_ids
        self._outdated = True

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence and its pieces to another slot."""
        self._pieces[target] = self._pieces[source]
        if not self._outdated:
            self._arrays[names.ALLOWED][target] = self._arrays[names.ALLOWED][source]
        return super().move(source, target, length)

    def _bound_step(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        assert not logits  # the graph returns none
        if self._outdated:
            self._update_union(sentences)
        binding, step = super()._bound_step(session, sentences, logits)
        if (session, sentences) not in self._bound_to_union:
            self._bound_to_union.add((session, sentences))
            if binding is not None:
                for each in self._union_inputs(sentences):
                    self._bind_one(binding.bind_input, each)
        return binding, step

    def _update_union(self, sentences: int) -> None:
        union = unite(self._pieces[:sentences])
        rows = self._output_rows.run(self._row_names, {names.PIECE_IDS: union.piece_ids})
        self._arrays |= dict(zip(self._row_names, rows, strict=True))
        self._arrays |= {names.PIECE_IDS: union.piece_ids, names.ALLOWED: union.allowed}
        self._outdated = False
        self._bound_to_union.clear()

    def _inputs(self, sentences: int) -> Iterator[Slice]:
        yield from super()._inputs(sentences)
        yield from self._union_inputs(sentences)

    def _union_inputs(self, sentences: int) -> Iterator[Slice]:
        """The inputs whose arrays change with every union."""
        for name in (names.PIECE_IDS, *self._row_names):
            yield Slice(name, name, len(self._arrays[name]))
        yield Slice(names.ALLOWED, names.ALLOWED, sentences)
