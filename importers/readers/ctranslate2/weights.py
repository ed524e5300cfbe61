"""The variables of a Transformer of CTranslate2, by the names of Lingon.

Its names: encoder/layer_0/self_attention/linear_0/weight, decoder/layer_0/ffn/layer_norm/gamma and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers.files.pieces import Numbering
from lingon.importers.readers.ctranslate2.container import Variables
from lingon.importers.source import Rows, Weight
from lingon.training.config import TransformerSettings

EMBEDDINGS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
PROJECTION, BIAS = "decoder/projection/weight", "decoder/projection/bias"
POSITIONS = {side: f"{side}/position_encodings/encodings" for side in EMBEDDINGS}


@dataclass(frozen=True, slots=True)
class CTranslate2Reader:
    """Takes the variables of a model.

    source, target: the numberings of the two vocabularies; the row after the last one of a table is of zeros
    rows: the number of rows of the source and target tables
    """

    variables: Variables
    settings: TransformerSettings
    source: Numbering
    target: Numbering
    rows: tuple[int, int]

    def weights(self) -> Iterator[tuple[str, Weight]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        settings = self.settings
        yield from self._tables()
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers)):
            ours = "source" if side == "encoder" else "target"
            for number in range(layers):
                yield from self._layer(side, number)
            if settings.norm == "pre":
                yield from self._norm(f"{side}_norm", f"{side}/layer_norm")
            if settings.embedding_norm:
                yield from self._norm(f"{ours}_embedding.norm", f"{side}/layernorm_embedding")
            if settings.positions == "learned":
                yield f"{ours}_embedding.positions", self._table_of_positions(side)
            elif POSITIONS[side] in self.variables.tensors:
                self._table_of_positions(side)
        self.variables.tensors.check_all_taken()

    def _table_of_positions(self, side: str) -> Tensor:
        name = POSITIONS[side]
        table = self._take(name, *self.variables.shapes.get(self.variables.names.get(name, name), ()))
        if self.settings.positions != "learned":
            decoder = self._take(
                POSITIONS["decoder"], *self.variables.shapes[self.variables.names[POSITIONS["decoder"]]]
            )
            if not torch.equal(table, decoder):
                raise SourceModelError(f"{self.variables.tensors.origin}: {name} must be that of the decoder")
        return table

    def _tables(self) -> Iterator[tuple[str, Weight]]:
        source_rows, target_rows = self.rows
        source = self._with_zeros(self._take(EMBEDDINGS["encoder"], source_rows, self.settings.dim))
        yield "source_embedding.pieces.weight", Rows(source, self.source.rows)
        target = self._with_zeros(self._take(EMBEDDINGS["decoder"], target_rows, self.settings.dim))
        output = self._with_zeros(self._take(PROJECTION, target_rows, self.settings.dim))
        if self.settings.tie != "all":
            yield "target_embedding.pieces.weight", Rows(target, self.target.rows)
        if self.settings.tie == "none":
            yield "output.weight", Rows(output, self.target.rows)
        if self.settings.output_bias:
            bias = self._take(BIAS, target_rows)
            yield "output.bias", torch.cat([bias, bias.new_zeros(1)])[list(self.target.rows)]

    def _with_zeros(self, table: Tensor) -> Tensor:
        return torch.cat([table, table.new_zeros(1, table.size(1))])

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours, dim, ffn = f"{side}/layer_{number}", f"{side}.{number}", self.settings.dim, self.settings.ffn
        yield from self._affine(f"{ours}.attention.qkv", f"{theirs}/self_attention/linear_0", 3 * dim, dim)
        yield from self._affine(f"{ours}.attention.output", f"{theirs}/self_attention/linear_1", dim, dim)
        yield from self._norm(f"{ours}.around_attention.norm", f"{theirs}/self_attention/layer_norm")
        if side == "decoder":
            cross = f"{theirs}/attention"
            yield from self._affine(f"{ours}.cross.query", f"{cross}/linear_0", dim, dim)
            yield from self._affine(f"{ours}.cross.key_value", f"{cross}/linear_1", 2 * dim, dim)
            yield from self._affine(f"{ours}.cross.output", f"{cross}/linear_2", dim, dim)
            yield from self._norm(f"{ours}.around_cross.norm", f"{cross}/layer_norm")
        yield from self._affine(f"{ours}.feed_forward.inner", f"{theirs}/ffn/linear_0", ffn, dim)
        yield from self._affine(f"{ours}.feed_forward.outer", f"{theirs}/ffn/linear_1", dim, ffn)
        yield from self._norm(f"{ours}.around_feed_forward.norm", f"{theirs}/ffn/layer_norm")

    def _affine(self, ours: str, theirs: str, outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        yield f"{ours}.weight", self._take(f"{theirs}/weight", outputs, inputs)
        yield f"{ours}.bias", self._take(f"{theirs}/bias", outputs)

    def _norm(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{ours}.weight", self._take(f"{theirs}/gamma", self.settings.dim)
        yield f"{ours}.bias", self._take(f"{theirs}/beta", self.settings.dim)

    def _take(self, name: str, *shape: int) -> Tensor:
        return self.variables.tensors.take(name, shape)
