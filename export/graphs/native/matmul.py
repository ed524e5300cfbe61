"""Matrix products by our own operators: of 8-bit integers, with a scale for every row, or of floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lingon.export.graphs.matmul import FloatMatMul, MatMul
from lingon.export.graphs.native.fusion import fuse
from lingon.export.graphs.onnx_writer import INT8_FILE, KERNELS, GraphBuilder, WeightFiles
from lingon.export.graphs.quantisation import quantise_columns

PANEL, GROUP = 16, 8  # output columns, and input columns, that a product reads together; as in kernels/kernels.h


WITHOUT = {"norm": 0, "epsilon": 0.0, "relu": 0}
"""The attributes of a product alone; lingon.export.graphs.native.fusion changes them."""


@dataclass(frozen=True, slots=True)
class NativeFloatMatMul(FloatMatMul):
    """See lingon.export.graphs.matmul.MatMul. Weights that float16 holds exactly are read as such."""

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        inputs = rows, self.graph.table(shared or f"{name}.weight", weight), self.graph.weight(f"{name}.bias", bias)
        found = self.graph.op("FloatLinear", *inputs, domain=KERNELS, named=named or None, **WITHOUT)
        return self.graph.describe(found, len(weight))


@dataclass(frozen=True, slots=True)
class NativeInt8MatMul:
    """See lingon.export.graphs.matmul.MatMul. The weights are those of Int8MatMul, in the same file."""

    graph: GraphBuilder

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        inputs = rows, *self._stored(name, weight, bias)
        found = self.graph.op("Linear", *inputs, domain=KERNELS, named=named or None, **WITHOUT)
        return self.graph.describe(found, len(weight))

    def relu(self, rows: str, reader: str) -> str:
        """See MatMul; lingon.export.graphs.native.fusion makes it part of the product before it."""
        return self.graph.op("Relu", rows)

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """See MatMul: panels of these columns, the sums of their weights, their scales and biases."""
        outputs = [f"{name}.pieces.{part}" for part in ("panels", "sums", "scale", "bias")]
        return self.graph.ops(
            "GatherColumns", pieces, *self._stored(name, weight, bias), outputs=outputs, domain=KERNELS
        )

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """See MatMul."""
        number = np.dtype(np.float32)
        panels: list[int | str] = ["panels", -(-size // GROUP) * GROUP * PANEL]
        vectors: list[tuple[np.dtype[Any], list[int | str]]] = [
            (each, ["union"]) for each in (np.dtype(np.int32), number, number)
        ]
        return [(np.dtype(np.int8), panels), *vectors]

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """See MatMul."""
        inputs, without = (rows, *chosen), {"norm": 0, "epsilon": 0.0}
        return self.graph.op("PackedLinear", *inputs, domain=KERNELS, named=named or None, **without)

    def _stored(self, name: str, weight: np.ndarray, bias: np.ndarray) -> tuple[str, str, str]:
        columns, scale = quantise_columns(weight)
        return (
            self.graph.initializer(f"{name}.columns", columns.T),
            self.graph.initializer(f"{name}.scale", scale),
            self.graph.weight(f"{name}.bias", bias),
        )


def native_products(name: str, weights: WeightFiles, *, quantised: bool) -> tuple[GraphBuilder, MatMul]:
    """Return the builder of a graph, and what writes its products; quantised: whether they are in 8-bit integers."""
    graph = GraphBuilder(name, weights, np.float32, file=INT8_FILE if quantised else None, rewrite=fuse)
    return graph, NativeInt8MatMul(graph) if quantised else NativeFloatMatMul(graph)
