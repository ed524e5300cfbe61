"""Checkpoints of OpenNMT-py and folders of Eole: one Transformer with norms before its layers, under two sets of names.

The options that a checkpoint was trained with say what it computes. A vocabulary is a list of pieces; the sentencepiece
models or the merges of subword-nmt that cut text into these lie beside the checkpoint. A source has no end token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers.files.fields import JsonFields, first_twice
from lingon.importers.files.pickles import Record, read_pickle
from lingon.importers.files.pieces import (
    CONTINUED,
    SPACE,
    Numbering,
    SpecialIds,
    moses_tokenizer,
    read_merges,
    read_model,
    renumber,
    rewrite,
    tokenizer_of,
    with_word_ends,
)
from lingon.importers.files.tensors import Tensors, open_safetensors, readers_of
from lingon.importers.foreign_model import Facts, ForeignModel, ForeignWeight, ReorderedRows
from lingon.importers.readers.bart import SAME_POSITIONS
from lingon.importers.readers.opennmt_options import (
    EOLE,
    OPENNMT_PY,
    SIDES,
    Options,
    options_of_eole,
    options_of_opennmt_py,
)
from lingon.importers.readers.opus_mt import CONFIG, MOST_POSITIONS, read_file
from lingon.text import Tokenizer
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.layers import sinusoids

PAIR = ("src", "tgt")
"""How both toolkits name the sides of a pair."""

# The tensors, by the names of Lingon.

OUTPUT, OUTPUT_BIAS = "generator.weight", "generator.bias"
Product = tuple[Tensor, Tensor | None]
"""The weight (outputs, inputs) and the bias (outputs) of a product."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """How a toolkit names its tensors.

    layers: of each side, before the number of a layer
    tables: of the pieces of each side
    positions: of the saved sinusoids of each side
    attention_norms: the norm before self-attention in a layer of each side
    cross_norm, inner_norm: the norms before cross-attention and before the feed-forward layers
    inner, gate, outer: the products of the feed-forward layers
    """

    layers: Mapping[str, str]
    tables: Mapping[str, str]
    positions: Mapping[str, str]
    attention_norms: Mapping[str, str]
    cross_norm: str
    inner_norm: str
    inner: str
    gate: str
    outer: str


NAMES = {
    OPENNMT_PY: Names(
        layers={"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
        tables={side: f"{side}.embeddings.make_embedding.emb_luts.0.weight" for side in SIDES},
        positions={side: f"{side}.embeddings.make_embedding.pe.pe" for side in SIDES},
        attention_norms={"encoder": "layer_norm", "decoder": "layer_norm_1"},
        cross_norm="layer_norm_2",
        inner_norm="feed_forward.layer_norm",
        inner="feed_forward.w_1",
        gate="feed_forward.w_3",
        outer="feed_forward.w_2",
    ),
    EOLE: Names(
        layers={side: f"{side}.transformer_layers" for side in SIDES},
        tables={"encoder": "src_emb.embeddings.weight", "decoder": "tgt_emb.embeddings.weight"},
        positions={"encoder": "src_emb.pe.pe", "decoder": "tgt_emb.pe.pe"},
        attention_norms=dict.fromkeys(SIDES, "input_layernorm"),
        cross_norm="precontext_layernorm",
        inner_norm="post_attention_layernorm",
        inner="mlp.gate_up_proj",
        gate="mlp.up_proj",
        outer="mlp.down_proj",
    ),
}
PRODUCT_BIASES = ("linear_query.bias", "final_linear.bias", "w_1.bias", "gate_up_proj.bias")
SCALAR = "layer_scalar"  # of a decoder layer of Eole, by which its output is multiplied


@dataclass(frozen=True, slots=True)
class Tables:
    """The names of the tables of the source, of the target and of the output, which may be one."""

    source: str
    target: str
    output: str

    @property
    def tie(self) -> Literal["all", "decoder", "none"]:
        """Which of them are one."""
        if self.output != self.target:
            return "none"
        return "all" if self.source == self.target else "decoder"


def find_tables(tensors: Tensors, names: Names, options: Options, sizes: tuple[int, int]) -> Tables:
    """Return the tables. Equal ones are one: OpenNMT-py saves a table that is shared under each of its names.

    sizes: rows of the source and of the target table. Raises SourceModelError.
    """
    source, target = (names.tables[side] for side in SIDES)
    if target not in tensors:
        shared = options.fields.values.get("share_embeddings") or OUTPUT not in tensors
        target = source if shared else OUTPUT
    output = OUTPUT if OUTPUT in tensors else target
    width = _width(tensors, options.toolkit)

    def is_one(name: str, other: str, rows: int) -> bool:
        if name == other:
            return True
        if tensors.shape(name) != tensors.shape(other):
            return False
        return torch.equal(tensors.take(name, (rows, width)), tensors.take(other, (rows, width)))

    shared = is_one(target, source, sizes[1])
    tied = is_one(output, target, sizes[1])
    target = source if shared else target
    return Tables(source, target, target if tied else output)


@dataclass(frozen=True, slots=True)
class OpenNMTReader:
    """A reader of the tensors of a model.

    source, target: the numberings of the two vocabularies
    rows: the number of rows of the source and target tables
    """

    tensors: Tensors
    names: Names
    tables: Tables
    options: Options
    settings: TransformerSettings
    source: Numbering
    target: Numbering
    rows: tuple[int, int]

    def weights(self) -> Iterator[tuple[str, ForeignWeight]]:
        """Yield the weights of a model with these settings, tied tables once.

        Raises SourceModelError if one is missing or has another shape, or if there is a tensor besides them.
        """
        settings = self.settings
        yield from self._tables()
        for side, layers in zip(SIDES, self.options.layers, strict=True):
            for number in range(layers):
                yield from self._layer(side, number)
            yield from self._norm(f"{side}_norm", f"{side}.layer_norm")
            if settings.positions == "relative":
                yield f"{side}_bias.weight", self._relative_bias(side, layers)
            self._check_positions(side)
        self.tensors.check_all_taken()

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        dim, tie, (source_rows, target_rows) = self.settings.dim, self.settings.tie, self.rows
        table = self.tensors.take(self.tables.source, (source_rows, dim))
        yield "source_embedding.pieces.weight", ReorderedRows(table, self.source.rows)
        if tie != "all":
            table = self.tensors.take(self.tables.target, (target_rows, dim))
            yield "target_embedding.pieces.weight", ReorderedRows(table, self.target.rows)
        if tie == "none":
            table = self.tensors.take(self.tables.output, (target_rows, dim))
            yield "output.weight", ReorderedRows(table, self.target.rows)
        if self.settings.output_bias:
            yield "output.bias", self.tensors.take(OUTPUT_BIAS, (target_rows,))[list(self.target.rows)]

    def _layer(self, side: str, number: int) -> Iterator[tuple[str, Tensor]]:
        names, ours = self.names, f"{side}.{number}"
        theirs, dim, ffn = f"{names.layers[side]}.{number}", self.settings.dim, self.settings.ffn
        rotary = self.options.halves and self.settings.positions == "rotary"
        heads = self._heads(f"{theirs}.self_attn", rotary=rotary)
        yield from _packed(f"{ours}.attention.qkv", heads)
        yield from self._affine(f"{ours}.attention.output", f"{theirs}.self_attn.final_linear", dim, dim)
        yield from self._norm(f"{ours}.around_attention.norm", f"{theirs}.{names.attention_norms[side]}")
        if side == "decoder":
            query, *key_value = self._heads(f"{theirs}.context_attn", rotary=False)
            yield from _packed(f"{ours}.cross.query", [query])
            yield from _packed(f"{ours}.cross.key_value", key_value)
            yield from self._affine(f"{ours}.cross.output", f"{theirs}.context_attn.final_linear", dim, dim)
            yield from self._norm(f"{ours}.around_cross.norm", f"{theirs}.{names.cross_norm}")
            if (scalar := f"{theirs}.{SCALAR}") in self.tensors and float(self.tensors.take(scalar, (1,))) != 1:
                raise SourceModelError(f"{self.tensors.origin}: {scalar} must be 1")
        inner = [self._product(f"{theirs}.{name}", ffn, dim) for name in self._inner()]
        yield from _packed(f"{ours}.feed_forward.inner", inner)
        yield from self._affine(f"{ours}.feed_forward.outer", f"{theirs}.{names.outer}", dim, ffn)
        yield from self._norm(f"{ours}.around_feed_forward.norm", f"{theirs}.{names.inner_norm}")

    def _inner(self) -> list[str]:
        """Return the products of the feed-forward layers that read their input, the one with the activation first."""
        return [self.names.inner, *([self.names.gate] if self.settings.gated else [])]

    def _heads(self, theirs: str, *, rotary: bool) -> list[Product]:
        """Return the products of queries, keys and values: weight (dim, dim) and bias (dim) of each.

        Heads of keys and values that several of queries read are repeated. rotary: whether dimension i of queries and
        keys is turned with dimension i + head_dim / 2, so that the two have to become neighbours
        """
        dim, options, found = self.settings.dim, self.options, list[Product]()
        for name, count in (("query", options.heads), ("keys", options.key_heads), ("values", options.key_heads)):
            width = count * (dim // options.heads)
            weight, bias = self._product(f"{theirs}.linear_{name}", width, dim)
            turned = rotary and name != "values"
            arranged = None if bias is None else self._arranged(bias.reshape(count, -1), turned=turned)
            found.append((self._arranged(weight.reshape(count, -1, dim), turned=turned), arranged))
        return found

    def _arranged(self, heads: Tensor, *, turned: bool) -> Tensor:
        """Return heads (count, head_dim, ...) as rows (dim, ...)."""
        if turned:
            heads = torch.stack(heads.chunk(2, dim=1), dim=2).flatten(1, 2)
        return heads.repeat_interleave(self.options.heads // heads.size(0), dim=0).flatten(0, 1)

    def _product(self, theirs: str, outputs: int, inputs: int) -> Product:
        """Return a product. Its bias is None in a model without any, and zeros if other products have one."""
        weight = self.tensors.take(f"{theirs}.weight", (outputs, inputs))
        if not self.settings.bias:
            return weight, None
        if f"{theirs}.bias" not in self.tensors:
            return weight, weight.new_zeros(outputs)
        return weight, self.tensors.take(f"{theirs}.bias", (outputs,))

    def _affine(self, ours: str, theirs: str, outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        yield from _packed(ours, [self._product(theirs, outputs, inputs)])

    def _norm(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{ours}.weight", self.tensors.take(f"{theirs}.weight", (self.settings.dim,))
        if self.settings.norm_kind == "layer":
            yield f"{ours}.bias", self.tensors.take(f"{theirs}.bias", (self.settings.dim,))

    def _relative_bias(self, side: str, layers: int) -> Tensor:
        """Return the biases of distances (buckets, heads), which all layers of a side must share."""
        shape = (self.settings.relative_buckets, self.settings.heads)
        names = [
            f"{self.names.layers[side]}.{number}.self_attn.relative_attention_bias.weight" for number in range(layers)
        ]
        first, *others = (self.tensors.take(name, shape) for name in names)
        if not all(torch.equal(each, first) for each in others):
            raise SourceModelError(
                f"{self.tensors.origin}: the layers of the {side} must share one relative_attention_bias"
            )
        return first

    def _check_positions(self, side: str) -> None:
        """Take saved sinusoids, and raise SourceModelError if they are not those of the options."""
        name = self.names.positions[side]
        if name not in self.tensors or self.settings.positions != "sinusoidal":
            return
        expected = sinusoids(self.tensors.rows(name), self.settings.dim, self.settings.sinusoids)[:, None]
        off = float((self.tensors.take(name, expected.shape) - expected).abs().max())
        if off > SAME_POSITIONS:
            raise SourceModelError(f"{self.tensors.origin}: {name} must be sinusoids, differs from them by {off:.2g}")


def _packed(ours: str, products: Sequence[Product]) -> Iterator[tuple[str, Tensor]]:
    """Yield weight and bias of a product that packs several."""
    yield f"{ours}.weight", torch.cat([weight for weight, _ in products])
    biases = [bias for _, bias in products if bias is not None]
    if biases:
        yield f"{ours}.bias", torch.cat(biases)


# The pieces.

MODELS = {"src": ("source.spm", "tokenizer.model"), "tgt": ("target.spm", "tokenizer.model")}
SHARED_MODELS = ("sentencepiece.model", "sentencepiece.bpe.model", "spm.model")
MERGES = {"src": ("source.bpe", "bpe.codes"), "tgt": ("target.bpe", "bpe.codes")}
JOINER = "\uffed"  # of the tokens of pyonmttok, which neither sentencepiece nor subword-nmt writes
FILLER = re.compile("averyunlikelytoken[0-9]+")  # pieces that round a vocabulary up
BRACED = re.compile("\uff5f.*\uff60")  # the special tokens of the toolkits, such as a mark of line breaks
NLLB_CODE = re.compile("[a-z]{3}_[A-Z][a-z]{3}")
MOST_CODES = 20  # pieces that are codes of NLLB, in a model of a pair


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """What a checkpoint says of its texts.

    pieces: of the source and of the target, in the order of their ids; one object if they are equal
    start: the piece that the decoder reads first
    special: the names of the padding, of the end and of the unknown piece
    """

    origin: Path
    pieces: tuple[list[str], list[str]]
    start: str
    special: tuple[str, str, str] = ("<blank>", "</s>", "<unk>")

    def __post_init__(self) -> None:
        for each in self.pieces:
            if not each or not all(isinstance(piece, str) for piece in each):
                raise SourceModelError(f"{self.origin}: a vocabulary must be a list of pieces")
            if (twice := first_twice(each)) is not None:
                raise SourceModelError(f"{self.origin}: a vocabulary has the piece {twice!r} twice")
            if sum(NLLB_CODE.fullmatch(piece) is not None for piece in each) > MOST_CODES:
                raise SourceModelError(
                    f"{self.origin}: has the language codes of NLLB-200; import the files of Transformers that it was "
                    "converted from"
                )

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of pieces."""
        return len(self.pieces[0]), len(self.pieces[1])

    def reserved(self, pieces: Sequence[str]) -> set[str]:
        """Return the pieces that no text may become."""
        named = {piece for piece in pieces if FILLER.fullmatch(piece) or BRACED.fullmatch(piece)}
        return named | ({"<s>", *self.special} & set(pieces))

    def special_ids(self, pieces: Sequence[str], *, decoded: bool) -> SpecialIds:
        """Return the special ids; decoded: whether it is the vocabulary of the target. A source needs <unk> alone."""
        ids = {piece: number for number, piece in enumerate(pieces)}
        pad, eos, unk = self.special
        needed = [unk, *([self.start, eos] if decoded else [])]
        if missing := [each for each in needed if each not in ids]:
            raise SourceModelError(f"{self.origin}: a vocabulary has no piece {missing[0]}")
        padding = ids.get(pad, ids[unk])  # no result reads it
        return SpecialIds(padding, ids.get(self.start, padding), ids.get(eos, padding), ids[unk])


