"""Models of Marian, by the names of Lingon: OPUS-MT as it is published by its authors, and the students of Firefox."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.export.graphs.quantisation import InputRange
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
from lingon.importers.files.tensors import Tensors
from lingon.importers.foreign_model import Facts, ForeignModel, ForeignWeight, ReorderedRows
from lingon.importers.readers.codes import languages_by_code
from lingon.importers.readers.marian_files import (
    CONTROL_BYTES,
    LEXICONS,
    METADATA,
    NORM_EPSILON,
    DecoderOptions,
    MarianOptions,
    MarianVocabulary,
    first,
    languages_of,
    model_file,
    open_model,
    read_decoder_options,
    read_lexicon,
    read_vocabularies,
    spare,
)
from lingon.text import Tokenizer
from lingon.training.model_settings import TransformerSettings

# The tensors of Marian by the names of Lingon, and the ranges of its 8-bit products.
# Its names: encoder_l1_self_Wq, decoder_l1_context_bo, encoder_l1_ffn_W1, encoder_l1_self_Wo_ln_scale and so on.
# Numbers of layers begin with 1. A name of a norm ends in _pre if the norm comes before the layer. That of an SSRU has
# another name there.

TABLE, TABLES = "Wemb", {"source": "encoder_Wemb", "target": "decoder_Wemb"}
OUTPUT, OUTPUT_TRANSPOSED, BIAS = "decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"
POSITIONS = "Wpos"
ALPHA = "_QuantMultA"  # suffix of the activation scale of a product
OUTPUT_ALPHAS = (TABLE, TABLES["target"], OUTPUT, OUTPUT_TRANSPOSED, "none")
"""The names of the output product. The first with a scale is that of the model, as in the engine of the browsers.

