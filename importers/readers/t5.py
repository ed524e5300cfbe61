"""T5, T5 v1.1, mT5 and MADLAD-400 in the form of Transformers: relative positions, one sentencepiece model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from lingon.bundle.manifest import MANY
from lingon.errors import SourceModelError
from lingon.importers.files.fast_tokenizer import TOKENIZER, FastTokenizer
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import ModelPiece, Numbering, SpecialIds, read_model, renumber, rewrite, spare_rows
from lingon.importers.files.tensors import Tensors, open_tensors
from lingon.importers.foreign_model import Facts, ForeignModel, ForeignWeight, ReorderedRows
from lingon.importers.readers.bart import MOST
from lingon.importers.readers.codes import tags_of
from lingon.importers.readers.opus_mt import CONFIG, GENERATION, MOST_POSITIONS, TOKENIZER_CONFIG, facts_of, read_file
from lingon.text import UNK, Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import Activation, TransformerSettings

# The tensors of models that are built as T5 in Transformers, by the names of Lingon.
# Their names: encoder.block.N.layer.0.SelfAttention.q.weight and so on. No product has a bias.

TABLES = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")  # copies of one table
HEAD = "lm_head.weight"
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of the first published files


def has_own_head(tensors: Tensors, rows: int, dim: int) -> bool:
    """Return whether the output matrix is another one than the table of pieces.

    Transformers 5 writes tie_word_embeddings: true for every T5, and uses both matrices if they differ.
    """
    if HEAD not in tensors or not any(name in tensors for name in TABLES):
        return False
    table = next(name for name in TABLES if name in tensors)
    return not torch.equal(tensors.take(HEAD, (rows, dim)), tensors.take(table, (rows, dim)))


@dataclass(frozen=True, slots=True)
class T5Reader:
    """A reader of the tensors of a model.

    rows: of the checkpoint's tables
    scaled: whether the output layer reads the last hidden state times dim^-0.5
    """

    tensors: Tensors
    settings: TransformerSettings
    numbering: Numbering
    rows: int
    scaled: bool

    def weights(self) -> Iterator[tuple[str, ForeignWeight]]:
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

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        table, order = self._table(), list(self.numbering.rows)
        yield "source_embedding.pieces.weight", ReorderedRows(table, order)
        if self.settings.tie == "none":
            yield "target_embedding.pieces.weight", ReorderedRows(table, order)
            yield "output.weight", ReorderedRows(self.tensors.take(HEAD, (self.rows, self.settings.dim)), order)

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


PIECES = ("spiece.model", "sentencepiece.model")
FEED_FORWARD: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", False),
    "gated-relu": ("relu", True),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
}
"""The activation of each feed_forward_proj, and whether it is gated. The gated GELU is the one by tanh."""

POSITIONS = 512  # tokens of a source where the files do not say: those that the published models were trained with
MOST_PREFIX = 16  # pieces that a language may have in a bundle
HALF = "T5 is known to overflow in float16; its gate refuses such a precision"
_CODE = re.compile(r"<2([A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*)>")
_SENTINEL = re.compile("▁?<extra_id_[0-9]+>")
_TASK = re.compile("translation_([a-z]{2,3})_to_([a-z]{2,3})")


def read_t5(folder: Path, longest: int | None = None) -> ForeignModel:
    """Read a folder; longest: source tokens that the model shall read. Raises SourceModelError."""
    config = JsonFields.read(folder / CONFIG)
    path, segmenter = _segmenter(folder)
    rows = config.integer("vocab_size", 1, MOST)
    numbering, reserved = _numbering(config, segmenter, path, rows)
    positions = config.integer("n_positions", 2, MOST_POSITIONS, default=POSITIONS)
    tensors = open_tensors(folder)
    tied = config.flag("tie_word_embeddings", True) and not has_own_head(tensors, rows, _dim(config))
    settings = _settings(config, numbering, max(longest or 0, positions) + 1, tied=tied)
    tensors.notes.append(HALF)
    prefixes = _prefixes(config)
    facts = _facts(folder, config, path, longest or positions, named=bool(prefixes))
    codes = [piece.piece for piece in segmenter.pieces if _CODE.fullmatch(piece.piece)]
    tokenizer = Tokenizer(rewrite(segmenter, numbering, reserved))
    languages = _of_prefixes(config, prefixes, tokenizer) if prefixes else _of_codes(codes)
    reader = T5Reader(tensors, settings, numbering, rows, _is_scaled(config))
    reader.check_sizes()
    return ForeignModel(settings, reader.weights(), tokenizer, numbering, numbering, facts, tensors.notes, languages)


def _segmenter(folder: Path) -> tuple[Path, ModelProto]:
    """Return the model that cuts text, and the file that it is read from."""
    path = next((folder / name for name in (*PIECES, TOKENIZER) if (folder / name).is_file()), None)
    if path is None:
        raise SourceModelError(f"{folder}: has none of {', '.join(PIECES)} and {TOKENIZER}")
    if path.name != TOKENIZER:
        return path, read_model(read_file(path), str(path))
    more = JsonFields.read_if_there(folder / TOKENIZER_CONFIG)
    return path, FastTokenizer(path, more, _is_reserved).model


def _is_reserved(token: str) -> bool:
    """Return whether no text becomes a token: the code of a language, or a sentinel."""
    return bool(_CODE.fullmatch(token) or _SENTINEL.fullmatch(token))


def _numbering(config: JsonFields, segmenter: ModelProto, path: Path, rows: int) -> tuple[Numbering, set[str]]:
    """Return the new ids, and the pieces that no text becomes: languages, sentinels and rows without a piece."""
    pieces = [piece.piece for piece in segmenter.pieces]
    if rows < len(pieces):
        raise config.error("vocab_size", f"must be the number of pieces of {path.name} ({len(pieces):,}) or more")
    unknown = [number for number, piece in enumerate(segmenter.pieces) if piece.type == ModelPiece.UNKNOWN]
    if len(unknown) != 1:
        raise SourceModelError(f"{path}: must have one unknown piece, has {len(unknown)}")
    pad = config.integer("pad_token_id", 0, rows - 1, default=0)
    eos = config.integer("eos_token_id", 0, rows - 1, default=1)
    if eos >= len(pieces) or segmenter.pieces[eos].type != ModelPiece.CONTROL:
        raise config.error("eos_token_id", f"must be the id of a control piece of {path.name}")
    start = config.integer("decoder_start_token_id", 0, rows - 1, default=pad)
    if start == eos or pad == eos:
        name = "decoder_start_token_id" if start == eos else "pad_token_id"
        raise config.error(name, f"must not be that of the end token ({eos})")
    spare = spare_rows(len(pieces), rows)
    reserved = {*spare, *filter(_is_reserved, pieces)}
    reserved |= {piece.piece for piece in segmenter.pieces if piece.type in (ModelPiece.CONTROL, ModelPiece.UNUSED)}
    numbering = renumber([*pieces, *spare], SpecialIds(pad, start, eos, unknown[0]), [segmenter], reserved)
    return numbering, reserved


def _dim(config: JsonFields) -> int:
    dim = config.integer("d_model", 2, MOST)
    if dim % 2:
        raise config.error("d_model", "must be even")
    return dim


def _is_scaled(config: JsonFields) -> bool:
    """Return whether the output layer reads the last hidden state times dim^-0.5.

    Transformers 5 writes scale_decoder_outputs for T5, because it writes tie_word_embeddings: true for all. It scales
    no mT5.
    """
    tied = config.flag("tie_word_embeddings", True)
    if config.text("model_type") == "mt5":
        version = config.text("transformers_version", "4").partition(".")[0]
        tied = tied and version.isdecimal() and int(version) < 5
    return config.flag("scale_decoder_outputs", tied)


def _settings(config: JsonFields, numbering: Numbering, positions: int, *, tied: bool) -> TransformerSettings:
    buckets = config.integer("relative_attention_num_buckets", 4, MOST, default=32)
    distance = config.integer("relative_attention_max_distance", 2, MOST, default=128)
    if buckets % 4 or distance <= buckets // 2:
        rule = f"must be a multiple of 4 and less than twice relative_attention_max_distance ({distance})"
        raise config.error("relative_attention_num_buckets", rule)
    layers = config.integer("num_layers", 1, 1000)
    epsilon = config.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-6)
    activation, gated = config.choice("feed_forward_proj", FEED_FORWARD)
    return TransformerSettings(
        dim=_dim(config),
        heads=config.integer("num_heads", 1, MOST),
        head_dim=config.integer("d_kv", 1, MOST),
        ffn=config.integer("d_ff", 1, MOST),
        encoder_layers=layers,
        decoder_layers=config.integer("num_decoder_layers", 1, 1000, default=layers),
        norm="pre",
        norm_kind="rms",
        norm_epsilon=epsilon,
        activation=activation,
        gated=gated,
        bias=False,
        scale_embedding=False,
        positions="relative",
        relative_buckets=buckets,
        relative_distance=distance,
        never_generated=numbering.never,
        tie="all" if tied else "none",
        max_positions=positions,
        dropout=0.1,
    )


def _prefixes(config: JsonFields) -> dict[tuple[str, str], str]:
    """Return the text before each source by the pair of its task, such as translation_en_to_de."""
    tasks = config.values.get("task_specific_params") or {}
    if not isinstance(tasks, dict):
        raise config.error("task_specific_params", "must be an object")
    found = {}
    for name, values in tasks.items():
        if not (task := _TASK.fullmatch(name)):
            continue
        prefix = values.get("prefix") if isinstance(values, dict) else None
        if not isinstance(prefix, str) or not prefix.endswith(" "):
            raise config.error("task_specific_params", f"{name} must have a prefix that ends with a space")
        found[task[1], task[2]] = prefix
    return found


def _of_prefixes(config: JsonFields, prefixes: dict[tuple[str, str], str], tokenizer: Tokenizer) -> LanguageSettings:
    """Return the languages of tasks. The pieces of a prefix stand before each text.

    A prefix names both languages, and every source is translated into every target: only one source can be served.
    """
    sources = sorted({source for source, _ in prefixes})
    if len(sources) > 1:
        rule = f"must translate from one language, translates from {', '.join(sources)}"
        raise config.error("task_specific_params", rule)
    targets = []
    for (_, target), prefix in prefixes.items():
        ids = tokenizer.source.encode(prefix)
        if len(ids) > MOST_PREFIX or UNK in ids:
            raise config.error("task_specific_params", f"the prefix {prefix!r} must be 1 to {MOST_PREFIX} known pieces")
        targets.append({"language": target, "source": tokenizer.source_pieces(ids)})
    return LanguageSettings.model_validate({"sources": [{"language": sources[0]}], "targets": targets})


def _of_codes(codes: Sequence[str]) -> LanguageSettings | None:
    """Return the target languages that a piece before the source chooses, or None for a model of one pair."""
    tags = tags_of(code[2:-1] for code in codes)
    if not tags:
        return None
    targets = [{"language": tag, "source": [f"<2{code}>"]} for tag, code in tags.items()]
    return LanguageSettings.model_validate({"sources": [{"language": MANY}], "targets": targets})


def _facts(folder: Path, config: JsonFields, pieces: Path, longest: int, *, named: bool) -> Facts:
    """Return the facts. Without a beam size in the files it is that of `generate`, 1."""
    kind = "mT5" if config.text("model_type") == "mt5" else "T5"
    return facts_of(
        folder,
        (CONFIG, TOKENIZER_CONFIG, GENERATION, pieces.name),
        f"Hugging Face {kind}" + (" with prefixes" if named else ""),
        longest,
        beam_size=config.integer("num_beams", 1, 64, default=1),
        length_penalty=config.number("length_penalty", 0, 10, 1.0),
    )