def _tokenizer(
    folder: Path,
    vocabularies: Vocabularies,
    subwords: Mapping[str, str],
    given: tuple[Path | None, Path | None],
    languages: tuple[str, str],
) -> tuple[Tokenizer, tuple[Numbering, Numbering], list[Path]]:
    """Return the tokenizer, the numberings of both vocabularies, and the files that were read.

    subwords: the names of the files that training used, by PAIR
    given: the files that the user names
    languages: of the source and of the target, whose rules Moses applies
    """
    by_merges = not any(SPACE in piece for piece in vocabularies.pieces[1])
    if by_merges and not any(piece.endswith(CONTINUED) for piece in vocabularies.pieces[1]):
        has = (
            f"the joiners ({JOINER}) of pyonmttok" if any(JOINER in each for each in vocabularies.pieces[1]) else "none"
        )
        raise SourceModelError(
            f"{vocabularies.origin}: its pieces must have the marks of sentencepiece ({SPACE}) or of subword-nmt "
            f"({CONTINUED}), they have {has}"
        )
    kinds, kind = (MERGES, "merges") if by_merges else (MODELS, "sentencepiece model")
    shared = () if by_merges else SHARED_MODELS
    sides = zip(PAIR, given, strict=True)
    paths = [
        path or _beside(folder, side, (subwords.get(side, ""), *kinds[side], *shared), kind) for side, path in sides
    ]
    make = _by_merges if by_merges else _by_models
    tokenizer, numberings = make(folder, vocabularies, paths, languages)
    return tokenizer, numberings, list(dict.fromkeys(paths))


