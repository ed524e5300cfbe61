"""M2M-100, SMaLL-100, NLLB-200 and both mBART in the form of Transformers: one model, a token for each language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import SourceModelError
from lingon.importers.files.fast_tokenizer import TOKENIZER, FastTokenizer
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import ModelPiece, Numbering, SpecialIds, read_model, renumber, rewrite, spare_rows
from lingon.importers.files.tensors import open_tensors
from lingon.importers.foreign_model import Facts, ForeignModel
from lingon.importers.readers.bart import MOST, BartReader, read_sizes
from lingon.importers.readers.codes import M2M_100, MBART_25, WMT21, languages_of_one_target, tags_of
from lingon.importers.readers.opus_mt import (
    ACTIVATIONS,
    CONFIG,
    GENERATION,
    MOST_POSITIONS,
    TOKENIZER_CONFIG,
    VOCABULARY,
    PieceDictionary,
    facts_of,
    read_file,
)
from lingon.text import Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import TransformerSettings

PIECES, SPECIAL = "sentencepiece.bpe.model", "special_tokens_map.json"
LISTS = ("additional_special_tokens", "extra_special_tokens")
"""The fields that list the language codes. The second one is of Transformers 5."""

NLLB_LICENCE = "CC-BY-NC-4.0 for the published weights of NLLB-200"
FIRST_POSITION = 2  # of fairseq, whose padding id is 1
ADDED, MASK = "added_tokens.json", "<mask>"
HEAD = ("<s>", "<pad>", "</s>", "<unk>")  # of fairseq, with the ids 0 to 3
START_OF_PIECES = 3  # the first piece of a sentencepiece model that fairseq numbers: after <unk>, <s> and </s>


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """What the files of a tokenizer hold.

    pieces: in the order of the checkpoint's ids
    codes: those that are language codes
    reserved: those that no text becomes
    segmenter: cuts text into pieces
    """

    pieces: list[str]
    codes: list[str]
    reserved: set[str]
    segmenter: ModelProto


@dataclass(frozen=True, slots=True)
class MultilingualForm:
    """What tells the forms apart.

    tokenizer: the class that tokenizer_config.json names. The fast one has the suffix Fast
    has_dictionary: whether vocab.json numbers the pieces, and not their order in the sentencepiece model
    learned: whether positions are learned, and a norm follows the embedding
    code: the form of its language codes
    codes: the language codes in the order of their ids, where the files need not list them
    one_target: whether the decoder reads the code of the target language first, instead of </s>. A bundle has one
        such row, so that it serves one target language: that of decoder_start_token_id. The code of the source follows
        the end token.
    target_in_source: whether a source begins with the code of the target language, and nothing says its own
    """

    name: str
    tokenizer: str
    model: str
    code: re.Pattern[str]
    has_dictionary: bool = False
    learned: bool = False
    codes: tuple[str, ...] = ()
    one_target: bool = False
    target_in_source: bool = False
    licence: str = ""


_M2M, _NLLB, _MBART = (
    re.compile(each) for each in ("__[a-z]{2,3}(_[A-Za-z]+)?__", "[a-z]{3}_[A-Z][a-z]{3}", "[a-z]{2,3}_[A-Z]{2}")
)
SMALL_100 = MultilingualForm(
    "SMaLL-100",
    "SMALL100Tokenizer",
    "m2m_100",
    _M2M,
    has_dictionary=True,
    target_in_source=True,
    licence="MIT for the published weights of SMaLL-100",
)
SMALL_100_CODE = "tokenization_small100.py"  # its tokenizer, which lies beside its files. It is not run
SMALL_100_SHAPE = {"d_model": 1024, "encoder_layers": 12, "decoder_layers": 3}
FORMS = (
    SMALL_100,
    MultilingualForm("M2M-100", "M2M100Tokenizer", "m2m_100", _M2M, has_dictionary=True),
    MultilingualForm("NLLB-200", "NllbTokenizer", "m2m_100", _NLLB, licence=NLLB_LICENCE),
    MultilingualForm("mBART-50", "MBart50Tokenizer", "mbart", _MBART, learned=True),
    MultilingualForm("mBART", "MBartTokenizer", "mbart", _MBART, learned=True, codes=MBART_25, one_target=True),
)


def form_of(form: MultilingualForm) -> str:
    """Return the form of the files as a reader of a model card understands it."""
    return f"Hugging Face {form.name}"


def read_multilingual(folder: Path, longest: int | None = None) -> ForeignModel:
    """Read a folder; longest: source tokens that the model shall read. Raises SourceModelError."""
    config, more = JsonFields.read(folder / CONFIG), JsonFields.read(folder / TOKENIZER_CONFIG)
    form = _form(folder, config, more)
    rows = config.integer("vocab_size", 1, MOST)
    vocabulary = _vocabulary(folder, form, more)
    pieces, codes = vocabulary.pieces, vocabulary.codes
    if rows < len(pieces):
        raise config.error("vocab_size", f"must be the number of pieces ({len(pieces):,}) or more")
    spare = spare_rows(len(pieces), rows)
    reserved = {*vocabulary.reserved, *spare}
    start = _start(config, form, pieces, codes)
    special = SpecialIds(pad=1, start=start, eos=2, unk=3)
    numbering = renumber([*pieces, *spare], special, [vocabulary.segmenter], reserved)
    tokenizer = Tokenizer(rewrite(vocabulary.segmenter, numbering, reserved))
    positions = config.integer("max_position_embeddings", 2, MOST_POSITIONS)
    longest = longest or (positions - 1 if form.learned else positions)
    settings = _settings(config, form, numbering, longest)
    tensors = open_tensors(folder)
    reader = BartReader(tensors, settings, numbering, numbering, (rows, rows), separate=False)
    facts = _facts(folder, config, form, longest)
    first = pieces[start] if form.one_target else ""
    legacy = form.one_target or more.flag("legacy_behaviour", False)
    languages = _languages_of_sources(codes) if form.target_in_source else _languages(codes, legacy=legacy, first=first)
    weights = reader.weights()
    return ForeignModel(settings, weights, tokenizer, numbering, numbering, facts, tensors.notes, languages)


def _form(folder: Path, config: JsonFields, more: JsonFields) -> MultilingualForm:
    """Return the form of a folder. The published files of SMaLL-100 (Mohammadshahi et al., 2022) name the tokenizer of
    M2M-100, and have their own as code. No published M2M-100 has its shape.
    """
    kind = config.text("model_type", "")
    named = more.text("tokenizer_class", "").removesuffix("Fast")
    shape = {name: config.values.get(name) for name in SMALL_100_SHAPE}
    if (kind, named) == ("m2m_100", "M2M100Tokenizer") and (
        (folder / SMALL_100_CODE).is_file() or shape == SMALL_100_SHAPE
    ):
        return SMALL_100
    for form in FORMS:
        if (form.model, form.tokenizer) == (kind, named):
            return form
    known = ", ".join(form.tokenizer for form in FORMS if form.model == kind)
    raise more.error("tokenizer_class", f"must be one of {known} for a model of the type {kind}")


def _start(config: JsonFields, form: MultilingualForm, pieces: list[str], codes: list[str]) -> int:
    """Return the id of the token that the decoder reads first: of </s>, or of the only target language."""
    start = config.integer("decoder_start_token_id", 0, MOST, default=None if form.one_target else 2)
    if form.one_target and (start >= len(pieces) or pieces[start] not in codes):
        ids = [number for number, piece in enumerate(pieces) if piece in {*codes}]
        rule = f"must be that of the code of the target language ({ids[0]:,} to {ids[-1]:,})"
        raise config.error("decoder_start_token_id", rule)
    if not form.one_target and start != 2:
        raise config.error("decoder_start_token_id", "must be that of </s> (2)")
    return start


def _vocabulary(folder: Path, form: MultilingualForm, more: JsonFields) -> _Vocabulary:
    """Return the vocabulary of a folder, of its tokenizer.json if it has no sentencepiece model."""
    if not form.has_dictionary and not (folder / PIECES).is_file() and (folder / TOKENIZER).is_file():
        found = FastTokenizer(folder / TOKENIZER, more, lambda token: form.code.fullmatch(token) is not None)
        pieces = [piece.piece for piece in found.model.pieces]
        _check_head(folder / TOKENIZER, pieces)
        codes = [token for token in found.added if form.code.fullmatch(token)]
        if not codes:
            raise SourceModelError(f"{folder / TOKENIZER}: has no added_tokens that name the languages")
        controls = {piece.piece for piece in found.model.pieces if piece.type == ModelPiece.CONTROL}
        return _Vocabulary(pieces, codes, controls, found.model)
    segmenter = read_model(read_file(folder / PIECES), str(folder / PIECES))
    ids = _declared_ids(folder)
    if form.has_dictionary:
        pieces, last = list(PieceDictionary.read(folder / VOCABULARY).pieces), []
        names = WMT21 if more.text("language_codes", "m2m100") == "wmt21" else M2M_100
        codes = [f"__{name}__" for name in names]
        _check_head(folder / VOCABULARY, pieces)
    else:
        pieces, last = [*HEAD, *(piece.piece for piece in segmenter.pieces[START_OF_PIECES:])], [MASK]
        codes = list(form.codes) or _listed_codes(folder)
    added = sorted((token for token, number in ids.items() if number >= len(pieces)), key=ids.__getitem__)
    codes += [token for token in added if form.code.fullmatch(token) and token not in codes]
    if not codes:
        raise SourceModelError(f"{folder / TOKENIZER_CONFIG}: has no {' or '.join(LISTS)}, which name the languages")
    tokens = [*(token for token in (*codes, *last) if token not in ids), *added]
    return _Vocabulary([*pieces, *_in_order(tokens, len(pieces), ids, folder)], codes, set(tokens), segmenter)


def _in_order(tokens: list[str], first: int, ids: dict[str, int], folder: Path) -> list[str]:
    """Return the tokens after the pieces, whose ids begin at `first`, if files declare no others for them."""
    for expected, token in enumerate(tokens, start=first):
        if (found := ids.get(token, expected)) != expected:
            rule = "the language codes and other added tokens must follow the pieces, without gaps"
            raise SourceModelError(f"{folder / TOKENIZER_CONFIG}: {token} has the id {found}, not {expected}; {rule}")
    return tokens


def _declared_ids(folder: Path) -> dict[str, int]:
    """Return the ids of added tokens that the files of the tokenizer declare."""
    try:
        decoder = JsonFields.read(folder / TOKENIZER_CONFIG).values.get("added_tokens_decoder") or {}
        found = {each["content"]: int(number) for number, each in decoder.items()}
        found |= {token: int(number) for token, number in JsonFields.read_if_there(folder / ADDED).values.items()}
    except (ValueError, AttributeError, KeyError, TypeError, OverflowError):
        raise SourceModelError(f"{folder / TOKENIZER_CONFIG}: added_tokens_decoder must name tokens by ids") from None
    return found


def _check_head(path: Path, pieces: list[str]) -> None:
    if tuple(pieces[:4]) != HEAD:
        raise SourceModelError(f"{path}: its first pieces must be {', '.join(HEAD)}, are {', '.join(pieces[:4])}")


def _listed_codes(folder: Path) -> list[str]:
    """Return the language codes in the order of their ids, as the files of the tokenizer list them, if they do."""
    for name in (SPECIAL, TOKENIZER_CONFIG):
        values = JsonFields.read_if_there(folder / name).values
        for field in LISTS:
            try:
                codes = [each if isinstance(each, str) else each["content"] for each in values.get(field) or []]
            except (KeyError, TypeError):
                raise SourceModelError(f"{folder / name}: {field} must be a list of tokens") from None
            if codes:
                return codes
    return []


def _languages(codes: list[str], *, legacy: bool, first: str) -> LanguageSettings:
    """Return all languages.

    legacy: whether the code of the source follows the end token, as in NLLB-200 before April 2023
    first: the code that the decoder reads first, of a model of one target language; else ""
    """
    tags = tags_of(codes)
    position = "after" if legacy else "before"
    if first:
        return languages_of_one_target(codes, first, position)
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": tag, position: [code]} for tag, code in tags.items()],
            "targets": [{"language": tag, "forced": [code]} for tag, code in tags.items()],
        }
    )


def _languages_of_sources(codes: list[str]) -> LanguageSettings:
    """Return all languages of a model that reads the code of the target language before a source."""
    tags = tags_of(codes)
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": tag} for tag in tags],
            "targets": [{"language": tag, "source": [code]} for tag, code in tags.items()],
        }
    )


def _settings(config: JsonFields, form: MultilingualForm, numbering: Numbering, longest: int) -> TransformerSettings:
    if not config.flag("tie_word_embeddings", True):
        raise config.error("tie_word_embeddings", "must be true, as it is of published models")
    positions = config.integer("max_position_embeddings", 2, MOST_POSITIONS)
    if form.learned and longest >= positions:
        raise config.error("max_position_embeddings", f"must be above the tokens that are read ({longest})")
    return TransformerSettings(
        **read_sizes(config),
        norm="pre",
        embedding_norm=form.learned,
        activation=config.choice("activation_function", ACTIVATIONS),
        positions="learned" if form.learned else "sinusoidal",
        sinusoids="interleaved" if form.learned else "inclusive-halves",
        first_position=0 if form.learned else FIRST_POSITION,
        never_generated=numbering.never,
        scale_embedding=config.flag("scale_embedding", form.model == "m2m_100"),
        tie="all",
        max_positions=positions if form.learned else max(longest, positions) + 1,
        dropout=0.1,
    )


def _facts(folder: Path, config: JsonFields, form: MultilingualForm, longest: int) -> Facts:
    pieces = PIECES if (folder / PIECES).is_file() else TOKENIZER
    names = (CONFIG, TOKENIZER_CONFIG, SPECIAL, ADDED, GENERATION, pieces, VOCABULARY)
    beam_size = config.integer("num_beams", 1, 64, default=5)
    return facts_of(folder, names, form_of(form), longest, beam_size=beam_size, licence=form.licence)
