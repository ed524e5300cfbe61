"""The tensors of models that are built as BART in Transformers, by the names of Lingon.

MarianMTModel is one of them. Its names: model.encoder.layers.N.self_attn.q_proj.weight and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import Numbering
from lingon.importers.files.tensors import Tensors
from lingon.importers.foreign_model import ForeignWeight, ReorderedRows
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.layers import sinusoids

MOST = 2**20  # of a size
SHARED, HEAD, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
EMBEDDINGS = {"source": "model.encoder.embed_tokens.weight", "target": "model.decoder.embed_tokens.weight"}
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
SAME_POSITIONS = 2e-3  # how far a saved table of sinusoids may be from the formula: bfloat16 rounds by up to 2**-9


def read_sizes(config: JsonFields, least: int = 2) -> dict[str, Any]:
    """Return the sizes of a model by the names of TransformerSettings. Raises SourceModelError. least: of the width."""
    heads = config.integer("encoder_attention_heads", 1, MOST)
    for size in ("attention_heads", "ffn_dim"):
        encoder, decoder = (config.integer(f"{side}_{size}", 1, MOST) for side in ("encoder", "decoder"))
        if decoder != encoder:
            raise config.error(f"decoder_{size}", f"must be that of the encoder ({encoder})")
    dim = config.integer("d_model", least, MOST)
    if dim % (2 * heads):
        raise config.error("d_model", f"must be even and a multiple of encoder_attention_heads ({heads})")
    return {
        "dim": dim,
        "heads": heads,
        "head_dim": dim // heads,
        "ffn": config.integer("encoder_ffn_dim", 1, MOST),
        "encoder_layers": config.integer("encoder_layers", 1, 1000),
        "decoder_layers": config.integer("decoder_layers", 1, 1000),
    }


@dataclass(frozen=True, slots=True)
class BartReader:
    """A reader of the tensors of a model.

    source, target: the numberings of the two vocabularies
    rows: the number of rows of the checkpoint's source and target tables
    separate: whether there are two tables and no shared one
    head: the name of the output matrix
    """

    tensors: Tensors
    settings: TransformerSettings
    source: Numbering
    target: Numbering
    rows: tuple[int, int]
    separate: bool
    head: str = HEAD

    def weights(self) -> Iterator[tuple[str, ForeignWeight]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        yield from self._tables()
        for side, layers in (("encoder", self.settings.encoder_layers), ("decoder", self.settings.decoder_layers)):
            for number in range(layers):
                yield from self._layer(side, number)
        if self.settings.norm == "pre":
            for side in ("encoder", "decoder"):
                yield from self._norm(f"{side}_norm", f"model.{side}.layer_norm")
        yield from self._output_bias()
        if self.settings.positions == "learned":
            yield from self._learned_positions()
        else:
            self._check_positions()
        if self.settings.embedding_norm:
            for ours, side in (("source", "encoder"), ("target", "decoder")):
                yield from self._norm(f"{ours}_embedding.norm", f"model.{side}.layernorm_embedding")
        self.tensors.check_all_taken()

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        dim, tie = self.settings.dim, self.settings.tie
        source_rows, target_rows = self.rows
        if self.separate:
            source = self.tensors.take(EMBEDDINGS["source"], (source_rows, dim))
        else:
            head = [] if tie == "none" else [self.head]
            source = self.tensors.take_tied([SHARED, *EMBEDDINGS.values(), *head], (source_rows, dim))
        yield "source_embedding.pieces.weight", ReorderedRows(source, self.source.rows)
        if tie == "all":
            return
        names = [EMBEDDINGS["target"], *([self.head] if tie == "decoder" else [])]
        target = self.tensors.take_tied(names, (target_rows, dim)) if self.separate else source
        yield "target_embedding.pieces.weight", ReorderedRows(target, self.target.rows)
        if tie == "none":
            yield "output.weight", ReorderedRows(self.tensors.take(self.head, (target_rows, dim)), self.target.rows)

    def _output_bias(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the bias of the output, which models of several languages save as zeros or not at all."""
        if self.settings.output_bias:
            yield "output.bias", self.tensors.take(BIAS, (1, self.rows[1]))[0][list(self.target.rows)]
        elif BIAS in self.tensors and bool(self.tensors.take(BIAS, (1, self.rows[1])).any()):
            raise SourceModelError(f"{self.tensors.origin}: {BIAS} must be zeros")

    def _learned_positions(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tables of positions, whose first rows no token has."""
        skipped, settings = 2, self.settings
        for ours, side in (("source", "encoder"), ("target", "decoder")):
            name = f"model.{side}.embed_positions.weight"
            table = self.tensors.take(name, (settings.max_positions + skipped, settings.dim))
            yield f"{ours}_embedding.positions", table[skipped:]

    def _check_positions(self) -> None:
        """Take saved tables of sinusoids, and raise SourceModelError if one is not the formula of the settings."""
        settings = self.settings
        for name in POSITIONS:
            if name not in self.tensors:
                continue
            rows = self.tensors.rows(name)
            expected = sinusoids(rows, settings.dim, settings.sinusoids)
            differences = (self.tensors.take(name, expected.shape) - expected).abs()
            off = float(differences[settings.first_position :].max())  # no token has the rows before
            if off > SAME_POSITIONS:
                raise SourceModelError(
                    f"{self.tensors.origin}: {name} must be sinusoids, differs from them by up to {off:.2g}"
                )

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours = f"model.{side}.layers.{number}", f"{side}.{number}"
        dim, heads, ffn = self.settings.dim, self.settings.attention_dim, self.settings.ffn
        yield from self._affine(f"{ours}.attention.qkv", [f"{theirs}.self_attn.{x}_proj" for x in "qkv"], heads, dim)
        yield from self._affine(f"{ours}.attention.output", [f"{theirs}.self_attn.out_proj"], dim, heads)
        yield from self._norm(f"{ours}.around_attention.norm", f"{theirs}.self_attn_layer_norm")
        if side == "decoder":
            cross = f"{theirs}.encoder_attn"
            yield from self._affine(f"{ours}.cross.query", [f"{cross}.q_proj"], heads, dim)
            yield from self._affine(f"{ours}.cross.key_value", [f"{cross}.k_proj", f"{cross}.v_proj"], heads, dim)
            yield from self._affine(f"{ours}.cross.output", [f"{cross}.out_proj"], dim, heads)
            yield from self._norm(f"{ours}.around_cross.norm", f"{theirs}.encoder_attn_layer_norm")
        yield from self._affine(f"{ours}.feed_forward.inner", [f"{theirs}.fc1"], ffn, dim)
        yield from self._affine(f"{ours}.feed_forward.outer", [f"{theirs}.fc2"], dim, ffn)
        yield from self._norm(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm")

    def _affine(self, ours: str, theirs: list[str], outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        """Yield weight and bias of a product that packs several of theirs, each (outputs, inputs)."""
        yield f"{ours}.weight", torch.cat([self.tensors.take(f"{name}.weight", (outputs, inputs)) for name in theirs])
        yield f"{ours}.bias", torch.cat([self.tensors.take(f"{name}.bias", (outputs,)) for name in theirs])

    def _norm(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        for part in ("weight", "bias"):
            yield f"{ours}.{part}", self.tensors.take(f"{theirs}.{part}", (self.settings.dim,))