def _beside(folder: Path, side: str, names: Sequence[str], kind: str) -> Path:
    known = [name for name in names if name]
    for name in known:
        if (folder / name).is_file():
            return folder / name
    option = "--source-pieces" if side == "src" else "--target-pieces"
    raise SourceModelError(f"{folder}: has no {kind} ({', '.join(known)}): name it, as in {option} FILE")


def _by_models(
    folder: Path, vocabularies: Vocabularies, paths: Sequence[Path], languages: tuple[str, str]
) -> tuple[Tokenizer, tuple[Numbering, Numbering]]:
    """Return the tokenizer of two sentencepiece models, which may be one. The languages do not matter."""
    source, target = vocabularies.pieces
    models = [read_model(read_file(path), str(path)) for path in paths]
    reserved = [vocabularies.reserved(each) for each in vocabularies.pieces]
    if source is target:
        of_source = renumber(source, vocabularies.special_ids(source, decoded=True), models, reserved[0])
        of_target = of_source
    else:
        of_source = renumber(source, vocabularies.special_ids(source, decoded=False), models[:1], reserved[0])
        of_target = renumber(target, vocabularies.special_ids(target, decoded=True), models[1:], reserved[1])
    numberings = of_source, of_target
    written = [rewrite(*each) for each in zip(models, numberings, reserved, strict=True)]
    join = tokenizer_of if source is target else Tokenizer
    return join(written[0], written[1], source_end=False), numberings


