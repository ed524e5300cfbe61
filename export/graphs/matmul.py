"""Matrix products with trained weights: in floating point or in 8-bit integers.

The result of a row never depends on the other rows: a Gemm computes rows independently, and the scale of 8-bit
activations is a constant of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder
from lingon.export.graphs.quantisation import Range, quantise_columns


class MatMul(Protocol):
    """Writes matrix products into a graph; `name` is the name of the module in the model."""

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """Return rows W^T + b (n, out), for rows (n, in), weight (out, in) and bias (out).

        shared: the name of the weight if another layer uses it too
        named: the name of the result
        """

    def relu(self, rows: str, reader: str) -> str:
        """Return max(0, rows), which only the product `reader` reads."""

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """Return the inputs of `linear_of_pieces` for the rows of a weight at pieces, int64 (union); see `linear`."""

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """Return types and shapes of the results of `gather_pieces`, for a weight (out, size)."""

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """Return the product of rows (n, in) with the weight of the chosen pieces, plus their bias: (n, union)."""


@dataclass(frozen=True, slots=True)
class FloatMatMul:
    """Gemm in the type of the arithmetic of the graph."""

    graph: GraphBuilder

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        stored = self.graph.weight(shared or f"{name}.weight", weight)
        return self.linear_of_pieces(name, rows, [stored, self.graph.weight(f"{name}.bias", bias)], named=named)

    def relu(self, rows: str, reader: str) -> str:
        """See MatMul."""
        return self.graph.op("Relu", rows)

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """See MatMul: weight (union, in), bias (union)."""
        return [
            self.graph.gather(shared or f"{name}.weight", weight, pieces),
            self.graph.gather(f"{name}.bias", bias, pieces),
        ]

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """See MatMul."""
        return [(self.graph.dtype, ["union", size]), (self.graph.dtype, ["union"])]

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """See MatMul."""
        return self.graph.op("Gemm", rows, *chosen, named=named or None, transB=1)


@dataclass(frozen=True, slots=True)
class Int8MatMul:
    """Products of 8-bit integers with 32-bit sums: one fixed scale for activations, a scale for every output column.

    ranges: the input range of each product; see lingon.export.graphs.quantisation.smooth_and_calibrate
    """

    graph: GraphBuilder
    ranges: Mapping[str, Range]

    def linear(
        self, name: str, rows: str, weight: np.ndarray, bias: np.ndarray, *, shared: str = "", named: str = ""
    ) -> str:
        """See MatMul."""
        columns, scale = quantise_columns(weight)
        chosen = [
            self.graph.initializer(f"{name}.columns", columns.T),
            self.graph.initializer(f"{name}.scale", scale),
            self.graph.weight(f"{name}.bias", bias),
        ]
        return self.linear_of_pieces(name, rows, chosen, named=named)

    def relu(self, rows: str, reader: str) -> str:
        """See MatMul; quantisation to a range that begins with 0 clips negative values already."""
        return rows if self.ranges[reader].zero_point == 0 else self.graph.op("Relu", rows)

    def gather_pieces(self, name: str, weight: np.ndarray, bias: np.ndarray, pieces: str, *, shared: str) -> list[str]:
        """See MatMul: columns (in, union), scale (union), bias (union)."""
        columns, scale = quantise_columns(weight)
        # Gathering rows is faster than gathering columns. The first Transpose is folded when the graph is loaded.
        by_piece = self.graph.op("Transpose", self.graph.initializer(f"{name}.columns", columns.T), perm=[1, 0])
        rows = self.graph.op("Gather", by_piece, pieces)
        return [
            self.graph.op("Transpose", rows, perm=[1, 0]),
            self.graph.op("Gather", self.graph.initializer(f"{name}.scale", scale), pieces),
            self.graph.gather(f"{name}.bias", bias, pieces),
        ]

    def piece_tensors(self, size: int) -> list[tuple[np.dtype[Any], list[int | str]]]:
        """See MatMul."""
        wide = np.dtype(np.float32)
        return [(np.dtype(np.int8), [size, "union"]), (wide, ["union"]), (wide, ["union"])]

    def linear_of_pieces(self, name: str, rows: str, chosen: list[str], *, named: str = "") -> str:
        """See MatMul."""
        graph, (columns, scale, bias) = self.graph, chosen
        step = graph.constant(np.array(self.ranges[name].step, np.float32))
        zero = graph.constant(np.array(self.ranges[name].zero_point, np.uint8))
        quantised = graph.op("QuantizeLinear", rows, step, zero)
        inputs = (quantised, columns, step, scale, zero, "", bias)
        return graph.op("MatMulIntegerToFloat", *inputs, domain=CONTRIB, named=named or None)
