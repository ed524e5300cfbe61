"""T5, T5 v1.1, mT5 and MADLAD-400 in the form of Transformers: relative positions, one sentencepiece model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.bundle import MANY
from lingon.errors import SourceModelError
from lingon.importers.files.fast_tokenizer import TOKENIZER, FastTokenizer
from lingon.importers.files.fields import Fields
from lingon.importers.files.pieces import Numbering, Piece, SpecialIds, read_model, renumber, rewrite, spare_rows
from lingon.importers.files.tensors import open_tensors, tensor_files
from lingon.importers.readers.bart import MOST
from lingon.importers.readers.codes import tags_of
from lingon.importers.readers.opus_mt import CONFIG, GENERATION, MOST_POSITIONS, TOKENIZER_CONFIG, read_file
from lingon.importers.readers.t5_tensors import T5Reader, has_own_head
from lingon.importers.source import Facts, ForeignModel
from lingon.text import UNK, Tokenizer
from lingon.training.config import Activation, LanguageSettings, TransformerSettings

PIECES = ("spiece.model", "sentencepiece.model")
FEED_FORWARD: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", False),
    "gated-relu": ("relu", True),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
}
"""The activation of each feed_forward_proj, and whether it is gated; the gated GELU is the one by tanh."""

POSITIONS = 512  # tokens of a source where the files do not say: those that the published models were trained with
MOST_PREFIX = 16  # pieces that a language may have in a bundle
HALF = "T5 is known to overflow in float16; its gate refuses such a precision"
_CODE = re.compile(r"<2([A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*)>")
_SENTINEL = re.compile("▁?<extra_id_[0-9]+>")
_TASK = re.compile("translation_([a-z]{2,3})_to_([a-z]{2,3})")


def read_t5(folder: Path, longest: int | None = None) -> ForeignModel:
    """Read a folder; longest: source tokens that the model shall read. Raises SourceModelError."""
    config = Fields.read(folder / CONFIG)
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
    more = Fields.read_if_there(folder / TOKENIZER_CONFIG)
    return path, FastTokenizer(path, more, _is_reserved).model


def _is_reserved(token: str) -> bool:
    """Whether no text becomes a token: the code of a language, or a sentinel."""
    return bool(_CODE.fullmatch(token) or _SENTINEL.fullmatch(token))


def _numbering(config: Fields, segmenter: ModelProto, path: Path, rows: int) -> tuple[Numbering, set[str]]:
    """Return the new ids, and the pieces that no text becomes: languages, sentinels and rows without a piece."""
    pieces = [piece.piece for piece in segmenter.pieces]
    if rows < len(pieces):
        raise config.error("vocab_size", f"must be the number of pieces of {path.name} ({len(pieces):,}) or more")
    unknown = [number for number, piece in enumerate(segmenter.pieces) if piece.type == Piece.UNKNOWN]
    if len(unknown) != 1:
        raise SourceModelError(f"{path}: must have one unknown piece, has {len(unknown)}")
    pad = config.integer("pad_token_id", 0, rows - 1, default=0)
    eos = config.integer("eos_token_id", 0, rows - 1, default=1)
    if eos >= len(pieces) or segmenter.pieces[eos].type != Piece.CONTROL:
        raise config.error("eos_token_id", f"must be the id of a control piece of {path.name}")
    start = config.integer("decoder_start_token_id", 0, rows - 1, default=pad)
    if start == eos or pad == eos:
        name = "decoder_start_token_id" if start == eos else "pad_token_id"
        raise config.error(name, f"must not be that of the end token ({eos})")
    spare = spare_rows(len(pieces), rows)
    reserved = {*spare, *filter(_is_reserved, pieces)}
    reserved |= {piece.piece for piece in segmenter.pieces if piece.type in (Piece.CONTROL, Piece.UNUSED)}
    numbering = renumber([*pieces, *spare], SpecialIds(pad, start, eos, unknown[0]), [segmenter], reserved)
    return numbering, reserved


def _dim(config: Fields) -> int:
    dim = config.integer("d_model", 2, MOST)
    if dim % 2:
        raise config.error("d_model", "must be even")
    return dim


def _is_scaled(config: Fields) -> bool:
    """Whether the output layer reads the last hidden state times dim^-0.5.

    Transformers 5 writes scale_decoder_outputs for T5, because it writes tie_word_embeddings: true for all. It scales
    no mT5.
    """
    tied = config.flag("tie_word_embeddings", True)
    if config.text("model_type") == "mt5":
        version = config.text("transformers_version", "4").partition(".")[0]
        tied = tied and version.isdecimal() and int(version) < 5
    return config.flag("scale_decoder_outputs", tied)


def _settings(config: Fields, numbering: Numbering, positions: int, *, tied: bool) -> TransformerSettings:
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


def _prefixes(config: Fields) -> dict[tuple[str, str], str]:
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


def _of_prefixes(config: Fields, prefixes: dict[tuple[str, str], str], tokenizer: Tokenizer) -> LanguageSettings:
    """Return the languages of tasks; the pieces of a prefix stand before each text.

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
    """Return the target languages that a piece before the source chooses; None for a model of one pair."""
    tags = tags_of(code[2:-1] for code in codes)
    if not tags:
        return None
    targets = [{"language": tag, "source": [f"<2{code}>"]} for tag, code in tags.items()]
    return LanguageSettings.model_validate({"sources": [{"language": MANY}], "targets": targets})


def _facts(folder: Path, config: Fields, pieces: Path, longest: int, *, named: bool) -> Facts:
    """Return the facts. Without a beam size in the files it is that of `generate`, 1."""
    generation = Fields.read_if_there(folder / GENERATION)
    names = (CONFIG, TOKENIZER_CONFIG, GENERATION, pieces.name)
    kind = "mT5" if config.text("model_type") == "mt5" else "T5"
    return Facts(
        form=f"Hugging Face {kind}" + (" with prefixes" if named else ""),
        languages=("", ""),
        beam_size=generation.integer("num_beams", 1, 64, default=config.integer("num_beams", 1, 64, default=1)),
        length_penalty=generation.number("length_penalty", 0, 10, default=config.number("length_penalty", 0, 10, 1.0)),
        longest=longest,
        alignment=None,
        files=(*[folder / name for name in names if (folder / name).is_file()], *tensor_files(folder)),
    )
