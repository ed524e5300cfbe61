"""How many multiply-adds a bundle's model takes, read from its own graphs."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx

from lingon import bundle as names
from lingon.bench.decode.roofline import Sizes
from lingon.bundle import Bundle, State
from lingon.errors import BundleError

PRODUCTS = {"Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
PASSING = {"Cast", "Identity", "Transpose", "DequantizeLinear"}
"""Operators after which a weight is still the same weight."""


def sizes_of(bundle: Bundle) -> Sizes:
    """The sizes of a bundle's model, from its fp32 graphs; other precisions compute the same products."""
    graphs, _ = bundle.graphs("fp32", names.ENCODER, names.DECODER)
    encoder, decoder = (_Weights(onnx.load_from_string(graphs[name])) for name in (names.ENCODER, names.DECODER))
    output = decoder.before(names.LOGITS)
    if output is None:
        raise BundleError(f"{bundle.folder}/fp32/{names.DECODER}: no product with a weight leads to {names.LOGITS}")
    dim = math.prod(output) // max(output)
    return Sizes(
        encoder=encoder.total(),
        decoder=decoder.total() - math.prod(output),
        dim=dim,
        vocab=bundle.manifest.target_vocab,
        own=_positions(bundle.manifest.states_of("cache")),
        cross=_positions(bundle.manifest.states_of("memory")),
    )


def shortlist_size(bundle: Bundle, sources: Iterable[Sequence[int]]) -> int:
    """Pieces that a sentence may say, on the average of sources; the whole vocabulary where there is no shortlist."""
    if bundle.manifest.shortlist is None:
        return bundle.manifest.target_vocab
    lists = np.load(io.BytesIO(bundle.read(names.SHORTLIST)))
    always, offsets, pieces = (lists[name] for name in ("always", "offsets", "pieces"))
    sizes = [
        len(np.unique(np.concatenate([always, *(pieces[offsets[piece] : offsets[piece + 1]] for piece in source)])))
        for source in sources
    ]
    return round(sum(sizes) / len(sizes))


class _Weights:
    """The products of a graph with a constant matrix."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._makers = {output: node for node in graph.node for output in node.output}
        self._products = [node for node in graph.node if node.op_type in PRODUCTS]

    def total(self) -> int:
        """Multiply-adds of one row through all of them."""
        return sum(math.prod(dims) for node in self._products if (dims := self._matrix(node)))

    def before(self, value: str) -> tuple[int, ...] | None:
        """The matrix of the product that leads to a value by the shortest way."""
        waiting = [value]
        for name in waiting:
            node = self._makers.get(name)
            if node is not None:
                if node.op_type in PRODUCTS and (found := self._matrix(node)):
                    return found
                waiting += [each for each in node.input if each not in waiting]
        return None

    def _matrix(self, node: onnx.NodeProto) -> tuple[int, ...] | None:
        """The shape of the constant matrix that a product multiplies with."""
        found = (self._constant(name) for name in node.input[:2])
        return next((dims for dims in found if dims is not None and len(dims) == 2), None)

    def _constant(self, name: str) -> tuple[int, ...] | None:
        while name not in self._dims:
            node = self._makers.get(name)
            if node is None or node.op_type not in PASSING:
                return None
            name = node.input[0]
        return self._dims[name]


def _positions(states: Iterable[State]) -> int:
    """Multiply-adds of a row with one position of all these states."""
    return sum(math.prod(size for size in state.shape if isinstance(size, int)) for state in states)
