"""The tensors of models that are built as T5 in Transformers, by the names of Lingon.

Their names: encoder.block.N.layer.0.SelfAttention.q.weight and so on; no product has a bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lingon.importers.files.pieces import Numbering
from lingon.importers.files.tensors import Tensors
from lingon.importers.source import Rows, Weight
from lingon.training.config import TransformerSettings

TABLES = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")  # copies of one table
HEAD = "lm_head.weight"
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of the first published files


def has_own_head(tensors: Tensors, rows: int, dim: int) -> bool:
    """Whether the output matrix is another one than the table of pieces.

    Transformers 5 writes tie_word_embeddings: true for every T5, and uses both matrices if they differ.
    """
    if HEAD not in tensors or not any(name in tensors for name in TABLES):
        return False
    table = next(name for name in TABLES if name in tensors)
    return not torch.equal(tensors.take(HEAD, (rows, dim)), tensors.take(table, (rows, dim)))


@dataclass(frozen=True, slots=True)
class T5Reader:
    """Takes the tensors of a model.

    rows: of the checkpoint's tables
    scaled: whether the output layer reads the last hidden state times dim^-0.5
    """

    tensors: Tensors
    settings: TransformerSettings
    numbering: Numbering
    rows: int
    scaled: bool

    def weights(self) -> Iterator[tuple[str, Weight]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        yield from self._tables()
        for side, layers in (("encoder", self.settings.encoder_layers), ("decoder", self.settings.decoder_layers)):
            for number in range(layers):
                yield from self._layer(side, number)
            yield from self._side(side)
        if UNUSED in self.tensors:
            self.tensors.take(UNUSED, (self.settings.relative_buckets, self.settings.heads))
            self.tensors.notes.append(f"{UNUSED} is not used: cross-attention has no positions")
        self.tensors.check_all_taken()

    def check_sizes(self) -> None:
        """Take tensors of each size of the settings, before a model of these sizes is built.

        Raises SourceModelError if one is missing or has another shape.
        """
        self._table()
        for side, layers in (("encoder", self.settings.encoder_layers), ("decoder", self.settings.decoder_layers)):
            for _ in self._layer(side, layers - 1):
                pass

    def _table(self) -> Tensor:
        names = [*TABLES, *([HEAD] if self.settings.tie == "all" else [])]
        return self.tensors.take_tied(names, (self.rows, self.settings.dim))

    def _tables(self) -> Iterator[tuple[str, Weight]]:
        table, order = self._table(), list(self.numbering.rows)
        yield "source_embedding.pieces.weight", Rows(table, order)
        if self.settings.tie == "none":
            yield "target_embedding.pieces.weight", Rows(table, order)
            yield "output.weight", Rows(self.tensors.take(HEAD, (self.rows, self.settings.dim)), order)

    def _side(self, side: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the last norm and the biases of distances, which the first layer holds for all.

        The scale of the last hidden state is a factor of the norm's gain here.
        """
        gain = self.tensors.take(f"{side}.final_layer_norm.weight", (self.settings.dim,))
        scaled = side == "decoder" and self.scaled
        yield f"{side}_norm.weight", gain * self.settings.dim**-0.5 if scaled else gain
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield f"{side}_bias.weight", self.tensors.take(name, (self.settings.relative_buckets, self.settings.heads))

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours, last = f"{side}.block.{number}.layer", f"{side}.{number}", 2 if side == "decoder" else 1
        query, key, value, output = self._attention(f"{theirs}.0.SelfAttention")
        yield f"{ours}.attention.qkv.weight", torch.cat([query, key, value])
        yield f"{ours}.attention.output.weight", output
        yield self._norm(f"{ours}.around_attention", f"{theirs}.0")
        if side == "decoder":
            query, key, value, output = self._attention(f"{theirs}.1.EncDecAttention")
            yield f"{ours}.cross.query.weight", query
            yield f"{ours}.cross.key_value.weight", torch.cat([key, value])
            yield f"{ours}.cross.output.weight", output
            yield self._norm(f"{ours}.around_cross", f"{theirs}.1")
        yield from self._feed_forward(f"{ours}.feed_forward", f"{theirs}.{last}.DenseReluDense")
        yield self._norm(f"{ours}.around_feed_forward", f"{theirs}.{last}")

    def _attention(self, theirs: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weights of query, key, value and output.

        T5 does not divide the scores by sqrt(head_dim) (Raffel et al., 2020, section 2.1): the query undoes it.
        """
        dim, heads = self.settings.dim, self.settings.attention_dim
        query, key, value = (self.tensors.take(f"{theirs}.{each}.weight", (heads, dim)) for each in "qkv")
        output = self.tensors.take(f"{theirs}.o.weight", (dim, heads))
        return query * math.sqrt(self.settings.head_dim), key, value, output

    def _feed_forward(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        dim, ffn = self.settings.dim, self.settings.ffn
        inner = ("wi_0", "wi_1") if self.settings.gated else ("wi",)
        parts = [self.tensors.take(f"{theirs}.{each}.weight", (ffn, dim)) for each in inner]
        yield f"{ours}.inner.weight", torch.cat(parts)
        yield f"{ours}.outer.weight", self.tensors.take(f"{theirs}.wo.weight", (dim, ffn))

    def _norm(self, ours: str, theirs: str) -> tuple[str, Tensor]:
        return f"{ours}.norm.weight", self.tensors.take(f"{theirs}.layer_norm.weight", (self.settings.dim,))