def _by_merges(
    folder: Path, vocabularies: Vocabularies, paths: Sequence[Path], languages: tuple[str, str]
) -> tuple[Tokenizer, tuple[Numbering, Numbering]]:
    """Return the tokenizer of Moses tokens that merges cut into pieces."""
    if not all(languages):
        raise SourceModelError(
            f"{folder}: Moses has rules for each language, and the files do not say the languages: name them, as in "
            "--languages en:de"
        )
    reserved = [vocabularies.reserved(each) for each in vocabularies.pieces]
    source, target = vocabularies.pieces
    of_target = renumber(
        with_word_ends(target, reserved[1]), vocabularies.special_ids(target, decoded=True), [], reserved[1]
    )
    of_source = of_target
    if source is not target:
        special = vocabularies.special_ids(source, decoded=False)
        of_source = renumber(with_word_ends(source, reserved[0]), special, [], reserved[0])
    merges = read_merges(paths[0]), read_merges(paths[1])
    numberings = of_source, of_target
    return moses_tokenizer(languages, numberings, merges, reserved[0] | reserved[1], source_end=False), numberings


# Checkpoints of OpenNMT-py.

LENGTH_PENALTIES = {2: 0.0, 3: 1.0}
"""Of a search by default, by the version of OpenNMT-py. That of Eole is as that of version 3, which counts the start
token too."""
CHANGING = ("prefix", "suffix", "terminology", "fuzzymatch", "inferfeats")
"""The transforms of texts that a model expects of every text, and that Lingon has not."""