Scales that are measured with a shortlist have no name. Marian's tools write them under both names, equal.
"""

LARGEST = 127  # of an 8-bit value


@dataclass(frozen=True, slots=True)
class MarianReader:
    """A reader of the tensors of a model.

    source, target: the numberings of the two vocabularies. The row after the last one of a table is of zeros, which the
        decoder reads first
    rows: the number of rows of the source and target tables
    """

    tensors: Tensors
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
        for number in range(settings.encoder_layers):
            yield from self._encoder_layer(number)
        for number in range(settings.decoder_layers):
            yield from self._decoder_layer(number)
        for side, ours in (("encoder", "source"), ("decoder", "target")):
            if settings.final_norm:
                yield from self._norm(f"{side}_norm", f"{side}_top", "")
            if settings.embedding_norm:
                yield from self._norm(f"{ours}_embedding.norm", f"{side}_emb", "_pre")
            if settings.positions == "learned":
                shape = (settings.max_positions, settings.dim)
                yield f"{ours}_embedding.positions", self.tensors.take(POSITIONS, shape)
        if settings.output_bias:
            bias = self.tensors.take(BIAS, (1, self.rows[1]))[0]
            yield "output.bias", torch.cat([bias, bias.new_zeros(1)])[list(self.target.rows)]
        self.tensors.check_all_taken()

    def ranges(self) -> dict[str, InputRange] | None:
        """Return the ranges of the inputs of all products, which a model for 8-bit integers is trained with.

        None if the files have none, or none for the output. A range holds those of all products that read the same
        input.
        """
        if not any(name.endswith(ALPHA) for name in self.tensors):
            return None
        settings, found = self.settings, dict[str, InputRange]()
        inner = 0.0 if settings.activation == "relu" else -1.0
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers)):
            for number in range(layers):
                theirs, ours = f"{side}_l{number + 1}", f"{side}.{number}"
                if side == "decoder" and settings.decoder_cell == "ssru":
                    found[f"{ours}.attention.gates"] = self._range([f"{theirs}_rnn_W", f"{theirs}_rnn_Wf"])
                else:
                    for product, parts in self._packed(f"{ours}.attention.qkv").items():
                        found[product] = self._range([f"{theirs}_self_W{each}" for each in parts])
                    found[f"{ours}.attention.output"] = self._range([f"{theirs}_self_Wo"])
                if side == "decoder":
                    found[f"{ours}.cross.query"] = self._range([f"{theirs}_context_Wq"])
                    found[f"{ours}.cross.output"] = self._range([f"{theirs}_context_Wo"])
                found[f"{ours}.feed_forward.inner"] = self._range([f"{theirs}_ffn_W1"])
                found[f"{ours}.feed_forward.outer"] = self._range([f"{theirs}_ffn_W2"], lowest=inner)
        numbers = range(settings.decoder_layers)
        found["memory"] = self._range([f"decoder_l{each + 1}_context_W{part}" for each in numbers for part in "kv"])
        found |= {f"decoder.{each}.cross.key_value": found["memory"] for each in numbers}
        there = [name for name in (*OUTPUT_ALPHAS, TABLES["source"]) if f"{name}{ALPHA}" in self.tensors]
        self.tensors.taken.update(f"{name}{ALPHA}" for name in there)  # one at most is used
        output = next((name for name in OUTPUT_ALPHAS if name in there and self._scale(name) is not None), None)
        if output is None:
            names = ", ".join(f"{name}{ALPHA}" for name in ("none", TABLE, TABLES["target"]))
            self.tensors.notes.append(
                f"has no scale for the output ({names}): int8 has ranges that are measured on text"
            )
            return None
        found["output"] = self._range([output])
        return found

    def _range(self, names: Sequence[str], lowest: float = -1.0) -> InputRange:
        """Return the range of a product: the scale of an activation x is a, where round(a x) is within +-127."""
        scales = [scale for name in names if (scale := self._scale(name)) is not None]
        if len(scales) < len(names):
            raise SourceModelError(f"{self.tensors.origin}: {names[0]}{ALPHA} is empty")
        largest = LARGEST / min(scales)
        return InputRange(lowest * largest, largest)

    def _scale(self, product: str) -> float | None:
        """Return the scale of the input of a product, or None if its tensor has no element."""
        name = f"{product}{ALPHA}"
        shape = self.tensors.shape(name)
        found = self.tensors.take(name, shape).flatten().tolist()
        if not found:
            return None
        if len(found) > 1 or not (math.isfinite(found[0]) and found[0] > 0):
            raise SourceModelError(f"{self.tensors.origin}: {name} must be one number above 0, is {found[:3]}")
        return float(found[0])

    def _tables(self) -> Iterator[tuple[str, ForeignWeight]]:
        tie = self.settings.tie
        source = self._table(TABLE if TABLE in self.tensors else TABLES["source"], self.rows[0])
        yield "source_embedding.pieces.weight", ReorderedRows(source, self.source.rows)
        if tie == "all":
            return
        target = source if TABLE in self.tensors else self._table(TABLES["target"], self.rows[1])
        yield "target_embedding.pieces.weight", ReorderedRows(target, self.target.rows)
        if tie == "none":
            yield "output.weight", ReorderedRows(self._output(), self.target.rows)

    def _table(self, name: str, rows: int) -> Tensor:
        """Return a table of pieces with a last row of zeros."""
        table = self.tensors.take(name, (rows, self.settings.dim))
        return torch.cat([table, table.new_zeros(1, self.settings.dim)])

    def _output(self) -> Tensor:
        """Return the output matrix (rows + 1, dim)."""
        dim, rows = self.settings.dim, self.rows[1]
        if OUTPUT_TRANSPOSED in self.tensors:
            return self._table(OUTPUT_TRANSPOSED, rows)
        matrix = self.tensors.take(OUTPUT, (dim, rows)).T
        return torch.cat([matrix, matrix.new_zeros(1, dim)])

    def _encoder_layer(self, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours = f"encoder_l{number + 1}", f"encoder.{number}"
        yield from self._self_attention(ours, theirs)
        yield from self._feed_forward(ours, theirs)

    def _decoder_layer(self, number: int) -> Iterator[tuple[str, Tensor]]:
        theirs, ours = f"decoder_l{number + 1}", f"decoder.{number}"
        if self.settings.decoder_cell == "ssru":
            yield from self._cell(ours, theirs)
        else:
            yield from self._self_attention(ours, theirs)
        width, dim, cross = self.settings.attention_dim, self.settings.dim, f"{theirs}_context"
        yield from self._affine(f"{ours}.cross.query", cross, "q", dim, width)
        yield from self._affine(f"{ours}.cross.key_value", cross, "kv", dim, width)
        yield from self._affine(f"{ours}.cross.output", cross, "o", width, dim)
        yield from self._norms(f"{ours}.around_cross", f"{cross}_Wo")
        yield from self._feed_forward(ours, theirs)

    def _self_attention(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        width, dim = self.settings.attention_dim, self.settings.dim
        for product, parts in self._packed(f"{ours}.attention.qkv").items():
            yield from self._affine(product, f"{theirs}_self", parts, dim, width)
        yield from self._affine(f"{ours}.attention.output", f"{theirs}_self", "o", width, dim)
        if not self.settings.query_norm:
            yield from self._norms(f"{ours}.around_attention", f"{theirs}_self_Wo")
            return
        yield from self._norm(f"{ours}.attention.qkv.norm", f"{theirs}_self_Wo", "_pre")
        if self.settings.norm == "both":
            yield from self._norm(f"{ours}.around_attention.norm", f"{theirs}_self_Wo", "")

    def _packed(self, qkv: str) -> dict[str, str]:
        """Return the products of a self-attention, with those of theirs (q, k, v) that each packs."""
        return {f"{qkv}.query": "q", f"{qkv}.key_value": "kv"} if self.settings.query_norm else {qkv: "qkv"}

    def _cell(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the product of an SSRU, whose gate comes first. The value has no bias."""
        dim = self.settings.dim
        matrices = [self.tensors.take(f"{theirs}_rnn_{name}", (dim, dim)).T for name in ("Wf", "W")]
        bias = self.tensors.take(f"{theirs}_rnn_bf", (1, dim))[0]
        yield f"{ours}.attention.gates.weight", torch.cat(matrices)
        yield f"{ours}.attention.gates.bias", torch.cat([bias, bias.new_zeros(dim)])
        yield from self._norms(f"{ours}.around_attention", f"{theirs}_rnn_ffn", f"{theirs}_rnn")

    def _feed_forward(self, ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
        dim, ffn = self.settings.dim, self.settings.ffn
        yield from self._affine(f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1", dim, ffn)
        yield from self._affine(f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2", ffn, dim)
        yield from self._norms(f"{ours}.around_feed_forward", f"{theirs}_ffn_ffn")

    def _affine(self, ours: str, theirs: str, parts: str, inputs: int, outputs: int) -> Iterator[tuple[str, Tensor]]:
        """Yield weight and bias of a product that packs several of theirs, each (inputs, outputs)."""
        matrices = [self.tensors.take(f"{theirs}_W{part}", (inputs, outputs)).T for part in parts]
        yield f"{ours}.weight", torch.cat(matrices)
        yield f"{ours}.bias", torch.cat([self.tensors.take(f"{theirs}_b{part}", (1, outputs))[0] for part in parts])

    def _norms(self, ours: str, after: str, before: str = "") -> Iterator[tuple[str, Tensor]]:
        """Yield the norms around a layer; after, before: what their names begin with, by default the same."""
        if self.settings.norm != "post":
            yield from self._norm(f"{ours}.norm", before or after, "_pre")
        if self.settings.norm != "pre":
            yield from self._norm(f"{ours}.norm{'_after' if self.settings.norm == 'both' else ''}", after, "")

    def _norm(self, ours: str, theirs: str, suffix: str) -> Iterator[tuple[str, Tensor]]:
        for part, name in (("weight", "scale"), ("bias", "bias")):
            yield f"{ours}.{part}", self.tensors.take(f"{theirs}_ln_{name}{suffix}", (1, self.settings.dim))[0]


# A folder with a model of Marian: OPUS-MT as it is published by its authors, or a student of Firefox.

SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
MERGES = ("source.bpe", "target.bpe")  # of models before sentencepiece, whose text is Moses tokens
LONGEST = 512  # source tokens of a model without learned positions, by default


def read_marian(folder: Path, longest: int | None = None, pair: tuple[str, str] = ("", "")) -> ForeignModel:
    """Read a folder. Raises SourceModelError.

    longest: source tokens that the model shall read
    pair: the languages, "" where the files say them
    """
    decoder = read_decoder_options(folder)
    path = model_file(folder, decoder)
    tensors, text = open_model(path)
    options = MarianOptions.parse(path, text)
    vocabularies = read_vocabularies(folder, decoder)
    rows = _rows(tensors, vocabularies)
    named = languages_of(folder, path)
    if has_merges(folder):
        languages = pair[0] or named[0], pair[1] or named[1]
        tokenizer, source, target = _moses_tokenizer(folder, vocabularies, rows, languages)
    else:
        tokenizer, source, target = _tokenizer(folder, vocabularies, rows)
    settings = _settings(options, tensors, target, longest, joint=tokenizer.joint)
    reader = MarianReader(tensors, settings, source, target, rows)
    ranges = reader.ranges()
    facts = _facts(folder, path, options, decoder, settings, [each.path for each in vocabularies])
    facts = replace(facts, longest=longest or facts.longest)
    codes = vocabularies[0].codes
    lexicon = first(folder, LEXICONS)
    shared = vocabularies[0] is vocabularies[1]
    shortlist = None if lexicon is None else read_lexicon(lexicon, source, target, rows, shared=shared)
    return ForeignModel(
        settings,
        reader.weights(),
        tokenizer,
        source,
        target,
        facts,
        tensors.notes,
        languages_by_code(codes, facts.languages),
        shortlist=shortlist,
        ranges=ranges,
    )


def _rows(tensors: Tensors, vocabularies: tuple[MarianVocabulary, MarianVocabulary]) -> tuple[int, int]:
    """Return the numbers of rows of the tables, each at least the number of pieces."""
    found = []
    for side, vocabulary in zip(("source", "target"), vocabularies, strict=True):
        name = TABLE if TABLE in tensors else TABLES[side]
        rows = tensors.rows(name)
        if rows < len(vocabulary.pieces):
            raise SourceModelError(
                f"{tensors.origin}: {name} must have a row for each of the {len(vocabulary.pieces):,} pieces of "
                f"{vocabulary.path.name}, has {rows:,}"
            )
        found.append(rows)
    return found[0], found[1]


def _tokenizer(
    folder: Path, vocabularies: tuple[MarianVocabulary, MarianVocabulary], rows: tuple[int, int]
) -> tuple[Tokenizer, Numbering, Numbering]:
    """Return the tokenizer with the new ids, and the numberings of the source and of the target vocabulary."""
    segmenters = [
        vocabulary.segmenter or _segmenter(folder / name)
        for vocabulary, name in zip(vocabularies, (SOURCE_PIECES, TARGET_PIECES), strict=True)
    ]
    source, target = vocabularies
    if source is target:
        numbering, silent = _renumbered(source, rows[0], segmenters)
        written = [rewrite(segmenter, numbering, silent) for segmenter in segmenters]
        return tokenizer_of(written[0], written[1]), numbering, numbering
    (of_source, of_target), silences = zip(
        *(_renumbered(*each) for each in zip(vocabularies, rows, [[one] for one in segmenters], strict=True)),
        strict=True,
    )
    written = [rewrite(*each) for each in zip(segmenters, (of_source, of_target), silences, strict=True)]
    return Tokenizer(written[0], written[1]), of_source, of_target


def has_merges(folder: Path) -> bool:
    """Return whether a model cuts Moses tokens by byte-pair merges."""
    return any((folder / name).is_file() for name in MERGES)


def _moses_tokenizer(
    folder: Path,
    vocabularies: tuple[MarianVocabulary, MarianVocabulary],
    rows: tuple[int, int],
    languages: tuple[str, str],
) -> tuple[Tokenizer, Numbering, Numbering]:
    """Return the tokenizer of a model with byte-pair merges, and the numberings of both vocabularies."""
    if not all(languages):
        raise SourceModelError(
            f"{folder}: Moses has rules for each language, and the files do not say the languages: name them, as in "
            "--languages en:de"
        )
    merges = read_merges(folder / MERGES[0]), read_merges(folder / MERGES[1])
    found, reserved = [], set[str]()
    for vocabulary, count in zip(vocabularies, rows, strict=True):
        special = {*vocabulary.codes, vocabulary.pieces[vocabulary.eos], vocabulary.pieces[vocabulary.unk]}
        numbering, silent = _renumbered(
            replace(vocabulary, pieces=with_word_ends(vocabulary.pieces, special)), count, []
        )
        own, named = vocabulary.pieces, zip(numbering.pieces, numbering.rows, strict=True)
        written = tuple(own[row] if row < len(own) else piece for piece, row in named)  # as a lexicon has them
        found.append(replace(numbering, written=written))
        reserved.update(silent)
    return moses_tokenizer(languages, (found[0], found[1]), merges, reserved), found[0], found[1]


def _segmenter(path: Path) -> ModelProto:
    """Read the sentencepiece model that cuts text into the pieces of a dictionary."""
    if not path.is_file():
        raise SourceModelError(f"{path}: No such file; a dictionary of pieces needs a sentencepiece model")
    return read_model(path.read_bytes(), str(path))


def _renumbered(
    vocabulary: MarianVocabulary, rows: int, segmenters: Sequence[ModelProto]
) -> tuple[Numbering, Collection[str]]:
    """Return the new ids, and the pieces that no text may become.

    Marian has no padding, and the decoder first reads zeros: both are the row of zeros after the last one.
    """
    spares = [spare(number) for number in range(len(vocabulary.pieces), rows)]
    pieces = [*vocabulary.pieces, *spares, "<zeros>"]
    special = SpecialIds(pad=rows, start=rows, eos=vocabulary.eos, unk=vocabulary.unk)
    named_spare = {piece for piece in vocabulary.pieces if piece.startswith("<spare ")}
    reserved = {*vocabulary.codes, *spares, *named_spare}
    return renumber(pieces, special, segmenters, reserved, CONTROL_BYTES), reserved


def _settings(
    options: MarianOptions, tensors: Tensors, target: Numbering, longest: int | None, *, joint: bool
) -> TransformerSettings:
    """Return the settings of a model.

    joint: whether source and target have one vocabulary. Two that have one table, as in students for Chinese, number
        its rows in two ways, so that the table is read twice.
    """
    learned = POSITIONS in tensors
    dim, heads = options.integer("dim-emb", 4), options.integer("transformer-heads", 1)
    if dim % (2 * heads):
        raise SourceModelError(f"{options.path}: dim-emb must be even and a multiple of transformer-heads ({heads})")
    positions = tensors.rows(POSITIONS) if learned else max(longest or 0, LONGEST) + 1
    if learned and longest and longest >= positions:
        raise SourceModelError(f"{options.path}: {POSITIONS} must have {longest + 1} rows or more, has {positions}")
    own_output = OUTPUT in tensors or OUTPUT_TRANSPOSED in tensors
    return TransformerSettings(
        dim=dim,
        heads=heads,
        head_dim=dim // heads,
        ffn=options.integer("transformer-dim-ffn", 1),
        encoder_layers=options.integer("enc-depth", 1, 1000),
        decoder_layers=options.integer("dec-depth", 1, 1000),
        norm=options.norm,
        query_norm=options.norm != "post",  # keys and values of self-attention are read before the norm
        final_norm=options.final_norm,
        norm_epsilon=NORM_EPSILON,
        embedding_norm=options.embedding_norm,
        activation=options.activation,
        output_bias=BIAS in tensors,
        scale_embedding=not learned,  # Marian adds learned positions to rows that it does not scale
        positions="learned" if learned else "sinusoidal",
        sinusoids="interleaved" if learned else "inclusive-halves",
        decoder_cell="ssru" if options.recurrent else "attention",
        never_generated=target.never,
        tie="none" if own_output else "all" if TABLE in tensors and joint else "decoder",
        max_positions=positions,
        dropout=0.1,
    )


def _facts(
    folder: Path,
    path: Path,
    options: MarianOptions,
    decoder: DecoderOptions,
    settings: TransformerSettings,
    vocabularies: Sequence[Path],
) -> Facts:
    student = settings.decoder_cell == "ssru"
    lexicon = first(folder, LEXICONS)
    more = [folder / name for name in (SOURCE_PIECES, TARGET_PIECES, *MERGES, METADATA) if (folder / name).is_file()]
    optional = [each for each in (decoder.path, lexicon) if each is not None]
    layer = options.alignment_layer
    beam_size = int(decoder.number("beam-size", 1 if student else 4))
    return Facts(
        form="Marian, a student with SSRU cells" if student else "Marian",
        languages=languages_of(folder, path),
        beam_size=min(max(beam_size, 1), 64),
        length_penalty=min(max(decoder.number("normalize", 1.0), 0.0), 10.0),
        longest=min(settings.max_positions - 1, LONGEST),
        alignment=None if layer is None else (layer, (0,)),
        files=(path, *dict.fromkeys(vocabularies), *more, *optional),
        toolkit="Marian",
    )
