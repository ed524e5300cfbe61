"""What decoding computes: the multiply-adds of a model, counted in its graphs, and the tokens and rows of a run."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from lingon.bench.engines.base import Cell
from lingon.bundle import names
from lingon.bundle.manifest import State
from lingon.bundle.store import Bundle
from lingon.errors import BundleError


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """Multiply-adds of a model.

    encoder: for one source token, with the cross-attention keys and values
    decoder: for one row of a step, without output layer and attention
    dim: for one row and one piece in the output layer
    vocab: pieces of the whole output layer
    past_position: for one row and one position of its past, in the self-attention of all layers
    source_position: for one row and one position of its source, in the cross-attention of all layers
    """

    encoder: int
    decoder: int
    dim: int
    vocab: int
    past_position: int
    source_position: int


@dataclass(frozen=True, slots=True)
class DecodingCounts:
    """The amount of decoding in one run.

    rows: rows of all steps together
    steps: the smallest number of steps that batches of the cell's size need
    past_positions, source_positions: positions that all rows attend to, in all steps
    pieces: pieces that a row chooses from
    """

    source_tokens: int
    encoder_runs: int
    rows: int
    steps: int
    past_positions: int
    source_positions: int
    pieces: int


def count_decoding(
    sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], cell: Cell, pieces: int
) -> DecodingCounts:
    """Count the translation of sources into outputs; the end token takes a step too, if it can be chosen."""
    ends = 0 if cell.is_forced else 1
    lengths = [len(output) + ends for output in outputs]
    pairs = list(zip(sources, lengths, strict=True))
    return DecodingCounts(
        source_tokens=sum(len(source) for source in sources),
        encoder_runs=math.ceil(len(sources) / cell.batch),
        rows=cell.beam_size * sum(lengths),
        steps=max(max(lengths, default=0), math.ceil(sum(lengths) / cell.batch)),
        past_positions=cell.beam_size * sum(length * (length + 1) // 2 for length in lengths),
        source_positions=cell.beam_size * sum(len(source) * length for source, length in pairs),
        pieces=pieces,
    )


PRODUCTS = {"Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
RECURRENT = {"GRU", "LSTM"}
TRANSPARENT = {"Cast", "Identity", "Transpose", "DequantizeLinear"}
"""Operators that do not change the number of multiply-adds with a weight."""


def multiply_adds_of(bundle: Bundle) -> MultiplyAdds:
    """The multiply-adds of a bundle's model, from its fp32 graphs; other precisions compute the same products."""
    graphs, _ = bundle.graphs("fp32", names.ENCODER, names.DECODER)
    encoder, decoder = (_GraphProducts(onnx.load_from_string(graphs[name])) for name in (names.ENCODER, names.DECODER))
    output = decoder.matrix_before(names.LOGITS)
    if output is None:
        raise BundleError(f"{bundle.folder}/fp32/{names.DECODER}: no product with a weight leads to {names.LOGITS}")
    dim = math.prod(output) // max(output)
    return MultiplyAdds(
        encoder=encoder.total([state.name for state in bundle.manifest.states_of("memory")]),
        decoder=decoder.total([output.name for output in decoder.outputs]) - math.prod(output),
        dim=dim,
        vocab=bundle.manifest.target_vocab,
        past_position=_per_position(bundle.manifest.states_of("cache")),
        source_position=_per_position(bundle.manifest.states_of("memory")),
    )


def mean_shortlist_size(bundle: Bundle, sources: Iterable[Sequence[int]]) -> int:
    """The mean number of pieces on the shortlist of a source; the whole vocabulary if there is no shortlist."""
    if bundle.manifest.shortlist is None:
        return bundle.manifest.target_vocab
    lists = np.load(io.BytesIO(bundle.read(names.SHORTLIST)))
    always, offsets, pieces = (lists[name] for name in ("always", "offsets", "pieces"))
    sizes = [
        len(np.unique(np.concatenate([always, *(pieces[offsets[piece] : offsets[piece + 1]] for piece in source)])))
        for source in sources
    ]
    return round(sum(sizes) / len(sizes))


class _GraphProducts:
    """The products of a graph with constant matrices."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._products = [node for node in graph.node if node.op_type in PRODUCTS]
        self._recurrent = [node for node in graph.node if node.op_type in RECURRENT]
        self.outputs = list(graph.output)

    def total(self, outputs: Sequence[str]) -> int:
        """Multiply-adds of one row in all recurrent layers, and in the products that lead to these outputs.

        Other products are those that make the first state of a decoder, once a sentence: they count as free.
        """
        needed = self._before(outputs)
        products = (self._matrix(node) for node in self._products if needed.intersection(node.output))
        layers = (self._dims[name][1:] for node in self._recurrent for name in node.input[1:3])
        return sum(math.prod(dims) for dims in (*products, *layers) if dims)

    def _before(self, values: Sequence[str]) -> set[str]:
        """The values that these are computed from, and these."""
        found, waiting = set[str](), list(values)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._producers[name].input if name in self._producers else ()
        return found

    def matrix_before(self, value: str) -> tuple[int, ...] | None:
        """The shape of the matrix of the product that is nearest before a value (breadth-first)."""
        queue = [value]
        for name in queue:
            node = self._producers.get(name)
            if node is not None:
                if node.op_type in PRODUCTS and (found := self._matrix(node)):
                    return found
                queue += [each for each in node.input if each not in queue]
        return None

    def _matrix(self, node: onnx.NodeProto) -> tuple[int, ...] | None:
        """The shape of the constant matrix in a product; None if there is none."""
        found = (self._constant(name) for name in node.input[:2])
        return next((dims for dims in found if dims is not None and len(dims) == 2), None)

    def _constant(self, name: str) -> tuple[int, ...] | None:
        while name not in self._dims:
            node = self._producers.get(name)
            if node is None or node.op_type not in TRANSPARENT:
                return None
            name = node.input[0]
        return self._dims[name]


def _per_position(states: Iterable[State]) -> int:
    """Multiply-adds of one row with one position of all these states."""
    return sum(math.prod(size for size in state.shape if isinstance(size, int)) for state in states)
