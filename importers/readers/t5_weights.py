"""The tensors of T5, by the names of Lingon.

Its names: encoder.block.0.layer.0.SelfAttention.q.weight, decoder.block.0.layer.2.DenseReluDense.wo.weight and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lingon.importers.pieces import Numbering
from lingon.importers.tensors import Tensors
from lingon.training.config import TransformerSettings

TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
HEAD = "lm_head.weight"
BIAS = "relative_attention_bias.weight"
UNUSED = f"decoder.block.0.layer.1.EncDecAttention.{BIAS}"  # which the first published files have


@dataclass(frozen=True, slots=True)
class T5Reader:
    """Takes the tensors of a model.

    T5 computes softmax(q k) without the division by sqrt(d_k), and with a tied output it divides what the output layer
    reads by sqrt(dim). The weights here have these factors, so that the layers of Lingon compute the same.

    rows: the number of rows of the table of pieces
    """

    tensors: Tensors
    settings: TransformerSettings
    numbering: Numbering
    rows: int

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        settings = self.settings
        yield from self._tables()
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers)):
            for number in range(layers):
                yield from self._layer(side, number)
            gain = self.tensors.take(f"{side}.final_layer_norm.weight", (settings.dim,))
            scaled = side == "decoder" and settings.tie == "all"
            yield f"{side}_norm.weight", gain * settings.dim**-0.5 if scaled else gain
            shape = (settings.relative_buckets, settings.heads)
            yield f"{side}_bias.weight", self.tensors.take(f"{side}.block.0.layer.0.SelfAttention.{BIAS}", shape)
        if UNUSED in self.tensors:
            self.tensors.take(UNUSED, (settings.relative_buckets, settings.heads))
            self.tensors.notes.append(f"{UNUSED} has no use in this form of model")
        self.tensors.check_all_taken()

    def _tables(self) -> Iterator[tuple[str, Tensor]]:
        shape = (self.rows, self.settings.dim)
        name, *copies = [name for name in TABLES if name in self.tensors] or [TABLES[0]]
        table = self.tensors.take(name, shape)
        ordered = table[list(self.numbering.rows)]
        yield "source_embedding.pieces.weight", ordered
        for copy in copies:
            self._check_same(copy, table)
        if self.settings.tie == "all":
            self._check_same(HEAD, table)
            return
        yield "target_embedding.pieces.weight", ordered
        yield "output.weight", self.tensors.take(HEAD, shape)[list(self.numbering.rows)]

    def _check_same(self, name: str, table: Tensor) -> None:
        """Leave a copy of the table."""
        if name in self.tensors and not torch.equal(self.tensors.take(name, table.shape), table):
            self.tensors.notes.append(f"{name} differs from the table that it is tied to, and is not used")

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours = f"{side}.block.{number}.layer", f"{side}.{number}"
        query, key, value, output = self._attention(f"{theirs}.0.SelfAttention")
        yield f"{ours}.attention.qkv.weight", torch.cat([query, key, value])
        yield f"{ours}.attention.output.weight", output
        yield f"{ours}.around_attention.norm.weight", self._gain(f"{theirs}.0")
        if side == "decoder":
            query, key, value, output = self._attention(f"{theirs}.1.EncDecAttention")
            yield f"{ours}.cross.query.weight", query
            yield f"{ours}.cross.key_value.weight", torch.cat([key, value])
            yield f"{ours}.cross.output.weight", output
            yield f"{ours}.around_cross.norm.weight", self._gain(f"{theirs}.1")
        yield from self._feed_forward(ours, f"{theirs}.{2 if side == 'decoder' else 1}")

    def _attention(self, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the matrices of queries, keys, values and of the output."""
        width, dim = self.settings.attention_dim, self.settings.dim
        query, key, value = (self.tensors.take(f"{name}.{part}.weight", (width, dim)) for part in "qkv")
        return query * self.settings.head_dim**0.5, key, value, self.tensors.take(f"{name}.o.weight", (dim, width))

    def _feed_forward(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        dim, ffn = self.settings.dim, self.settings.ffn
        names = ("wi_0", "wi_1") if self.settings.gated else ("wi",)
        inner = [self.tensors.take(f"{theirs}.DenseReluDense.{name}.weight", (ffn, dim)) for name in names]
        yield f"{ours}.feed_forward.inner.weight", torch.cat(inner)
        outer = self.tensors.take(f"{theirs}.DenseReluDense.wo.weight", (dim, ffn))
        yield f"{ours}.feed_forward.outer.weight", outer
        yield f"{ours}.around_feed_forward.norm.weight", self._gain(theirs)

    def _gain(self, name: str) -> Tensor:
        return self.tensors.take(f"{name}.layer_norm.weight", (self.settings.dim,))
