"""A folder with a model of Marian: OPUS-MT as it is published by its authors, or a student of Firefox."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import SourceModelError
from lingon.importers.files.merges import moses_tokenizer, read_merges, with_word_ends
from lingon.importers.files.pieces import Numbering, SpecialIds, read_model, renumber, rewrite, tokenizer_of
from lingon.importers.files.tensors import Tensors
from lingon.importers.readers.codes import languages_by_code
from lingon.importers.readers.marian.container import open_model
from lingon.importers.readers.marian.files import (
    LEXICONS,
    METADATA,
    DecoderOptions,
    first,
    languages_of,
    model_file,
    read_decoder_options,
    read_vocabularies,
)
from lingon.importers.readers.marian.lexicon import read_lexicon
from lingon.importers.readers.marian.options import NORM_EPSILON, MarianOptions
from lingon.importers.readers.marian.vocabulary import CONTROL_BYTES, MarianVocabulary, spare
from lingon.importers.readers.marian.weights import (
    BIAS,
    OUTPUT,
    OUTPUT_TRANSPOSED,
    POSITIONS,
    TABLE,
    TABLES,
    MarianReader,
)
from lingon.importers.source import Facts, ForeignModel
from lingon.text import Tokenizer
from lingon.training.config import TransformerSettings

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
    settings = _settings(options, tensors, target, longest)
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
    """Whether a model cuts Moses tokens by byte-pair merges."""
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


def _settings(options: MarianOptions, tensors: Tensors, target: Numbering, longest: int | None) -> TransformerSettings:
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
        tie="none" if own_output else "all" if TABLE in tensors else "decoder",
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
