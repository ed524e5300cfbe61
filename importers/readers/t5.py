"""T5, mT5 and MADLAD-400 in the form of Transformers (Raffel et al., 2020; Kudugunta et al., 2023)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.bundle import MANY
from lingon.errors import SourceModelError
from lingon.importers.fields import Fields
from lingon.importers.pieces import Numbering, Piece, SpecialIds, read_model, renumber, rewrite
from lingon.importers.readers.codes import tags_of
from lingon.importers.readers.opus_mt import CONFIG, GENERATION, MOST, MOST_POSITIONS, TOKENIZER_CONFIG, read_file
from lingon.importers.readers.t5_weights import T5Reader
from lingon.importers.source import Facts, Source
from lingon.importers.tensors import open_tensors, tensor_files
from lingon.text import Tokenizer
from lingon.training.config import Activation, LanguageSettings, TransformerSettings

PIECES = ("spiece.model", "sentencepiece.model")
LONGEST = 512  # source tokens that a model of this form is trained with
ACTIVATIONS: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-relu": ("relu", True),
    "gated-silu": ("silu", True),
}
"""The activation of each `feed_forward_proj`, and whether a second product multiplies what it returns."""

PLACEHOLDER = re.compile(r"<extra_id_\d+>")
CODE = re.compile(r"<2(?P<code>[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*)>")  # of MADLAD-400
TASK = re.compile(r"translation_(?P<source>[a-z]{2,3})_to_(?P<target>[a-z]{2,3})")
NOTE = "models of this form were trained in bfloat16; fp16 may overflow, and its gate then refuses it"


def read_t5(folder: Path, longest: int | None = None) -> Source:
    """Read a folder; longest: source tokens that the model shall read. Raises SourceModelError."""
    config = Fields.read(folder / CONFIG)
    path = next((folder / name for name in PIECES if (folder / name).is_file()), folder / PIECES[0])
    segmenter = read_model(read_file(path), str(path))
    rows = config.integer("vocab_size", 1, MOST)
    numbering, reserved = _renumbered(config, segmenter, rows)
    tokenizer = Tokenizer(rewrite(segmenter, numbering, reserved))
    longest = longest or config.integer("n_positions", 2, MOST_POSITIONS, default=LONGEST)
    settings = _settings(config, numbering, longest)
    tensors = open_tensors(folder)
    tensors.notes.append(NOTE)
    names = (CONFIG, GENERATION, TOKENIZER_CONFIG)
    generation = Fields.read_if_there(folder / GENERATION)
    facts = Facts(
        form=f"Hugging Face {config.text('model_type')}",
        languages=("", ""),
        beam_size=generation.integer("num_beams", 1, 64, default=config.integer("num_beams", 1, 64, default=1)),
        length_penalty=generation.number("length_penalty", 0, 10, default=1),
        longest=longest,
        alignment=None,
        files=(path, *(folder / name for name in names if (folder / name).is_file()), *tensor_files(folder)),
    )
    languages = _by_code(segmenter) or _by_prefix(config, path, segmenter)
    weights = T5Reader(tensors, settings, numbering, rows).weights()
    return Source(settings, weights, tokenizer, numbering, numbering, facts, tensors.notes, languages)


def _renumbered(config: Fields, segmenter: ModelProto, rows: int) -> tuple[Numbering, Collection[str]]:
    """Return the new ids, and the pieces that no text may become: codes, placeholders, and rows without a piece."""
    pieces = [piece.piece for piece in segmenter.pieces]
    if rows < len(pieces):
        raise config.error("vocab_size", f"must be the number of pieces ({len(pieces):,}) or more")
    unknown = [number for number, piece in enumerate(segmenter.pieces) if piece.type == Piece.UNKNOWN]
    if len(unknown) != 1:
        raise SourceModelError(f"{config.path.parent}: its sentencepiece model must have one unknown piece")
    pad, eos = (
        config.integer(name, 0, rows - 1, default) for name, default in (("pad_token_id", 0), ("eos_token_id", 1))
    )
    start = config.integer("decoder_start_token_id", 0, rows - 1, default=pad)
    if eos in (pad, start, unknown[0]):
        raise config.error("eos_token_id", "must not be the id of the padding, of the start or of the unknown piece")
    spares = [f"<spare {number}>" for number in range(len(pieces), rows)]
    reserved = {*spares, *(piece for piece in pieces if CODE.fullmatch(piece) or PLACEHOLDER.fullmatch(piece))}
    return renumber([*pieces, *spares], SpecialIds(pad, start, eos, unknown[0]), [segmenter], reserved), reserved


def _settings(config: Fields, numbering: Numbering, longest: int) -> TransformerSettings:
    activation, gated = config.choice("feed_forward_proj", ACTIVATIONS)
    layers = config.integer("num_layers", 1, 1000)
    buckets = config.integer("relative_attention_num_buckets", 4, 1024, default=32)
    if buckets % 4:
        raise config.error("relative_attention_num_buckets", "must be a multiple of 4")
    dim = config.integer("d_model", 2, MOST)
    if dim % 2:
        raise config.error("d_model", "must be even")
    return TransformerSettings(
        dim=dim,
        heads=config.integer("num_heads", 1, MOST),
        head_dim=config.integer("d_kv", 1, MOST),
        ffn=config.integer("d_ff", 1, MOST),
        encoder_layers=layers,
        decoder_layers=config.integer("num_decoder_layers", 1, 1000, default=layers),
        norm="pre",
        norm_kind="rms",
        norm_epsilon=config.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-6),
        activation=activation,
        gated=gated,
        bias=False,
        scale_embedding=False,
        positions="relative",
        relative_buckets=buckets,
        relative_distance=config.integer("relative_attention_max_distance", buckets // 2 + 1, 2**20, default=128),
        never_generated=numbering.never,
        tie="all" if config.flag("tie_word_embeddings", True) else "none",
        max_positions=longest + 1,
        dropout=0.1,
    )


def _by_code(segmenter: ModelProto) -> LanguageSettings | None:
    """Return the target languages that a code such as <2de> before the source chooses; None without two of them."""
    codes = {found["code"]: piece.piece for piece in segmenter.pieces if (found := CODE.fullmatch(piece.piece))}
    if len(codes) < 2:
        return None
    return _languages(MANY, {tag: [codes[code]] for tag, code in tags_of(codes).items()})


def _by_prefix(config: Fields, path: Path, segmenter: ModelProto) -> LanguageSettings | None:
    """Return the target languages that a sentence before the source chooses, as T5 was first trained; None if none."""
    tasks = config.values.get("task_specific_params") or {}
    if not isinstance(tasks, dict):
        raise config.error("task_specific_params", "must be an object")
    found: dict[str, dict[str, Sequence[str]]] = {}
    for name, task in tasks.items():
        prefix = task.get("prefix") if isinstance(task, dict) else None
        if (matched := TASK.fullmatch(name)) and isinstance(prefix, str):
            before = _before(segmenter, prefix.strip())
            if not before:
                raise config.error("task_specific_params", f"has a prefix that {path.name} joins with the text")
            found.setdefault(matched["source"], {})[matched["target"]] = before
    if not found:
        return None
    source, targets = next(iter(found.items()))  # the published models have one source, English
    return _languages(source, targets)


def _languages(source: str, targets: dict[str, Sequence[str]]) -> LanguageSettings:
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": source}],
            "targets": [{"language": tag, "source": list(before)} for tag, before in targets.items()],
        }
    )


def _before(segmenter: ModelProto, words: str) -> list[str]:
    """Return the pieces of words before a text; none if they are not the same before every text."""
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(segmenter.SerializeToString())
    alone, both = (processor.encode(text, out_type=str) for text in ("x", f"{words} x"))
    return both[: -len(alone)] if both[-len(alone) :] == alone else []
