"""The layers of a Transformer as ONNX nodes, besides attention."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lingon.export.graphs.layers import MASKED, Layers, pad_to_blocks, to_numpy
from lingon.export.graphs.onnx_writer import CONTRIB
from lingon.training.config import TransformerSettings
from lingon.training.models.attention import SelfAttention
from lingon.training.models.layers import BothNorms, Embedding, FeedForward, PostNorm, PreNorm, Residual


@dataclass(frozen=True, slots=True)
class Blocks(Layers):
    """Writes layers of a Transformer into a graph, for the settings of a model."""

    settings: TransformerSettings

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """Return the embedding of ids at positions of the same shape; see lingon.training.models.layers.Embedding.

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
        """Return the name of the table of positions of a side; "" if positions are not added to pieces."""
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
        """Return the input of a sublayer; see lingon.training.models.layers.Residual."""
        return self.norm(around.norm, f"{name}.norm", rows) if isinstance(around, PreNorm) else rows

    def after(self, around: Residual, name: str, rows: str, sublayer: str) -> str:
        """Return the output of a residual connection, from its input and the output of the sublayer."""
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
        """Return the feed-forward layer of rows (n, dim); see lingon.training.models.layers.FeedForward."""
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
