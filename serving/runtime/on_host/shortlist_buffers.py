"""Running batches that use the vocabulary shortlist: each sentence chooses among the target pieces of its source."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.serving.runtime.on_host.buffers import Bound, OnnxBuffers, Slice, StateLayout
from lingon.serving.runtime.runner import BatchShape, Encoded
from lingon.serving.runtime.sessions.pair import SessionPair
from lingon.serving.runtime.shortlist import Shortlist, pad_pieces, unite

SMALL_VOCABULARY = 8192  # pieces; a step of many sentences computes all of them sooner than their union is made
MANY, FEW = 3, 1  # sentences from which on a step computes all pieces, and down to which it goes on to do so


@dataclass(frozen=True)
class ShortlistGraphs:
    """The additional graphs of a bundle with a shortlist.

    output_rows: the graph that gathers the rows of the output layer for some target pieces
    decoder: the decoder step that reads these rows and computes the logits of these pieces only
    vocab: pieces of the target
    packed: whether a product reads the rows as they are; others are packed in every step, which takes longer for more
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
        feed = {names.PIECE_IDS: piece_ids}
        return feed | dict(zip(self.row_names, self.output_rows.run(self.row_names, feed), strict=True))

    @functools.cached_property
    def inputs_of_all(self) -> dict[str, np.ndarray]:
        """`inputs_of` all pieces of the vocabulary; all batches share the arrays."""
        return self.inputs_of(pad_pieces(np.arange(self.vocab)))

    @property
    def may_compute_all(self) -> bool:
        """Whether a step computes all pieces where that takes less time than to unite those of its sentences."""
        return self.packed and self.vocab <= SMALL_VOCABULARY


class ShortlistBuffers(OnnxBuffers):
    """Buffers whose steps compute the union of the sentences' pieces; each sentence chooses from its own pieces.

    The first step after sentences were placed, however many, recomputes the union and gathers its rows of the output
    layer. The union does not shrink when sentences leave. With many sentences and a small vocabulary it is the whole
    vocabulary, which does not change with them.
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
        self._pieces = [np.empty(0, np.int32)] * shape.sentences  # by slot, the pieces that its sentence may use
        self._whole = False  # whether the union is the whole vocabulary
        self._outdated = True  # whether sentences were placed since the union was computed
        # Sessions and numbers of sentences whose binding reads the current union.
        self._bound_to_union: set[tuple[ort.InferenceSession, int]] = set()

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put a sentence, which may use piece_ids, into a slot."""
        assert piece_ids is not None
        super().place(slot, encoded, index)
        self._pieces[slot] = piece_ids
        if self._whole:
            allowed = self._arrays[names.ALLOWED][slot]
            allowed[:] = False
            allowed[piece_ids] = True
        else:
            self._outdated = True

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence and its pieces to another slot."""
        self._pieces[target] = self._pieces[source]
        if not self._outdated:
            self._arrays[names.ALLOWED][target] = self._arrays[names.ALLOWED][source]
        return super().move(source, target, length)

    def _bound_step(self, session: ort.InferenceSession, sentences: int, logits: bool) -> Bound:
        assert not logits  # the graph returns none
        if self._outdated or (self._whole and sentences <= FEW):
            self._update_union(sentences)
        binding, step = super()._bound_step(session, sentences, logits)
        if (session, sentences) not in self._bound_to_union:
            self._bound_to_union.add((session, sentences))
            self._bind_slices(binding.bind_input, self._union_inputs(sentences))
        return binding, step

    def _update_union(self, sentences: int) -> None:
        self._whole = self._graphs.may_compute_all and sentences >= MANY
        if self._whole:
            self._arrays |= self._graphs.inputs_of_all
            allowed = np.zeros((len(self._pieces), len(self._arrays[names.PIECE_IDS])), np.bool_)
            for row, pieces in zip(allowed, self._pieces, strict=True):
                row[pieces] = True
            self._arrays[names.ALLOWED] = allowed
        else:
            union = unite(self._pieces[:sentences])
            self._arrays |= {**self._graphs.inputs_of(union.piece_ids), names.ALLOWED: union.allowed}
        self._outdated = False
        self._bound_to_union.clear()

    def _inputs(self, sentences: int) -> Iterator[Slice]:
        yield from super()._inputs(sentences)
        yield from self._union_inputs(sentences)

    def _union_inputs(self, sentences: int) -> Iterator[Slice]:
        """The inputs whose arrays change with every union."""
        for name in (names.PIECE_IDS, *self._graphs.row_names):
            yield Slice(name, name, len(self._arrays[name]))
        yield Slice(names.ALLOWED, names.ALLOWED, sentences)
