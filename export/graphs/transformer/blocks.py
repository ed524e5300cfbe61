"""The layers of a Transformer as ONNX nodes, besides attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from lingon.export.graphs.layers import MASKED, Layers, pad_to_blocks, to_numpy
from lingon.training.config import TransformerSettings
from lingon.training.models.layers import Embedding, FeedForward, PostNorm


@dataclass(frozen=True, slots=True)
class Blocks(Layers):
    """Writes layers of a Transformer into a graph, for the settings of a model."""

    settings: TransformerSettings

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """Return sqrt(dim) * piece + position, for ids and positions of the same shape; rotary positions add nothing.

        name: the name of the embedding matrix, which both sides may share
        side: source or target, for the name of learned positions
        """
        graph = self.graph
        table = pad_to_blocks(to_numpy(module.pieces.weight))
        pieces = graph.op("Mul", graph.gather(name, table, ids), graph.scalar(math.sqrt(self.settings.dim)))
        if self.settings.positions in ("rotary", "none"):
            return pieces
        owner = f"{side}." if self.settings.positions == "learned" else ""
        encodings = graph.gather(f"{owner}position_table", to_numpy(module.positions), positions)
        return graph.op("Add", pieces, encodings)

    def norm(self, module: nn.Module, name: str, rows: str) -> str:
        """Return the LayerNorm of rows over the last dimension, or rows if the model has no norm here."""
        if not isinstance(module, nn.LayerNorm):
            return rows
        gain = self.graph.weight(f"{name}.weight", to_numpy(module.weight))
        bias = self.graph.weight(f"{name}.bias", to_numpy(module.bias))
        return self.graph.op("LayerNormalization", rows, gain, bias, axis=-1, epsilon=module.eps)

    def before(self, around: PostNorm, name: str, rows: str) -> str:
        """Return the input of a sublayer; see lingon.training.models.layers.PostNorm and PreNorm."""
        return self.norm(around.norm, f"{name}.norm", rows) if self.settings.norm == "pre" else rows

    def after(self, around: PostNorm, name: str, rows: str, sublayer: str) -> str:
        """Return the output of a residual connection, from its input and the output of the sublayer."""
        total = self.graph.op("Add", rows, sublayer)
        return total if self.settings.norm == "pre" else self.norm(around.norm, f"{name}.norm", total)

    def feed_forward(self, module: FeedForward, name: str, rows: str) -> str:
        """Return the feed-forward layer of rows (n, dim): equation 2 of Vaswani et al. (2017)."""
        inner, outer = f"{name}.inner", f"{name}.outer"
        return self.linear(module.outer, outer, self._activate(self.linear(module.inner, inner, rows), outer))

    def _activate(self, value: str, reader: str) -> str:
        graph = self.graph
        if self.settings.activation == "relu":
            return self.matmul.relu(value, reader)
        if self.settings.activation == "gelu":
            return graph.op("Gelu", value)
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
