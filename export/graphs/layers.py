"""The layers of all systems as ONNX nodes, besides attention: products with trained weights, tables, norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from torch import Tensor, nn

from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder
from lingon.export.graphs.quantisation import InputRange, quantise_columns
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import SelfAttention
from lingon.training.models.interface import AnyModel
from lingon.training.models.layers import BothNorms, Embedding, FeedForward, PostNorm, PreNorm, Residual, SandwichNorms

# Matrix products with trained weights: in floating point or in 8-bit integers.
# The result of a row never depends on the other rows: a Gemm computes rows independently, and the scale of 8-bit
# activations is a constant of the graph.


class MatMul(Protocol):
    """A writer of matrix products into a graph; `name` is the name of the module in the model."""

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
        """Return the inputs of `linear_of_pieces` for the rows of a weight at pieces, int64 (union). See `linear`."""

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

    ranges: the input range of each product. See lingon.export.graphs.quantisation.Calibration
    """

    graph: GraphBuilder
    ranges: Mapping[str, InputRange]

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
        """See MatMul. Quantisation to a range that begins with 0 clips negative values already."""
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


# What the graphs of all systems use of a model, and products with trained weights as ONNX nodes.
# These products take two-dimensional rows (rows, dim) (MatMul), so that the result of a row does not depend on the
# number of rows.

MASKED = {"float32": -3e38, "float16": -6e4}  # added to a score: finite, and its exp is exactly 0
BLOCK = 64  # pieces of the vocabulary per block of the top-k search in lingon.export.graphs.output_layer


