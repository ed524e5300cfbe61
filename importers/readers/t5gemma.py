"""T5Gemma in the form of Transformers: the layers of Gemma 2 as an encoder and a decoder.

Gemma Team (2024), https://arxiv.org/abs/2408.00118, describes the layers; Zhang et al. (2025),
https://arxiv.org/abs/2504.06225, what becomes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from lingon.errors import SettingsError, SourceModelError
from lingon.importers.files.fast_tokenizer import TOKENIZER, FastTokenizer
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import ModelPiece, Numbering, SpecialIds, read_model, renumber, rewrite, spare_rows
from lingon.importers.files.tensors import Tensors, open_tensors
from lingon.importers.foreign_model import ALL, ForeignModel, ForeignWeight, ReorderedRows, Sides
from lingon.importers.readers.bart import MOST
from lingon.importers.readers.opus_mt import CONFIG, GENERATION, MOST_POSITIONS, TOKENIZER_CONFIG, facts_of, read_file
from lingon.text import BOS, Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import HEAD_STEP, Activation, TransformerSettings

PIECES = "tokenizer.model"
HEAD = "lm_head.out_proj.weight"
FULL, SLIDING = "full_attention", "sliding_attention"
ROTARY_BASE = 10_000  # of the rates of rotary positions
POSITIONS = 512  # tokens of a source unless a user wants others: the published models take longer ones than sentences
ACTIVATIONS: dict[str, Activation] = {"gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "silu": "silu"}
SAME = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("hidden_activation", "rms_norm_eps", "query_pre_attn_scalar", "sliding_window", "attn_logit_softcapping"),
)
"""The fields that encoder and decoder must share: a bundle has one width for both."""

HALF = "Gemma is known to overflow in float16; its gate refuses such a precision"


def read_t5gemma(folder: Path, longest: int | None = None, languages: Sides | None = None) -> ForeignModel:
    """Read a folder.

    longest: source tokens that the model shall read
    languages: the pair that the user names. The files of a model do not say what it was trained for

    Raises SourceModelError, and SettingsError for more than a pair.
    """
    config = JsonFields.read(folder / CONFIG)
    sides = _Blocks.read(config)
    more = JsonFields.read_if_there(folder / TOKENIZER_CONFIG)
    path, segmenter = _segmenter(folder, more)
    rows = sides.decoder.integer("vocab_size", 1, MOST)
    numbering, reserved = _numbering(sides.decoder, segmenter, path, rows)
    begins, ends = more.flag("add_bos_token", True), more.flag("add_eos_token", False)
    tokenizer = Tokenizer(rewrite(segmenter, numbering, reserved), source_end=ends)
    longest = longest or min(POSITIONS, sides.encoder.integer("max_position_embeddings", 2, MOST_POSITIONS))
    tensors = open_tensors(folder)
    tied = sides.decoder.flag("tie_word_embeddings", config.flag("tie_word_embeddings", True))
    settings = _settings(sides, numbering, longest, tied=tied)
    tensors.notes.append(HALF)
    reader = T5GemmaReader(tensors, settings, sides.key_value_heads, sides.query_scale, numbering, rows)
    reader.check_sizes()
    pair = _with_begin(folder, numbering.pieces[BOS], languages) if begins and languages else None
    names = (CONFIG, TOKENIZER_CONFIG, GENERATION, path.name)
    licence = "the Gemma Terms of Use for the published weights"
    facts = facts_of(folder, names, "Hugging Face T5Gemma", longest, beam_size=1, licence=licence)  # `generate` has 1
    return ForeignModel(settings, reader.weights(), tokenizer, numbering, numbering, facts, tensors.notes, pair)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The fields of encoder and decoder. The first four are those of both."""

    encoder: JsonFields
    decoder: JsonFields

    @classmethod
    def read(cls, config: JsonFields) -> _Blocks:
        """Return the blocks of a configuration. Raises SourceModelError for what one bundle cannot compute."""
        found = []
        for side in ("encoder", "decoder"):
            block = config.values.get(side)
            if not isinstance(block, dict):
                raise config.error(side, "must be an object")
            found.append(JsonFields(config.path, _flat(block)))
        sides = cls(*found)
        for name in SAME:
            ours, theirs = (each.values.get(name) for each in found)
            if ours != theirs:
                raise sides.decoder.error(f"decoder.{name}", f"must be that of the encoder ({ours})")
        for each in found:
            if each.flag("attention_bias", False):
                raise each.error("attention_bias", "must be false")
            if each.number("rope_theta", 1, 1e9, default=ROTARY_BASE) != ROTARY_BASE:
                raise each.error("rope_theta", f"must be {ROTARY_BASE:,}")
        return sides

    @property
    def key_value_heads(self) -> int:
        """The number of heads of keys and values, which divides that of the queries."""
        heads = self.encoder.integer("num_attention_heads", 1, MOST)
        found = self.encoder.integer("num_key_value_heads", 1, MOST, default=heads)
        if heads % found:
            raise self.encoder.error("num_key_value_heads", f"must divide num_attention_heads ({heads})")
        return found

    @property
    def query_scale(self) -> float:
        """What queries are multiplied by so that scores over sqrt(head_dim) are those over that of its own scale."""
        scale = self.encoder.number("query_pre_attn_scalar", 1e-6, MOST)
        return math.sqrt(self.encoder.integer("head_dim", 1, MOST) / scale)

    def windows(self, side: JsonFields, layers: int) -> tuple[int, int]:
        """Return the window of a side, 0 without one, and of how many layers the last one has none."""
        types = side.values.get("layer_types")
        types = [FULL if number % 2 else SLIDING for number in range(layers)] if types is None else types
        if not isinstance(types, list) or len(types) != layers or not {*types} <= {FULL, SLIDING}:
            raise side.error("layer_types", f"must be {FULL} or {SLIDING} for each of {layers} layers")
        if SLIDING not in types:
            return 0, 0
        window = side.integer("sliding_window", 2, MOST) - 1  # theirs counts the position itself
        period = types.index(FULL) + 1 if FULL in types else 0
        if types != [FULL if period and number % period == 0 else SLIDING for number in range(1, layers + 1)]:
            raise side.error("layer_types", f"must have {FULL} at the same distances")
        return window, period