PYONMTTOK = ("src_onmttok_kwargs", "tgt_onmttok_kwargs")
CHECKPOINTS = "*.pt"
BESIDE = "{stem}.*safetensors"  # the tensors of a checkpoint that has none itself: one file, or numbered ones
CLASSES = (
    "argparse.Namespace",
    "collections.defaultdict",
    "functools.partial",
    "onmt.",
    "torchtext.",
)
"""What a checkpoint names: its options, and the vocabularies of version 2, which are fields of torchtext."""


def is_opennmt_py(folder: Path) -> bool:
    """Return whether a folder has a checkpoint of OpenNMT-py, or a file of its suffix."""
    return not (folder / CONFIG).is_file() and any(folder.glob(CHECKPOINTS))


@dataclass(frozen=True, slots=True)
class PyCheckpoint:
    """What a checkpoint of OpenNMT-py holds.

    path: of the checkpoint
    beside: the files of its tensors, if it has none itself
    fields: its options
    version: 2 or 3. The options and the names of the tensors are those of both
    """

    path: Path
    beside: tuple[Path, ...]
    fields: JsonFields
    tensors: Tensors
    vocabularies: Vocabularies
    version: int


def open_opennmt_py(folder: Path) -> PyCheckpoint:
    """Open the checkpoint of a folder. No class that it names is loaded, and no code runs. Raises SourceModelError."""
    paths = sorted(folder.glob(CHECKPOINTS))
    if len(paths) != 1:
        raise SourceModelError(f"{folder}: must have one checkpoint, has {', '.join(path.name for path in paths[:3])}")
    path = paths[0]
    held = read_pickle(path, CLASSES)
    if not isinstance(held, dict) or not isinstance(held.get("opt"), Record) or not isinstance(held.get("vocab"), dict):
        raise SourceModelError(f"{path}: is no checkpoint of OpenNMT-py: it must have opt and vocab")
    beside = [] if "model" in held else sorted(folder.glob(BESIDE.format(stem=escape(path.stem))))
    tensors = _tensors_of(path, held) if "model" in held else open_safetensors(beside, path)
    vocab = held["vocab"]
    source, target = (_pieces_of(path, vocab.get(side)) for side in PAIR)
    vocabularies = Vocabularies(
        path, (source, source if source == target else target), str(vocab.get("decoder_start_token") or "<s>")
    )
    version = 3 if isinstance(vocab.get("src"), list) else 2
    return PyCheckpoint(path, tuple(beside), JsonFields(path, held["opt"].state), tensors, vocabularies, version)