def pad_to_blocks(values: np.ndarray, fill: float = 0) -> np.ndarray:
    """Pad values (vocab, ...) with rows of `fill` to a multiple of BLOCK rows."""
    missing = -len(values) % BLOCK
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return the values of a parameter as float32."""
    return tensor.detach().float().cpu().numpy()


def bias_of(module: nn.Linear) -> np.ndarray:
    """Return the bias of a product (out), zeros if it has none."""
    trained = cast("Tensor | None", module.bias)
    return np.zeros(module.out_features, np.float32) if trained is None else to_numpy(trained)


def embedding_of(model: AnyModel, side: str) -> nn.Embedding:
    """Return the matrix of the pieces of a side, source or target."""
    found = model.get_submodule(f"{side}_embedding.pieces")
    assert isinstance(found, nn.Embedding)
    return found


def table_name(model: AnyModel, side: str) -> str:
    """Return the name of the matrix of the pieces of a side, which both sides may share."""
    tied = embedding_of(model, "source").weight is embedding_of(model, "target").weight
    return "pieces" if tied else f"{side}_pieces"


def softcap(graph: GraphBuilder, values: str, bound: float) -> str:
    """Return bound * tanh(values / bound), of any shape. See lingon.training.models.attention.softcap."""
    return graph.op("Mul", graph.op("Tanh", graph.op("Mul", values, graph.scalar(1 / bound))), graph.scalar(bound))


@dataclass(frozen=True, slots=True)
class Layers:
    """A writer of products with trained weights into a graph."""

    graph: GraphBuilder
    matmul: MatMul

    def linear(self, module: nn.Linear, name: str, rows: str, scale: float = 1.0) -> str:
        """Return scale * (rows W^T + b), (n, out), for rows (n, in). The scale is folded into weight and bias."""
        weight = to_numpy(module.weight) * np.float32(scale)
        return self.matmul.linear(name, rows, weight, bias_of(module) * np.float32(scale))


# The layers of a Transformer as ONNX nodes, besides attention.


@dataclass(frozen=True, slots=True)
class Blocks(Layers):
    """A writer of layers of a Transformer into a graph, for the settings of a model."""

    settings: TransformerSettings

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """Return the embedding of ids at positions of the same shape. See lingon.training.models.layers.Embedding.

        name: the name of the embedding matrix, which both sides may share
        side: source or target, for the names of learned positions and of a norm
        """
        graph = self.graph
        found = graph.gather(name, pad_to_blocks(to_numpy(module.pieces.weight)), ids)
        if module.scale != 1:
            found = graph.op("Mul", found, graph.scalar(module.scale))
        if table := self.position_table(side):
            found = graph.op("Add", found, graph.gather(table, to_numpy(module.positions), positions))
        return self.norm(module.norm, f"{side}_embedding.norm", found)

    def position_table(self, side: str) -> str:
        """Return the name of the table of positions of a side, or "" if positions are not added to pieces."""
        if self.settings.positions in ("rotary", "relative", "none"):
            return ""
        return f"{side}.position_table" if self.settings.positions == "learned" else "position_table"

    def norm(self, module: nn.Module, name: str, rows: str) -> str:
        """Return the norm of rows over the last dimension, or rows if the model has no norm here."""
        if isinstance(module, nn.Identity):
            return rows
        assert isinstance(module, nn.LayerNorm | nn.RMSNorm), f"{name} is a {type(module).__name__}"
        gain = self.graph.weight(f"{name}.weight", to_numpy(module.weight))
        if isinstance(module, nn.RMSNorm):  # ONNX Runtime has its kernel in the default domain, at any opset
            return self.graph.op("SimplifiedLayerNormalization", rows, gain, axis=-1, epsilon=module.eps)
        bias = self.graph.weight(f"{name}.bias", to_numpy(module.bias))
        return self.graph.op("LayerNormalization", rows, gain, bias, axis=-1, epsilon=module.eps)

    def before(self, around: Residual, name: str, rows: str) -> str:
        """Return the input of a sublayer. See lingon.training.models.layers.Residual."""
        return self.norm(around.norm, f"{name}.norm", rows) if isinstance(around, PreNorm) else rows

    def after(self, around: Residual, name: str, rows: str, sublayer: str) -> str:
        """Return the output of a residual connection, from its input and the output of the sublayer."""
        if isinstance(around, SandwichNorms):
            sublayer = self.norm(around.norm_after, f"{name}.norm_after", sublayer)
        total = self.graph.op("Add", rows, sublayer)
        if isinstance(around, BothNorms):
            return self.norm(around.norm_after, f"{name}.norm_after", total)
        return self.norm(around.norm, f"{name}.norm", total) if isinstance(around, PostNorm) else total

    def packed(self, module: SelfAttention, name: str, rows: str) -> str:
        """Return queries, keys and values (n, 3 * attention_dim) of rows (n, dim); name: of the attention."""
        qkv, name = module.qkv, f"{name}.qkv"
        if isinstance(qkv, nn.Linear):
            return self.linear(qkv, name, rows)
        query = self.linear(qkv.query, f"{name}.query", self.norm(qkv.norm, f"{name}.norm", rows))
        return self.graph.op("Concat", query, self.linear(qkv.key_value, f"{name}.key_value", rows), axis=1)

    def feed_forward(self, module: FeedForward, name: str, rows: str) -> str:
        """Return the feed-forward layer of rows (n, dim). See lingon.training.models.layers.FeedForward."""
        inner, outer = self.linear(module.inner, f"{name}.inner", rows), f"{name}.outer"
        if module.gated:
            gate, value = self.split(inner, 2)
            activated = self.graph.op("Mul", self._activate(gate), value)
        elif isinstance(module.activation, nn.ReLU):
            activated = self.matmul.relu(inner, outer)
        else:
            activated = self._activate(inner)
        return self.linear(module.outer, outer, activated)

    def _activate(self, value: str) -> str:
        graph = self.graph
        match self.settings.activation:
            case "relu":
                return graph.op("Relu", value)
            case "gelu":
                return graph.op("Gelu", value)
            case "gelu-tanh":
                return graph.op("Gelu", value, approximate="tanh")
            case "quick-gelu":
                return graph.op("QuickGelu", value, domain=CONTRIB, alpha=1.702)
            case "silu":
                return graph.op("Mul", value, graph.op("Sigmoid", value))

    def split_heads(self, rows: str, batch: str) -> str:
        """Reshape rows (batch * length, dim) to (batch, heads, length, head_dim); batch: int64 [batch]."""
        return self.graph.op("Transpose", self._by_head(rows, batch), perm=[0, 2, 1, 3])

    def split_heads_transposed(self, rows: str, batch: str) -> str:
        """Reshape rows (batch * length, dim) to (batch, heads, head_dim, length), the layout of keys."""
        return self.graph.op("Transpose", self._by_head(rows, batch), perm=[0, 2, 3, 1])

    def _by_head(self, rows: str, batch: str) -> str:
        sizes = self.graph.int64s(-1, self.settings.heads, self.settings.head_dim)
        return self.graph.op("Reshape", rows, self.graph.op("Concat", batch, sizes, axis=0))

    def split(self, rows: str, parts: int) -> list[str]:
        """Split rows (n, parts * dim) into `parts` values (n, dim)."""
        names = [f"{rows}.part.{part}" for part in range(parts)]
        return self.graph.ops("Split", rows, outputs=names, axis=1, num_outputs=parts)

    def attention_bias(self, visible: str) -> str:
        """Return what attention adds to scores: 0 if visible (bool, any shape) is True, else a huge negative number."""
        graph = self.graph
        return graph.op("Where", visible, graph.scalar(0), graph.scalar(MASKED[graph.dtype.name]))