def _flat(block: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a side. Transformers 5 writes those of rotary positions as an object, for each type of
    layer.
    """
    rope = block.get("rope_parameters")
    found = list(rope.values()) if isinstance(rope, dict) else []
    kinds = [each for each in found if isinstance(each, dict)] or ([rope] if isinstance(rope, dict) else [])
    bases = [each["rope_theta"] for each in kinds if "rope_theta" in each]
    other = next((base for base in bases if base != ROTARY_BASE), None)
    return block | ({} if other is None else {"rope_theta": other})


def _segmenter(folder: Path, more: JsonFields) -> tuple[Path, ModelProto]:
    """Return the model that cuts text, and the file that it is read from."""
    path = folder / PIECES
    if path.is_file():
        return path, read_model(read_file(path), str(path))
    path = folder / TOKENIZER
    if not path.is_file():
        raise SourceModelError(f"{folder}: has neither {PIECES} nor {TOKENIZER}")
    return path, FastTokenizer(path, more, lambda token: False).model


def _numbering(config: JsonFields, segmenter: ModelProto, path: Path, rows: int) -> tuple[Numbering, set[str]]:
    """Return the new ids, and the pieces that no text becomes."""
    pieces = [piece.piece for piece in segmenter.pieces]
    if rows < len(pieces):
        raise config.error("vocab_size", f"must be the number of pieces of {path.name} ({len(pieces):,}) or more")
    unknown = [number for number, piece in enumerate(segmenter.pieces) if piece.type == ModelPiece.UNKNOWN]
    if len(unknown) != 1:
        raise SourceModelError(f"{path}: must have one unknown piece, has {len(unknown)}")
    pad, eos, start = (
        config.integer(f"{name}_token_id", 0, len(pieces) - 1, default=default)
        for name, default in (("pad", 0), ("eos", 1), ("bos", 2))
    )
    if len({pad, eos, start, unknown[0]}) < 4:
        raise config.error("bos_token_id", "must be another one than those of padding, end and unknown pieces")
    spare = spare_rows(len(pieces), rows)
    reserved = {*spare}
    reserved |= {piece.piece for piece in segmenter.pieces if piece.type in (ModelPiece.CONTROL, ModelPiece.UNUSED)}
    return renumber([*pieces, *spare], SpecialIds(pad, start, eos, unknown[0]), [segmenter], reserved), reserved


def _with_begin(folder: Path, begin: str, languages: Sides) -> LanguageSettings:
    """Return the pair of a model that reads a begin token before each text."""
    if len(languages[0]) > 1 or len(languages[1]) > 1 or ALL in (languages[0][0], languages[1][0]):
        raise SettingsError(f"--languages must be one pair, such as en:de: {folder} is a model of one pair")
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": languages[0][0], "before": [begin]}],
            "targets": [{"language": languages[1][0]}],
        }
    )


def _settings(sides: _Blocks, numbering: Numbering, longest: int, *, tied: bool) -> TransformerSettings:
    encoder, decoder = sides.encoder, sides.decoder
    head_dim, dim = encoder.integer("head_dim", 1, MOST), encoder.integer("hidden_size", 2, MOST)
    if head_dim % HEAD_STEP:
        raise encoder.error("head_dim", f"must be a multiple of {HEAD_STEP}")
    if dim % 2:
        raise encoder.error("hidden_size", "must be even")
    layers = [each.integer("num_hidden_layers", 1, 1000) for each in (encoder, decoder)]
    windows = [sides.windows(each, count) for each, count in zip((encoder, decoder), layers, strict=True)]
    periods = {period for window, period in windows if window}
    if len(periods) > 1:
        raise decoder.error("layer_types", "must have the order of those of the encoder")
    return TransformerSettings(
        dim=dim,
        heads=encoder.integer("num_attention_heads", 1, MOST),
        head_dim=head_dim,
        ffn=encoder.integer("intermediate_size", 1, MOST),
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        norm="sandwich",
        norm_kind="rms",
        norm_epsilon=encoder.number("rms_norm_eps", 1e-12, 0.1, default=1e-6),
        activation=encoder.choice("hidden_activation", ACTIVATIONS),
        gated=True,
        bias=False,
        positions="rotary",
        encoder_window=windows[0][0],
        decoder_window=windows[1][0],
        full_attention_every=next(iter(periods), 0),
        attention_softcap=_cap(encoder, "attn_logit_softcapping"),
        output_softcap=_cap(decoder, "final_logit_softcapping"),
        never_generated=numbering.never,
        tie="decoder" if tied else "none",
        max_positions=longest + 1,
        dropout=0.1,
    )


def _cap(side: JsonFields, name: str) -> float:
    """Return a bound, 0 if the files say null."""
    return 0.0 if side.values.get(name) is None else side.number(name, 1e-3, 1e6)


@dataclass(frozen=True, slots=True)
class T5GemmaReader:
    """A reader of the tensors of a model.

    key_value_heads: of the checkpoint. Each becomes as many as there are queries that read it
    query_scale: a factor of queries
    rows: of the checkpoint's tables
    """

    tensors: Tensors
    settings: TransformerSettings
    key_value_heads: int
    query_scale: float
    numbering: Numbering
    rows: int

    def weights(self) -> Iterator[tuple[str, ForeignWeight]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        yield from self._tables()
        for side, layers in (("encoder", self.settings.encoder_layers), ("decoder", self.settings.decoder_layers)):
            for number in range(layers):
                yield from self._layer(side, number)
            yield f"{side}_norm.weight", self._gain(f"model.{side}.norm")
        self.tensors.check_all_taken()

    def check_sizes(self) -> None:
        """Take tensors of each size of the settings, before a model of these sizes is built.

        Raises SourceModelError if one is missing or has another shape.
        """
        for _ in self._tables():
            pass
        for side, layers in (("encoder", self.settings.encoder_layers), ("decoder", self.settings.decoder_layers)):
            for _ in self._layer(side, layers - 1):
                pass

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        shape, order = (self.rows, self.settings.dim), self.numbering.rows
        names = {side: f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
        yield "source_embedding.pieces.weight", ReorderedRows(self.tensors.take(names["encoder"], shape), order)
        if self.settings.tie == "none":
            yield "output.weight", ReorderedRows(self.tensors.take(HEAD, shape), order)
            table = self.tensors.take(names["decoder"], shape)
        else:
            table = self.tensors.take_tied([names["decoder"], HEAD], shape)
        yield "target_embedding.pieces.weight", ReorderedRows(table, order)

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours = f"model.{side}.layers.{number}", f"{side}.{number}"
        query, key, value, output = self._attention(f"{theirs}.self_attn")
        yield f"{ours}.attention.qkv.weight", torch.cat([self._rotated(query), self._rotated(key), value])
        yield f"{ours}.attention.output.weight", output
        yield from self._norms(f"{ours}.around_attention", theirs, "self_attn")
        if side == "decoder":
            query, key, value, output = self._attention(f"{theirs}.cross_attn")
            yield f"{ours}.cross.query.weight", query
            yield f"{ours}.cross.key_value.weight", torch.cat([key, value])
            yield f"{ours}.cross.output.weight", output
            yield from self._norms(f"{ours}.around_cross", theirs, "cross_attn")
        dim, ffn = self.settings.dim, self.settings.ffn
        inner = [self.tensors.take(f"{theirs}.mlp.{each}_proj.weight", (ffn, dim)) for each in ("gate", "up")]
        yield f"{ours}.feed_forward.inner.weight", torch.cat(inner)
        yield f"{ours}.feed_forward.outer.weight", self.tensors.take(f"{theirs}.mlp.down_proj.weight", (dim, ffn))
        yield from self._norms(f"{ours}.around_feed_forward", theirs, "feedforward")

    def _attention(self, theirs: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weights of query, key, value and output, keys and values for each head of the queries."""
        dim, width = self.settings.dim, self.settings.attention_dim
        narrow = self.key_value_heads * self.settings.head_dim
        query = self.tensors.take(f"{theirs}.q_proj.weight", (width, dim)) * self.query_scale
        key, value = (self._repeated(self.tensors.take(f"{theirs}.{each}_proj.weight", (narrow, dim))) for each in "kv")
        return query, key, value, self.tensors.take(f"{theirs}.o_proj.weight", (dim, width))

    def _repeated(self, weight: Tensor) -> Tensor:
        """Return the rows of each head of keys or values for every head of the queries that reads them."""
        by_head = weight.reshape(self.key_value_heads, self.settings.head_dim, -1)
        return by_head.repeat_interleave(self.settings.heads // self.key_value_heads, dim=0).flatten(0, 1)

    def _rotated(self, weight: Tensor) -> Tensor:
        """Return the rows of heads in our order: dimensions that turn together are neighbours.

        Theirs has the first of all pairs before the second of all.
        """
        pairs = weight.reshape(self.settings.heads, 2, self.settings.head_dim // 2, -1)
        return pairs.transpose(1, 2).flatten(0, 2)

    def _norms(self, ours: str, theirs: str, sublayer: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the norms before a sublayer and of its output."""
        yield f"{ours}.norm.weight", self._gain(f"{theirs}.pre_{sublayer}_layernorm")
        yield f"{ours}.norm_after.weight", self._gain(f"{theirs}.post_{sublayer}_layernorm")

    def _gain(self, theirs: str) -> Tensor:
        """Return the gain of a norm: theirs is stored as its difference to 1."""
        return 1 + self.tensors.take(f"{theirs}.weight", (self.settings.dim,))