def read_opennmt_py(
    folder: Path,
    longest: int | None = None,
    pieces: tuple[Path | None, Path | None] = (None, None),
    languages: tuple[str, str] = ("", ""),
) -> ForeignModel:
    """Read a folder with one checkpoint of OpenNMT-py 2 or 3.

    longest: source tokens that the model shall read
    pieces: the sentencepiece models, or the merges, of the source and of the target; None: those beside the checkpoint
    languages: of the source and of the target, for merges

    Raises SourceModelError.
    """
    found = open_opennmt_py(folder)
    fields, tensors = found.fields, found.tensors
    options = options_of_opennmt_py(fields, _width(tensors, OPENNMT_PY))
    _check_transforms(fields, fields.values.get("transforms"), fields.values.get("data"))
    subwords = {side: _name_of(fields.values.get(f"{side}_subword_model")) for side in PAIR}
    texts = _tokenizer(folder, found.vocabularies, subwords, pieces, languages)
    penalty = LENGTH_PENALTIES[found.version]
    return _foreign(tensors, found.vocabularies, options, texts, longest, (found.path, *found.beside), penalty)


def _tensors_of(path: Path, held: Mapping[str, Any]) -> Tensors:
    """Return the tensors of a checkpoint: those of the model, and those of the output, which version 2 numbers."""
    model, output = held["model"], held.get("generator") or {}
    if not isinstance(model, dict) or not isinstance(output, dict):
        raise SourceModelError(f"{path}: model and generator must hold tensors by name")
    found = {**model, **{f"generator.{str(name).removeprefix('0.')}": tensor for name, tensor in output.items()}}
    if wrong := [name for name, each in found.items() if not (isinstance(name, str) and isinstance(each, Tensor))]:
        raise SourceModelError(f"{path}: {wrong[0]!r} is no tensor with a name")
    return Tensors(path, readers_of(found))


