"""Models of CTranslate2 and of Argos Translate, by the names of Lingon."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingon.errors import SettingsError, SourceModelError
from lingon.importers.files.fields import JsonFields, first_twice, parse_json
from lingon.importers.files.pieces import (
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
from lingon.importers.foreign_model import Facts, ForeignModel, ForeignWeight, ReorderedRows
from lingon.importers.readers.codes import languages_by_code, languages_of_one_target, tags_of
from lingon.importers.readers.ctranslate2_files import (
    SCALE,
    Variables,
    read_variables,
    reads_source_end,
    special_tokens,
)
from lingon.importers.readers.opus_mt import CONFIG, MOST_POSITIONS, read_file
from lingon.text import Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import Activation, TransformerSettings
from lingon.training.models.layers import SinusoidForm, sinusoids

# The variables of a Transformer of CTranslate2, by the names of Lingon.
# Its names: encoder/layer_0/self_attention/linear_0/weight, decoder/layer_0/ffn/layer_norm/gamma and so on.

EMBEDDINGS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
PROJECTION, BIAS = "decoder/projection/weight", "decoder/projection/bias"
POSITIONS = {side: f"{side}/position_encodings/encodings" for side in EMBEDDINGS}


@dataclass(frozen=True, slots=True)
class CTranslate2Reader:
    """A reader of the variables of a model.

    source, target: the numberings of the two vocabularies. The row after the last one of a table is of zeros
    rows: the number of rows of the source and target tables
    """

    variables: Variables
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

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        source_rows, target_rows = self.rows
        source = self._with_zeros(self._take(EMBEDDINGS["encoder"], source_rows, self.settings.dim))
        yield "source_embedding.pieces.weight", ReorderedRows(source, self.source.rows)
        target = self._with_zeros(self._take(EMBEDDINGS["decoder"], target_rows, self.settings.dim))
        output = self._with_zeros(self._take(PROJECTION, target_rows, self.settings.dim))
        if self.settings.tie != "all":
            yield "target_embedding.pieces.weight", ReorderedRows(target, self.target.rows)
        if self.settings.tie == "none":
            yield "output.weight", ReorderedRows(output, self.target.rows)
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


# Folders of CTranslate2: a Transformer with its vocabularies, and sentencepiece models that lie beside it.

MODEL = "model.bin"
VOCABULARIES = ("shared", "source", "target")
PIECES = {"source": ("source.spm",), "target": ("target.spm",)}
SHARED_PIECES = ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu-tanh", "silu", "gelu", "quick-gelu")
"""By the numbers that CTranslate2 gives them."""
OFF = (
    "alibi",
    "alibi_use_positive_positions",
    "scale_alibi",
    "multi_query_attention",
    "embeddings_merge",
    "with_relative_position",
)
"""Numbers that are 0 in the models that Lingon computes."""
KNOWN = (
    "activation",
    "alignment_heads",
    "alignment_layer",
    "layernorm_embedding",
    "num_heads",
    "pre_norm",
    "scale_embeddings",
    "start_from_zero_embedding",
)
NORM_EPSILON = 1e-5
COMPUTED: tuple[SinusoidForm, int] = ("inclusive-halves", 1)
"""The form and the first position of the sinusoids that CTranslate2 computes for a model without a table."""
SAME_POSITIONS = 1e-3  # how far a saved table of sinusoids may be from the formula: some are saved in float16
UNKNOWN = "<unk>"
SILENT = {"<pad>", "<blank>", "<mask>"}
MARKED = re.compile(r"__[A-Za-z][\w-]*__|>>[^<>]+<<")
"""The codes of M2M-100 and of multilingual OPUS-MT."""


def is_ctranslate2(folder: Path) -> bool:
    """Return whether a folder has the files of a model of CTranslate2."""
    return (folder / MODEL).is_file() and any(_vocabulary_file(folder, name) for name in VOCABULARIES)


def read_ctranslate2(
    folder: Path,
    longest: int | None = None,
    pieces: tuple[Path | None, Path | None] = (None, None),
    targets: Sequence[str] = (),
    source_end: bool | None = None,
    *,
    callers_end: bool | None = None,
    moses: MosesMerges | None = None,
) -> ForeignModel:
    """Read a folder. Raises SourceModelError.

    longest: source tokens that the model shall read
    pieces: the sentencepiece models of the source and of the target; None: one beside the model
    targets: target languages that are wanted. A model whose decoder reads the code of the target language first, in the
        place of </s>, gets that of the first one: a bundle has one such row.
    source_end: whether a source ends with the end token. None is what the files say
    callers_end: whether the callers of such a folder write the end token. None is what the files tell
    moses: how texts are cut into Moses tokens and pieces, in the place of `pieces`
    """
    variables = read_variables(folder / MODEL)
    config = special_tokens(JsonFields.read_if_there(folder / CONFIG), folder / MODEL, variables)
    vocabularies = read_vocabularies(folder, config.text("unk_token", UNKNOWN))
    first = _first_code(folder, config, variables, vocabularies[1], targets)
    ends = reads_source_end(folder, config, variables, vocabularies[0], given=source_end, callers=callers_end)
    if moses is None:
        tokenizer, source, target, files = _tokenizer(folder, config, variables, vocabularies, pieces, first, ends=ends)
    else:
        tokenizer, source, target = _moses_tokenizer(config, variables, vocabularies, moses, ends=ends)
        files = [moses.path]
    table = _positions(variables)
    longest = longest or (512 if table is None else min(512, len(table) - 1))
    settings = _settings(config, variables, target, table, longest)
    rows = len(vocabularies[0]), len(vocabularies[1])
    reader = CTranslate2Reader(variables, settings, source, target, rows)
    facts = Facts(
        form="CTranslate2",
        languages=("", ""),
        beam_size=4,
        length_penalty=1.0,
        longest=longest,
        alignment=_alignment(variables, settings),
        files=(folder / MODEL, *([folder / CONFIG] if (folder / CONFIG).is_file() else []), *files),
        toolkit="CTranslate2",
    )
    languages = _languages(vocabularies[0], first)
    notes = variables.tensors.notes
    return ForeignModel(settings, reader.weights(), tokenizer, source, target, facts, notes, languages)


@dataclass(frozen=True, slots=True)
class MosesMerges:
    """The file of byte-pair merges of both sides, and their languages, whose rules Moses applies."""

    path: Path
    languages: tuple[str, str]


def _vocabulary_file(folder: Path, name: str) -> Path | None:
    """Return the file of a vocabulary, or None if there is none."""
    found = (folder / f"{name}_vocabulary{suffix}" for suffix in (".json", ".txt"))
    return next((path for path in found if path.is_file()), None)


def read_vocabularies(folder: Path, unknown: str) -> tuple[list[str], list[str]]:
    """Return the pieces of the source and of the target, one object if they share a vocabulary.

    unknown: the unknown piece, which CTranslate2 adds at the end of a vocabulary without it

    Raises SourceModelError if there is none, or a file is no list of pieces.
    """
    if shared := _vocabulary_file(folder, "shared"):
        both = _read_vocabulary(shared, unknown)
        return both, both
    paths = [_vocabulary_file(folder, name) for name in ("source", "target")]
    if None in paths:
        raise SourceModelError(f"{folder}: has neither shared_vocabulary nor source_vocabulary and target_vocabulary")
    source, target = (_read_vocabulary(path, unknown) for path in paths if path is not None)
    return source, target


def _read_vocabulary(path: Path, unknown: str) -> list[str]:
    try:
        text = read_file(path).decode("utf-8")
        found: Any = parse_json(text) if path.suffix == ".json" else _lines(text)
    except ValueError:
        raise SourceModelError(f"{path}: must be a list of pieces") from None
    if not (isinstance(found, list) and found and all(isinstance(piece, str) for piece in found)):
        raise SourceModelError(f"{path}: must be a list of pieces")
    if (twice := first_twice(found)) is not None:
        raise SourceModelError(f"{path}: has the piece {twice!r} twice")
    return found if unknown in found else [*found, unknown]


def _lines(text: str) -> list[str]:
    """Return the lines of a vocabulary. If all end with a carriage return, that is no part of the pieces."""
    lines = text.removesuffix("\n").split("\n")
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines


def _tokenizer(
    folder: Path,
    config: JsonFields,
    variables: Variables,
    vocabularies: tuple[list[str], list[str]],
    given: tuple[Path | None, Path | None],
    first: str,
    *,
    ends: bool,
) -> tuple[Tokenizer, Numbering, Numbering, list[Path]]:
    """Return the tokenizer, the numberings of both vocabularies, and the files that were read.

    ends: whether a source ends with the end token
    """
    sides = zip(PIECES.items(), given, strict=True)
    paths = [path or _pieces(folder, side, (*names, *SHARED_PIECES)) for (side, names), path in sides]
    models = [read_model(read_file(path), str(path)) for path in paths]
    source, target = vocabularies
    if source is target:
        codes = _codes(source)
        numbering = renumber([*source, _zeros(source)], _special(config, variables, source, first), models, codes)
        written = [rewrite(model, numbering, codes) for model in models]
        return tokenizer_of(written[0], written[1], source_end=ends), numbering, numbering, paths
    specials = [
        _source_special(config, variables, source, first, ends=ends),
        _special(config, variables, target, first),
    ]
    numberings = [
        renumber([*each, _zeros(each)], special, [model], _codes(each))
        for each, special, model in zip(vocabularies, specials, models, strict=True)
    ]
    written = [
        rewrite(model, numbering, _codes(each))
        for model, numbering, each in zip(models, numberings, vocabularies, strict=True)
    ]
    return Tokenizer(written[0], written[1], source_end=ends), numberings[0], numberings[1], paths


def _moses_tokenizer(
    config: JsonFields,
    variables: Variables,
    vocabularies: tuple[list[str], list[str]],
    moses: MosesMerges,
    *,
    ends: bool,
) -> tuple[Tokenizer, Numbering, Numbering]:
    """Return the tokenizer of Moses tokens that byte-pair merges cut, and the numberings of both vocabularies."""
    merges = read_merges(moses.path)
    specials = [
        _source_special(config, variables, vocabularies[0], "", ends=ends),
        _special(config, variables, vocabularies[1], ""),
    ]
    numberings = [_of_words(*each) for each in zip(vocabularies, specials, strict=True)]
    reserved = set().union(*(_codes(each) for each in vocabularies))
    both = numberings[0], numberings[1]
    tokenizer = moses_tokenizer(moses.languages, both, (merges, merges), reserved, plain=True, source_end=ends)
    return tokenizer, *both


def _of_words(vocabulary: list[str], special: SpecialIds) -> Numbering:
    """Return the new ids of a vocabulary whose pieces say which ones do not end a word."""
    rows = [*vocabulary, _zeros(vocabulary)]
    named = {rows[each] for each in special} | _codes(vocabulary)
    numbering = renumber(with_word_ends(rows, named), special, [], _codes(vocabulary))
    return replace(numbering, written=tuple(rows[row] for row in numbering.rows))


def _pieces(folder: Path, side: str, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise SourceModelError(
        f"{folder}: has no sentencepiece model ({', '.join(names)}): name it, as in --{side}-pieces FILE"
    )


def _zeros(vocabulary: Sequence[str]) -> str:
    """Return a name for the row of zeros after the last one, which no piece has."""
    name, taken = "<zeros>", set(vocabulary)
    while name in taken:
        name = f"<{name}>"
    return name


def _starts_from_zero(variables: Variables) -> bool:
    """Return whether the decoder first reads zeros."""
    return bool(variables.scalars.get("decoder/start_from_zero_embedding", 0))


def _first_code(
    folder: Path, config: JsonFields, variables: Variables, vocabulary: Sequence[str], targets: Sequence[str]
) -> str:
    """Return the code of the target language that the decoder reads first, or "" if it reads another token."""
    if _starts_from_zero(variables) or config.values.get("decoder_start_token", "") is not None:
        return ""
    codes = {tag.lower(): code for tag, code in tags_of(_plain_codes(vocabulary)).items()}
    if not codes:
        raise config.error("decoder_start_token", "must be a piece: the vocabulary has no codes such as de_DE")
    if len(targets) != 1 or targets[0].lower() not in codes:
        raise SettingsError(
            f"{folder}: the decoder starts with the code of the target language, so that a bundle has one; name it, as "
            f"in --languages en,fr:de; it has {', '.join(sorted(codes))}"
        )
    return codes[targets[0].lower()]


def _special(config: JsonFields, variables: Variables, vocabulary: list[str], first: str) -> SpecialIds:
    """Return the special ids. The padding is the row of zeros after the last one. first: see `_first_code`."""

    def place(name: str, default: str) -> int:
        token = config.text(name, default)
        if token not in vocabulary:
            raise config.error(name, "must be a piece of the vocabulary")
        return vocabulary.index(token)

    if config.flag("add_source_bos", False):
        raise config.error("add_source_bos", "must be false: Lingon's models read no start token before a text")
    zeros = len(vocabulary)
    if _starts_from_zero(variables) or (first and first not in vocabulary):  # a source has no start
        start = zeros
    else:
        start = vocabulary.index(first) if first else place("decoder_start_token", "<s>")
    return SpecialIds(zeros, start, place("eos_token", "</s>"), place("unk_token", "<unk>"))


def _source_special(
    config: JsonFields, variables: Variables, vocabulary: list[str], first: str, *, ends: bool
) -> SpecialIds:
    """Return the special ids of a source vocabulary, which may lack the tokens that no source has.

    first: see `_first_code`
    ends: whether a source ends with the end token
    """
    zeros, tokens = len(vocabulary), [config.text("decoder_start_token", "<s>"), config.text("eos_token", "</s>")]
    if ends or all(token in vocabulary for token in tokens):
        return _special(config, variables, vocabulary, first)
    start, eos = (vocabulary.index(token) if token in vocabulary else zeros for token in tokens)
    unknown = config.text("unk_token", UNKNOWN)
    return SpecialIds(zeros, start, eos, vocabulary.index(unknown))


def _codes(vocabulary: Sequence[str]) -> set[str]:
    """Return the pieces that no text may become: padding and the codes of languages."""
    return {*filter(MARKED.fullmatch, vocabulary), *_plain_codes(vocabulary), *(SILENT & set(vocabulary))}


def _plain_codes(vocabulary: Sequence[str]) -> list[str]:
    """Return codes such as deu_Latn and de_DE, which stand together at the end of a vocabulary."""
    end = list(vocabulary[-300:])
    found = [piece for piece in end if len(piece) in (5, 8) and piece[2:3] + piece[3:4] != "__" and "_" in piece[2:4]]
    shaped = [each for each in found if each.partition("_")[2][:1].isupper() and each.partition("_")[0].islower()]
    return shaped if len(shaped) >= 2 else []


def _languages(vocabulary: Sequence[str], first: str) -> LanguageSettings | None:
    """Return the languages of a model that is told them by codes, or None for one of a pair. first: see
    `_first_code`.
    """
    if first and first not in vocabulary:  # two vocabularies: no source has a code
        return None
    if first:
        return languages_of_one_target(_plain_codes(vocabulary), first, "after")
    marked = list(filter(MARKED.fullmatch, vocabulary))
    if [piece for piece in marked if piece.startswith(">>")]:
        return languages_by_code(set(marked), ("", ""))
    found = (tags_of(codes) for codes in (marked, _plain_codes(vocabulary)))
    tags = next((each for each in found if len(each) > 1), None)
    if tags is None:
        return None
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": tag, "before": [code]} for tag, code in tags.items()],
            "targets": [{"language": tag, "forced": [code]} for tag, code in tags.items()],
        }
    )


def _positions(variables: Variables) -> Tensor | None:
    """Return the table of positions (positions, dim), or None if CTranslate2 computes sinusoids."""
    name, origin = POSITIONS["decoder"], variables.tensors.origin
    if other := next((each for each in variables.names if "/relative_" in each), ""):
        raise SourceModelError(f"{origin}: has {other}; relative positions are not read")
    if (name in variables.names) != (POSITIONS["encoder"] in variables.names):
        raise SourceModelError(f"{origin}: encoder and decoder must both have a table of positions, or none")
    if name not in variables.names:
        return None
    shape = variables.shapes[variables.names[name]]
    if len(shape) != 2 or not 2 <= shape[0] <= MOST_POSITIONS + 1:
        raise SourceModelError(f"{origin}: {name} must be a table of 2 to {MOST_POSITIONS + 1:,} rows, has {shape}")
    return variables.tensors.take(name, shape)


def _formula(table: Tensor) -> tuple[SinusoidForm, int] | None:
    """Return the form and the first position of sinusoids, or None if a table is of learned positions."""
    rows, dim = table.shape
    forms: tuple[SinusoidForm, ...] = ("halves", "interleaved", *(("inclusive-halves",) if dim >= 4 else ()))
    for form in forms if dim % 2 == 0 else ():
        for first in range(3):
            if float((sinusoids(rows, dim, form, first) - table).abs().max()) < SAME_POSITIONS:
                return form, first
    return None


def _settings(
    config: JsonFields, variables: Variables, target: Numbering, table: Tensor | None, longest: int
) -> TransformerSettings:
    dim, heads = _width(variables), int(_of_both(variables, "num_heads"))
    _check(variables, dim, heads)
    formula, names = COMPUTED if table is None else _formula(table), variables.names
    saved = longest + 1 if table is None else len(table)
    if formula is None and longest >= saved:
        raise SourceModelError(
            f"{variables.tensors.origin}: has {saved:,} learned positions, must have {longest + 1:,} or more"
        )
    tied = names.get(PROJECTION) == names.get(EMBEDDINGS["decoder"])
    shared = names.get(EMBEDDINGS["encoder"]) == names.get(EMBEDDINGS["decoder"])
    return TransformerSettings(
        dim=dim,
        heads=heads,
        head_dim=dim // heads,
        ffn=_inner_width(variables),
        encoder_layers=_layers(variables, "encoder"),
        decoder_layers=_layers(variables, "decoder"),
        norm="pre" if _of_both(variables, "pre_norm") else "post",
        norm_epsilon=config.number("layer_norm_epsilon", 1e-12, 0.1, default=NORM_EPSILON),
        embedding_norm="encoder/layernorm_embedding/gamma" in names,
        activation=ACTIVATIONS[int(_of_both(variables, "activation"))],
        output_bias=BIAS in names,
        scale_embedding=_is_scaled(variables, dim),
        positions="sinusoidal" if formula else "learned",
        sinusoids=formula[0] if formula else "interleaved",
        first_position=formula[1] if formula else 0,
        never_generated=target.never,
        tie="none" if not tied else "all" if shared else "decoder",
        max_positions=max(longest + 1, saved) if formula else saved,
        dropout=0.1,
    )


def _width(variables: Variables) -> int:
    """Return the width of the rows of the target table."""
    name, origin = EMBEDDINGS["decoder"], variables.tensors.origin
    if name not in variables.names:
        raise SourceModelError(f"{origin}: has no tensor {name}")
    shape = variables.shapes[variables.names[name]]
    if len(shape) != 2 or shape[1] < 4:
        raise SourceModelError(f"{origin}: {name} must be a table of rows of 4 numbers or more, has {shape}")
    return shape[1]


def _inner_width(variables: Variables) -> int:
    """Return the width between the products of a feed-forward block; 1, which no weight has, if its bias is missing."""
    bias = "encoder/layer_0/ffn/linear_0/bias"
    return variables.shapes.get(variables.names.get(bias, bias), (1,))[0]  # equal arrays are saved once, under one name


def _check(variables: Variables, dim: int, heads: int) -> None:
    """Raise SourceModelError if a number is not that of a model that Lingon computes."""
    origin = variables.tensors.origin
    for name, value in variables.scalars.items():
        if name.rpartition("/")[2] in OFF and value:
            raise SourceModelError(f"{origin}: {name} must be 0, is {value:g}")
    numbers = [name for name in variables.scalars if not name.endswith(SCALE)]
    if unknown := [name for name in numbers if name.rpartition("/")[2] not in (*OFF, *KNOWN)][:1]:
        raise SourceModelError(f"{origin}: has the number {unknown[0]}, which Lingon does not know")
    activation = _of_both(variables, "activation")
    if activation not in range(len(ACTIVATIONS)):
        raise SourceModelError(f"{origin}: activation must be 0 to {len(ACTIVATIONS) - 1}, is {activation:g}")
    if heads < 1 or dim % (2 * heads):
        raise SourceModelError(f"{origin}: the width ({dim}) must be even and a multiple of num_heads ({heads})")


def _of_both(variables: Variables, name: str) -> float:
    """Return a number that is the same for the encoder and the decoder."""
    found = [variables.scalars.get(f"{side}/{name}") for side in EMBEDDINGS]
    if found[0] is None or found[0] != found[1]:
        raise SourceModelError(f"{variables.tensors.origin}: {name} of encoder and decoder must be equal, are {found}")
    return found[0]


def _is_scaled(variables: Variables, dim: int) -> bool:
    """Return whether rows of the tables are multiplied by the square root of the width."""
    scale = _of_both(variables, "scale_embeddings")
    if isinstance(scale, int) or scale == 1.0:
        return isinstance(scale, int) and bool(scale)
    if not math.isclose(scale, math.sqrt(dim), rel_tol=1e-3):
        raise SourceModelError(
            f"{variables.tensors.origin}: scale_embeddings must be 1 or the square root of {dim}, is {scale:g}"
        )
    return True


def _layers(variables: Variables, side: str) -> int:
    """Return the number of layers. An empty side is refused where its tensors are taken."""
    found = {name.split("/")[1] for name in variables.names if name.startswith(f"{side}/layer_")}
    return max(len([each for each in found if each.removeprefix("layer_").isdigit()]), 1)


def _alignment(variables: Variables, settings: TransformerSettings) -> tuple[int, tuple[int, ...]] | None:
    """Return the decoder layer and its heads whose attention gives alignments."""
    layer = int(variables.scalars.get("decoder/alignment_layer", -1))
    heads = int(variables.scalars.get("decoder/alignment_heads", 1))
    layer = layer + settings.decoder_layers if layer < 0 else layer
    if not 0 <= layer < settings.decoder_layers or not 0 <= heads <= settings.heads:
        return None
    return layer, tuple(range(heads or settings.heads))


# Packages of Argos Translate, which LibreTranslate uses: a folder of CTranslate2, its pieces, and the languages.

ARGOS_METADATA, ARGOS_MODEL, ARGOS_PIECES, ARGOS_MERGES = "metadata.json", "model", "sentencepiece.model", "bpe.model"
TAGS = {"pb": "pt-BR", "zt": "zh-Hant"}
"""The codes of Argos Translate that are no language tags."""
LENGTH_PENALTY = 0.2  # with which Argos Translate searches


def is_argos(folder: Path) -> bool:
    """Return whether a folder is a package of Argos Translate, unpacked."""
    return (folder / ARGOS_METADATA).is_file() and is_ctranslate2(folder / ARGOS_MODEL)


def ctranslate2_folder(folder: Path) -> Path:
    """Return the folder of CTranslate2 in a package, or the folder itself if it is no package."""
    return folder / ARGOS_MODEL if is_argos(folder) else folder


def read_argos(
    folder: Path, longest: int | None, source_end: bool | None = None, targets: Sequence[str] = ()
) -> ForeignModel:
    """Read a package. Raises SourceModelError. The arguments are those of `read_ctranslate2`.

    Argos Translate gives CTranslate2 the pieces of a text and nothing else. A package of a model of several languages
    has a target prefix besides, the code that every translation begins with.
    """
    metadata = JsonFields.read(folder / ARGOS_METADATA)
    if metadata.text("type", "translate") != "translate":
        raise metadata.error("type", "must be 'translate'")
    languages = [TAGS.get(code, code) for code in (metadata.text("from_code", ""), metadata.text("to_code", ""))]
    pieces, merges = folder / ARGOS_PIECES, folder / ARGOS_MERGES
    if not pieces.is_file() and not merges.is_file():
        raise SourceModelError(f"{folder}: has neither {ARGOS_PIECES} nor {ARGOS_MERGES}")
    moses = None if pieces.is_file() else MosesMerges(merges, (languages[0], languages[1]))
    source = read_ctranslate2(
        folder / ARGOS_MODEL, longest, (pieces, pieces), targets, source_end, callers_end=False, moses=moses
    )
    facts = replace(
        source.facts,
        form="Argos Translate",
        languages=(languages[0], languages[1]),
        length_penalty=LENGTH_PENALTY,
        files=(folder / ARGOS_METADATA, *source.facts.files),
    )
    prefix = metadata.text("target_prefix", "")
    if not prefix:
        return replace(source, facts=facts)
    if prefix not in source.target.pieces:
        raise metadata.error("target_prefix", "must be a piece of the target vocabulary")
    forced = {"sources": [{"language": languages[0]}], "targets": [{"language": languages[1], "forced": [prefix]}]}
    return replace(source, facts=facts, languages=LanguageSettings.model_validate(forced))
