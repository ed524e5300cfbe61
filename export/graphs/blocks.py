"""The Transformer's blocks as ONNX nodes, on two-dimensional rows (rows, dim) wherever a product stands.

Every product of a row with a weight goes over rows alone (lingon.export.graphs.matmul), so that a row's result does not
depend on how many others there are; attention is written out as MatMul, Softmax, MatMul, which measured faster than
the fused operators for few queries, and shares one copy of keys and values between the beams of a sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from lingon.export.graphs.matmul import MatMul
from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder
from lingon.training.config import ModelSettings
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.layers import Embedding, FeedForward, PostNorm

MASKED = {"float32": -3e38, "float16": -6e4}  # exp of it is exactly 0, and it is finite


BLOCK = 64  # pieces of the vocabulary that are looked through together, see lingon.export.graphs.output_layer


def pad_to_blocks(values: np.ndarray, fill: float = 0) -> np.ndarray:
    """Values (vocab, ...) with rows of `fill` after them, up to a multiple of BLOCK."""
    missing = -len(values) % BLOCK
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The values of a parameter."""
    return tensor.detach().float().cpu().numpy()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Writes blocks into a graph, for a model's settings."""

    graph: GraphBuilder
    settings: ModelSettings
    matmul: MatMul

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """sqrt(dim) * piece + position, for ids and positions of one shape.

        name: of the matrix of pieces, which both sides may share; side: whose positions they are, if learned
        """
        graph = self.graph
        table = pad_to_blocks(to_numpy(module.pieces.weight))
        pieces = graph.op("Mul", graph.gather(name, table, ids), graph.scalar(math.sqrt(self.settings.dim)))
        owner = f"{side}." if self.settings.positions == "learned" else ""
        places = graph.gather(f"{owner}position_table", to_numpy(module.positions), positions)
        return graph.op("Add", pieces, places)

    def linear(self, module: nn.Linear, name: str, rows: str, scale: float = 1.0) -> str:
        """rows (n, in) times the transposed weight, plus bias: (n, out). scale is folded into both."""
        weight, bias = (to_numpy(values) * np.float32(scale) for values in (module.weight, module.bias))
        return self.matmul.linear(name, rows, weight, bias)

    def norm(self, module: nn.Module, name: str, rows: str) -> str:
        """LayerNorm over the last dimension; nothing where the model has none."""
        if not isinstance(module, nn.LayerNorm):
            return rows
        gain = self.graph.weight(f"{name}.weight", to_numpy(module.weight))
        bias = self.graph.weight(f"{name}.bias", to_numpy(module.bias))
        return self.graph.op("LayerNormalization", rows, gain, bias, axis=-1, epsilon=module.eps)

    def before(self, around: PostNorm, name: str, rows: str) -> str:
        """What a sublayer reads: see lingon.training.models.layers.PostNorm and PreNorm."""
        return self.norm(around.norm, f"{name}.norm", rows) if self.settings.norm == "pre" else rows

    def after(self, around: PostNorm, name: str, rows: str, sublayer: str) -> str:
        """What the next sublayer gets."""
        total = self.graph.op("Add", rows, sublayer)
        return total if self.settings.norm == "pre" else self.norm(around.norm, f"{name}.norm", total)

    def feed_forward(self, module: FeedForward, name: str, rows: str) -> str:
        """Equation 2 on rows."""
        inner, outer = f"{name}.inner", f"{name}.outer"
        return self.linear(module.outer, outer, self._activate(self.linear(module.inner, inner, rows), outer))

    def _activate(self, value: str, reader: str) -> str:
        graph = self.graph
        if self.settings.activation == "relu":
            return self.matmul.relu(value, reader)
        if self.settings.activation == "gelu":
            return graph.op("Gelu", value)
        return graph.op("Mul", value, graph.op("Sigmoid", value))

    def split_heads(self, rows: str, outer: str) -> str:
        """Rows (batch * length, dim) as (batch, heads, length, head_dim); outer: the int64 vector [batch]."""
        return self.graph.op("Transpose", self._by_head(rows, outer), perm=[0, 2, 1, 3])

    def split_heads_transposed(self, rows: str, outer: str) -> str:
        """Rows (batch * length, dim) as (batch, heads, head_dim, length): ready for the product with queries."""
        return self.graph.op("Transpose", self._by_head(rows, outer), perm=[0, 2, 3, 1])

    def _by_head(self, rows: str, outer: str) -> str:
        sizes = self.graph.int64s(-1, self.settings.heads, self.settings.head_dim)
        return self.graph.op("Reshape", rows, self.graph.op("Concat", outer, sizes, axis=0))

    def split(self, rows: str, parts: int) -> list[str]:
        """Rows (n, parts * dim) as `parts` of (n, dim)."""
        names = [f"{rows}.part.{part}" for part in range(parts)]
        return self.graph.ops("Split", rows, outputs=names, axis=1, num_outputs=parts)

    def attention_bias(self, visible: str) -> str:
        """What `attend` adds to scores: 0 where visible (bool, any shape), a number beyond reach elsewhere."""
        graph = self.graph
        return graph.op("Where", visible, graph.scalar(0), graph.scalar(MASKED[graph.dtype.name]))

    def attend(self, query: str, key: str, value: str, hidden: str) -> tuple[str, str]:
        """Equation 1; the scale is in the queries already. Returns rows (batch * length, dim) and the weights.

        query: (batch, heads, length, head_dim), key: (batch, heads, head_dim, source_length),
        value: (batch, heads, source_length, head_dim), hidden: from `hide`, to be spread over (batch, heads, length,
        source_length); weights have that shape
        """
        graph = self.graph
        # Beside the mask nothing stays of a score in fp32, and little in fp16: the weight is exactly 0 in both.
        scores = graph.op("Add", graph.op("MatMul", query, key), hidden)
        weights = graph.op("Softmax", scores, axis=-1)
        mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return graph.op("Reshape", mixed, graph.int64s(-1, self.settings.dim)), weights

    def self_attention(self, module: SelfAttention, name: str, rows: str, outer: str, hidden: str) -> tuple[str, str]:
        """A whole sequence over itself; rows (batch * length, dim). Also returns the weights."""
        packed = self.linear(module.qkv, f"{name}.qkv", rows)
        query, key, value = self.split(packed, 3)
        query = self.graph.op("Mul", self.split_heads(query, outer), self.graph.scalar(self.settings.head_dim**-0.5))
        mixed, weights = self.attend(
            query, self.split_heads_transposed(key, outer), self.split_heads(value, outer), hidden
        )
        return self.linear(module.output, f"{name}.output", mixed), weights

    def self_attention_step(
        self,
        module: SelfAttention,
        name: str,
        rows: str,
        past: tuple[str, str],
        lengths: tuple[str, str],
        to: tuple[str, str],
    ) -> str:
        """One position of each row over its own past, which grows in place.

        past: names of keys and values (rows, heads, capacity, head_dim), to: of the same buffers after the step
        lengths: tokens in each row's past (rows) as int32, and the longest of them plus one, a scalar
        """
        graph, settings = self.graph, self.settings
        packed = graph.op("Unsqueeze", self.linear(module.qkv, f"{name}.qkv", rows), graph.int64s(1))
        mixed = graph.ops(
            "GroupQueryAttention",
            *(packed, "", "", *past, *lengths),
            outputs=[f"{name}.mixed", *to],
            domain=CONTRIB,
            num_heads=settings.heads,
            kv_num_heads=settings.heads,
            scale=settings.head_dim**-0.5,
        )[0]
        flat = graph.op("Reshape", mixed, graph.int64s(-1, settings.dim))
        return self.linear(module.output, f"{name}.output", flat)

    def cross_attention(
        self, module: CrossAttention, name: str, rows: str, memory: tuple[str, str], outer: str, hidden: str
    ) -> tuple[str, str]:
        """Rows (batch * length, dim) over the memory of their sentence; also returns the weights.

        In a step the rows of a sentence are its beams, side by side, so that all of them read one memory.
        """
        query = self.split_heads(self.linear(module.query, f"{name}.query", rows, self.settings.head_dim**-0.5), outer)
        mixed, weights = self.attend(query, *memory, hidden)
        return self.linear(module.output, f"{name}.output", mixed), weights