def _pieces_of(path: Path, held: Any) -> list[str]:
    """Return the pieces of a side: a list, or the first of the fields of torchtext that version 2 saves."""
    if isinstance(held, list):
        return held
    fields = held.state.get("fields") if isinstance(held, Record) else None
    if not isinstance(fields, list) or len(fields) != 1:
        raise SourceModelError(f"{path}: a vocabulary must be a list of pieces, or one field of torchtext")
    _, field = fields[0]
    vocabulary = field.state.get("vocab") if isinstance(field, Record) else None
    found = vocabulary.state.get("itos") if isinstance(vocabulary, Record) else None
    if not isinstance(found, list):
        raise SourceModelError(f"{path}: a field of torchtext must have the pieces of a vocabulary")
    return found


def _check_transforms(fields: JsonFields, named: Any, data: Any) -> None:
    """Raise SourceModelError if the texts that a model was trained on had what Lingon does not give it.

    named: the transforms of all texts; data: the corpora, each of which may have others
    """
    corpora = [each for each in data.values() if isinstance(each, dict)] if isinstance(data, dict) else []
    found = [each for names in (named, *(each.get("transforms") for each in corpora)) for each in names or ()]
    if wrong := next((each for each in found if each in CHANGING), None):
        raise SourceModelError(
            f"{fields.path}: its texts had the transform {wrong}, which Lingon has not; the model would read others"
        )

    settings = [fields.values.get(name) or _option(fields, name) for name in PYONMTTOK]
    if "onmt_tokenize" in found and not all("none" in str(each) for each in settings):
        raise SourceModelError(
            f"{fields.path}: its texts were cut by pyonmttok; {PYONMTTOK[0]} must have the mode none, which leaves all "
            "to the sentencepiece model"
        )


def _name_of(path: Any) -> str:
    """Return the name of a file of whatever folder."""
    return path.replace("\\", "/").rpartition("/")[2] if isinstance(path, str) else ""


# Folders of Eole.

EOLE_VOCABULARY, EOLE_WEIGHTS = "vocab.json", "model.*.safetensors"


def is_eole(folder: Path) -> bool:
    """Return whether a folder has the files of a model of Eole."""
    return (folder / CONFIG).is_file() and (folder / EOLE_VOCABULARY).is_file() and any(folder.glob(EOLE_WEIGHTS))


def read_eole(
    folder: Path,
    longest: int | None = None,
    pieces: tuple[Path | None, Path | None] = (None, None),
    languages: tuple[str, str] = ("", ""),
) -> ForeignModel:
    """Read a folder. The arguments are those of `read_opennmt_py`. Raises SourceModelError."""
    config, vocab = JsonFields.read(folder / CONFIG), JsonFields.read(folder / EOLE_VOCABULARY)
    weights = sorted(folder.glob(EOLE_WEIGHTS))
    tensors = open_safetensors(weights, folder)
    source, target = (_pieces_of(vocab.path, vocab.values.get(side)) for side in PAIR)
    special = JsonFields(vocab.path, vocab.values.get("specials") or {})
    vocabularies = Vocabularies(
        vocab.path,
        (source, source if source == target else target),
        vocab.text("decoder_start_token", "<s>"),
        (special.text("pad_token", "<blank>"), special.text("eos_token", "</s>"), special.text("unk_token", "<unk>")),
    )
    options = options_of_eole(config, _width(tensors, EOLE))
    _check_transforms(config, config.values.get("transforms"), config.values.get("data"))
    subwords = {side: _name_of(_option(config, f"{side}_subword_model")) for side in PAIR}
    texts = _tokenizer(folder, vocabularies, subwords, pieces, languages)
    return _foreign(
        tensors, vocabularies, options, texts, longest, (config.path, vocab.path, *weights), LENGTH_PENALTIES[3]
    )


def _option(config: JsonFields, name: str) -> Any:
    """Return an option of the transforms of a folder, None if no transform has it."""
    transforms = config.values.get("transforms_configs")
    options = transforms.values() if isinstance(transforms, dict) else ()
    return next((each[name] for each in options if isinstance(each, dict) and each.get(name)), None)


# What both have in common.

LONGEST = 512  # tokens of a source, unless the user says otherwise: sinusoids reach farther than training texts


def _width(tensors: Tensors, toolkit: str) -> int:
    """Return the width of the rows of the source table."""
    name = NAMES[toolkit].tables["encoder"]
    shape = tensors.shape(name)
    if len(shape) != 2 or shape[1] < 4 or shape[1] % 2:
        raise SourceModelError(f"{tensors.origin}: {name} must be a table of an even number of columns, has {shape}")
    return shape[1]


def _foreign(
    tensors: Tensors,
    vocabularies: Vocabularies,
    options: Options,
    texts: tuple[Tokenizer, tuple[Numbering, Numbering], list[Path]],
    longest: int | None,
    files: tuple[Path, ...],
    penalty: float,
) -> ForeignModel:
    """Return the model of these parts."""
    tokenizer, (source, target), read = texts
    names, rows = NAMES[options.toolkit], vocabularies.sizes
    tables = find_tables(tensors, names, options, rows)
    if tables.tie == "all" and source is not target:
        raise SourceModelError(f"{tensors.origin}: source and target share a table, and have different vocabularies")
    longest = longest or LONGEST
    settings = _settings(tensors, tables, options, target, longest)
    reader = OpenNMTReader(tensors, names, tables, options, settings, source, target, rows)
    facts = Facts(
        form=options.toolkit,
        languages=("", ""),
        beam_size=5,
        length_penalty=penalty,
        longest=longest,
        alignment=options.alignment,
        files=(*files, *read),
        toolkit=options.toolkit,
    )
    notes = tensors.notes
    if options.key_heads != options.heads:
        notes.append(
            f"{options.key_heads} heads of keys and values are repeated for {options.heads} heads of queries, which "
            "changes no result"
        )
    return ForeignModel(settings, reader.weights(), tokenizer, source, target, facts, notes)


def _has_biases(tensors: Tensors) -> bool:
    """Return whether a product of a layer adds a bias."""
    return any(name.endswith(PRODUCT_BIASES) for name in tensors)


def _settings(
    tensors: Tensors, tables: Tables, options: Options, target: Numbering, longest: int
) -> TransformerSettings:
    dim = _width(tensors, options.toolkit)
    if longest > MOST_POSITIONS:
        raise SourceModelError(
            f"{tensors.origin}: reads {MOST_POSITIONS:,} tokens of a source at most, got {longest:,}"
        )
    sinusoidal = options.positions == "sinusoidal"
    return TransformerSettings(
        dim=dim,
        heads=options.heads,
        head_dim=dim // options.heads,
        ffn=options.ffn,
        encoder_layers=options.layers[0],
        decoder_layers=options.layers[1],
        norm="pre",
        norm_kind=options.norm,
        norm_epsilon=options.epsilon,
        activation=options.activation,
        gated=options.gated,
        bias=_has_biases(tensors),
        output_bias=OUTPUT_BIAS in tensors,
        scale_embedding=sinusoidal,
        positions=options.positions,
        sinusoids=options.sinusoids if sinusoidal else "interleaved",
        relative_buckets=options.buckets,
        relative_distance=options.distance,
        never_generated=target.never,
        tie=tables.tie,
        max_positions=longest + 1,
        dropout=0.1,
    )
