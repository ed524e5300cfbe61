"""From what a reader found to a checkpoint of Lingon: languages, widths of heads, and the pieces that are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from torch import Tensor

from lingon.bundle.manifest import MANY, Language
from lingon.bundle.schema import unmet_rule
from lingon.errors import SettingsError, SourceModelError, first_of
from lingon.files import read_lines
from lingon.importers.files.pieces import ModelPiece, Numbering, tokenizer_of
from lingon.importers.foreign_model import ALL, ForeignModel, ForeignWeight, ReorderedRows, Sides, digests
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import UNK, Tokenizer, normalise
from lingon.training.checkpoint import Checkpoint, TrainingProgress
from lingon.training.config import Config, LanguageSettings, parse_config
from lingon.training.model_settings import HEAD_STEP, TransformerSettings
from lingon.training.models.build import build_unset

# From what a reader found to a checkpoint.

WEIGHTS_A_BYTE = 2  # at most, of compressed files of 8-bit weights with tables that several layers share


def checkpoint_of(source: ForeignModel, pair: tuple[str, str], folder: Path) -> Checkpoint:
    """Return a checkpoint with the weights of a source, which it reads one by one.

    pair: source and target language, of a model of several the pair for the gates
    folder: of the files, for messages

    Raises SourceModelError if the weights are not those of the settings.
    """
    tokenizer = source.tokenizer
    config = _config(source, pair)
    tokenizer = config.tokenizer_of_pair(tokenizer)
    _check_size(source, tokenizer, folder)
    model = build_unset(source.settings, tokenizer.source_vocab, tokenizer.target_vocab)
    left = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in source.weights:
            if name not in left:
                raise SourceModelError(f"{folder}: {name} is no weight of a model with these settings")
            parameter = left.pop(name).detach()
            if isinstance(tensor, ReorderedRows):
                tensor.write(parameter)
            else:
                parameter.copy_(tensor)
    if left:
        raise SourceModelError(f"{folder}: nothing gives the weights {', '.join(sorted(left)[:3])}")
    return Checkpoint(config, tokenizer, model.eval(), TrainingProgress(), folder)


def _check_size(source: ForeignModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Raise SourceModelError if a model with these settings is far larger than its files, before memory is taken."""
    weights = _least_weights(source.settings, tokenizer)
    held = sum(path.stat().st_size for path in source.facts.files)
    if weights > WEIGHTS_A_BYTE * held:
        raise SourceModelError(
            f"{folder}: its settings are those of {weights:,} weights or more, its files have {held:,} bytes"
        )


def _least_weights(settings: TransformerSettings, tokenizer: Tokenizer) -> int:
    """Return the weights of the tables, the feed-forward layers and the encoder's attention. Others are few."""
    pieces = tokenizer.source_vocab + (0 if settings.tie == "all" else tokenizer.target_vocab)
    inner = 2 * settings.ffn * (settings.encoder_layers + settings.decoder_layers)
    attention = 4 * settings.attention_dim * settings.encoder_layers
    return settings.dim * (pieces + inner + attention)


def _config(source: ForeignModel, pair: tuple[str, str]) -> Config:
    facts, tokenizer = source.facts, source.tokenizer
    values = {
        "data": {
            "source_language": pair[0],
            "target_language": pair[1],
            "max_tokens": facts.longest,
            "terms": None if source.terms is None else asdict(source.terms),
        },
        "tokenizer": {
            "kind": _kind(tokenizer),
            "vocab_size": tokenizer.target_vocab,
            "joint": tokenizer.joint,
            "source_end": tokenizer.source_end,
            "byte_fallback": tokenizer.target.is_byte(tokenizer.target.piece_to_id("<0x0A>")),
        },
        "model": source.settings.model_dump(),
        "languages": None if source.languages is None else source.languages.model_dump(),
        "origin": {
            "form": facts.form,
            "licence": facts.licence,
            "files": digests(facts.files),
            "source": facts.origin,
            "scores": dict(facts.scores),
        },
    }
    return parse_config(values, facts.form)


def _kind(tokenizer: Tokenizer) -> str:
    """Return the kind of the target model, as the settings name it."""
    if tokenizer.moses is not None:
        return "bpe"
    model = ModelProto()
    model.ParseFromString(list(tokenizer.files().values())[-1])
    return "bpe" if model.trainer_spec.model_type == TrainerSpec.BPE else "unigram"


# Heads of attention that are made wider with zeros, because the operators of an exported step take certain widths.

PARTS = {"attention.qkv": 3, "cross.query": 1, "cross.key_value": 2}
"""The products that give heads, and how many of queries, keys and values each gives. The queries are first."""
OUTPUTS = ("attention.output", "cross.output")


def with_wide_heads(source: ForeignModel) -> ForeignModel:
    """Return a source whose heads have a multiple of HEAD_STEP dimensions. It computes the same.

    The new dimensions of queries, keys and values are zeros, and nothing reads those of the values. Attention divides
    its scores by the square root of the width, so that the queries grow by what that root grows.
    """
    settings = source.settings
    narrow, wide = settings.head_dim, -(-settings.head_dim // HEAD_STEP) * HEAD_STEP
    if narrow == wide or settings.decoder_cell != "attention" or settings.score != "scaled-dot":
        return source
    return replace(
        source,
        settings=settings.model_copy(update={"head_dim": wide}),
        weights=_widened(source.weights, settings, wide),
        notes=[*source.notes, f"heads of {narrow} dimensions are widened to {wide} by zeros, which changes no result"],
    )


def _widened(
    weights: Iterator[tuple[str, ForeignWeight]], settings: TransformerSettings, wide: int
) -> Iterator[tuple[str, ForeignWeight]]:
    heads, narrow = settings.heads, settings.head_dim
    for name, weight in weights:
        product, _, kind = name.rpartition(".")
        parts = next((count for each, count in PARTS.items() if product.endswith(f".{each}")), 0)
        if isinstance(weight, ReorderedRows):
            yield name, weight
        elif parts:
            split = _with_zeros(weight.reshape(parts, heads, narrow, *weight.shape[1:]), 2, wide)
            if not product.endswith("key_value"):
                split[0] *= math.sqrt(wide / narrow)
            yield name, split.flatten(0, 2)
        elif product.endswith(tuple(f".{each}" for each in OUTPUTS)) and kind == "weight":
            yield name, _with_zeros(weight.reshape(-1, heads, narrow), 2, wide).flatten(1, 2)
        else:
            yield name, weight


def _with_zeros(tensor: Tensor, dim: int, size: int) -> Tensor:
    """Return a tensor with zeros at the end of a dimension, which then has this size."""
    shape = list(tensor.shape)
    shape[dim] = size
    widened = tensor.new_zeros(shape)
    widened.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
    return widened


# Which languages of a model a bundle serves.

SHOWN = 30  # languages in a message


def choose_languages(
    folder: Path, source: ForeignModel, given: Sides | None, *, every: bool = False
) -> tuple[LanguageSettings | None, tuple[str, str]]:
    """Return the languages to serve, None for a model of one pair, and the pair for the gates.

    folder: of the files, for messages; given: what the user names; every: whether all languages of a model of several
    are served if the user names none. Raises SettingsError.
    """
    _check_tags(given)
    if source.languages is None:
        return None, _pair(folder, source.facts.languages, given)
    known = source.languages
    if given is None and len(known.sources) == len(known.targets) == 1 and known.sources[0].language != MANY:
        return known, (known.sources[0].language, known.targets[0].language)
    if given is None and not every:
        offered = _shown([each.language for each in known.targets])
        raise SettingsError(
            f"{folder}: a model of several languages; name those to serve, the pair for the gates first, as in "
            f"--languages en,de:fr,all; it has {offered}; --report lists all"
        )
    if given is None:
        given = [ALL], [ALL]
    elif [each.language for each in known.sources] == [MANY]:  # its files do not name the source
        unnamed = known.sources[0]
        known = known.model_copy(
            update={"sources": tuple(unnamed.model_copy(update={"language": tag}) for tag in given[0])}
        )
    sources = _chosen(folder, given[0], [each.language for each in known.sources])
    targets = _chosen(folder, given[1], [each.language for each in known.targets])
    if len({tag.lower() for tag in (*sources, *targets)}) == 1:
        raise SettingsError(
            f"--languages must have two different languages, such as en:de, got {sources[0]}:{targets[0]}: {folder} is "
            f"a model of several languages"
        )
    by_source = {each.language: each for each in known.sources}
    by_target = {each.language: each for each in known.targets}
    chosen = LanguageSettings(
        sources=tuple(by_source[tag] for tag in sources), targets=tuple(by_target[tag] for tag in targets)
    )
    return chosen, (sources[0], next((tag for tag in targets if tag != sources[0]), targets[0]))


def _check_tags(given: Sides | None) -> None:
    for tag in (*given[0], *given[1]) if given else ():
        if rule := unmet_rule(Language, tag):
            raise SettingsError(f"--languages must be two languages such as en:de, each {rule}, got {tag!r}")


def _pair(folder: Path, said: tuple[str, str], given: Sides | None) -> tuple[str, str]:
    """Return the languages of a model of one pair."""
    if given is not None:
        if len(given[0]) > 1 or len(given[1]) > 1 or ALL in (given[0][0], given[1][0]):
            raise SettingsError(f"--languages must be one pair, such as en:de: {folder} is a model of one pair")
        return given[0][0], given[1][0]
    if not all(said):
        raise SettingsError(f"{folder}: its files do not say the two languages; name them, as in --languages en:de")
    return said


def _chosen(folder: Path, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the given tags as the model has them, each once. ALL is replaced by all others."""
    spelled = {tag.lower(): tag for tag in known}
    found: list[str] = []
    for tag in given:
        if tag == ALL:
            found += known
        elif tag.lower() in spelled:
            found.append(spelled[tag.lower()])
        else:
            raise SettingsError(f"--languages: {folder} has no {tag}; it has {_shown(known)}")
    return list(dict.fromkeys(found))


def _shown(tags: Sequence[str]) -> str:
    return first_of(tags, SHOWN)


# Keeps the pieces of a vocabulary that given texts have. The rows of the others leave the tables of the model.

HELD_OUT = 20  # every line of this number measures how many tokens of new text the other lines cover
SOURCE_TABLES = ("source_embedding.pieces.weight",)
TARGET_TABLES = ("target_embedding.pieces.weight", "output.weight", "output.bias")
ALWAYS = (ModelPiece.USER_DEFINED, ModelPiece.BYTE)  # types of pieces that are kept in any case


@dataclass(frozen=True, slots=True)
class Seen:
    """The ids that the lines of texts have.

    ids: of all lines
    tokens: of the held-out lines
    covered: tokens of the held-out lines that the other lines have too
    """

    ids: frozenset[int]
    tokens: int
    covered: int


def trim(
    checkpoint: Checkpoint, source: ForeignModel, files: Sequence[Path], log: Callable[[str], None]
) -> tuple[Checkpoint, ForeignModel]:
    """Return a model with the pieces of these texts, single characters, bytes, and the codes of its languages.

    files: of text in all languages that are served, plain or .gz. Each line is cut by the model's own tokenizer; by
        both, if it has one for each side

    Any text can still be cut, and one of kept pieces alone is cut as before. Raises SettingsError if there is no text.
    """
    tokenizer = checkpoint.tokenizer
    seen = [_seen(model, files) for model in tokenizer.sentencepieces("--trim")]
    kept = [_kept(model, each.ids, source.languages) for model, each in zip(_models(tokenizer), seen, strict=True)]
    if tokenizer.joint:
        kept = [sorted({*kept[0], *kept[1]})] * 2
    for line in _report(tokenizer, seen, kept):
        log(line)
    numberings = [_numbering(each, ids) for each, ids in zip((source.source, source.target), kept, strict=True)]
    trimmed = replace(
        source,
        settings=source.settings.model_copy(update={"never_generated": numberings[1].never}),
        weights=_weights(checkpoint, *kept),
        tokenizer=tokenizer_of(
            *(_written(model, ids) for model, ids in zip(_models(tokenizer), kept, strict=True)),
            source_end=tokenizer.source_end,
        ),
        source=numberings[0],
        target=numberings[1],
        shortlist=None if source.shortlist is None else _shortlist(source.shortlist, *kept),
    )
    data = checkpoint.config.data
    return checkpoint_of(trimmed, (data.source_language, data.target_language), checkpoint.folder), trimmed


def _shortlist(shortlist: Shortlist, source: Sequence[int], target: Sequence[int]) -> Shortlist:
    """Return a shortlist with the kept ids of the source and of the target vocabulary."""
    new_ids = {old: new for new, old in enumerate(target)}

    def known(ids: NDArray[np.int32]) -> list[int]:
        return [new_ids[each] for each in ids.tolist() if each in new_ids]

    starts = shortlist.offsets
    lists = [known(shortlist.pieces[starts[old] : starts[old + 1]]) for old in source]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    pieces = np.array([each for found in lists for each in found], np.int32)
    return Shortlist(np.array(known(shortlist.always), np.int32), offsets, pieces)


def _models(tokenizer: Tokenizer) -> list[ModelProto]:
    """Return the sentencepiece models of the source and of the target, which may be the same."""
    contents = list(tokenizer.files().values())
    models = []
    for content in (contents[0], contents[-1]):
        model = ModelProto()
        model.ParseFromString(content)
        models.append(model)
    return models


def _seen(model: sentencepiece.SentencePieceProcessor, files: Sequence[Path]) -> Seen:
    """Return what the lines of files have."""
    ids, held_out = set[int](), list[int]()
    lines = (text for file in files for line in read_lines(file) if (text := normalise(line)))
    for number, text in enumerate(lines, start=1):
        found = model.encode(text)
        if number % HELD_OUT:
            ids.update(found)
        else:
            held_out += found
    if not ids:
        raise SettingsError(f"--trim {files[0]}: has no text")
    return Seen(frozenset(ids.union(held_out)), len(held_out), sum(token in ids for token in held_out))


def _kept(model: ModelProto, seen: frozenset[int], languages: LanguageSettings | None) -> list[int]:
    """Return the ids of a vocabulary to keep, ascending.

    The lowest score is kept too: in a unigram model the score of an unknown character is made from it.
    """
    codes = _codes(languages)
    normal = [number for number, piece in enumerate(model.pieces) if piece.type == ModelPiece.NORMAL]
    kept = {*range(UNK + 1), *seen, min(normal, key=lambda number: model.pieces[number].score, default=UNK)}
    for number, piece in enumerate(model.pieces):
        single = len(piece.piece) == 1 and piece.type != ModelPiece.CONTROL
        if single or piece.type in ALWAYS or piece.piece in codes:
            kept.add(number)
    if model.trainer_spec.model_type == TrainerSpec.BPE:
        scores = {model.pieces[number].piece: model.pieces[number].score for number in normal}
        ids = {model.pieces[number].piece: number for number in normal}
        kept |= {ids[part] for number in list(kept) for part in _merged(model.pieces[number].piece, scores)}
    return sorted(kept)


def _codes(languages: LanguageSettings | None) -> set[str]:
    """Return the pieces by which the model is told the languages that are served."""
    if languages is None:
        return set()
    codes = {piece for each in languages.sources for piece in (*each.before, *each.after)}
    return codes | {piece for each in languages.targets for piece in (*each.source, *each.forced)}


def _merged(piece: str, scores: dict[str, float]) -> Iterator[str]:
    """Yield what byte-pair encoding merges on its way to a piece: without these it would not get there.

    The best-scored pair is merged first, and of equals the first one, as in sentencepiece.
    """
    parts = list(piece)
    while len(parts) > 1:
        pairs = [
            (-scores[both], position)
            for position in range(len(parts) - 1)
            if (both := parts[position] + parts[position + 1]) in scores
        ]
        if not pairs:
            return
        _, position = min(pairs)
        parts[position : position + 2] = [parts[position] + parts[position + 1]]
        yield parts[position]


def _numbering(numbering: Numbering, kept: Sequence[int]) -> Numbering:
    never, first_alias = set(numbering.never), len(numbering.pieces) - numbering.aliases
    return Numbering(
        tuple(numbering.pieces[old] for old in kept),
        tuple(numbering.rows[old] for old in kept),
        tuple(new for new, old in enumerate(kept) if old in never),
        sum(old >= first_alias for old in kept),
    )


def _written(model: ModelProto, kept: Sequence[int]) -> bytes:
    """Return a sentencepiece model of the kept pieces, numbered in their order."""
    written = ModelProto()
    written.CopyFrom(model)
    del written.pieces[:]
    written.pieces.extend(model.pieces[old] for old in kept)
    written.trainer_spec.vocab_size = len(kept)
    return bytes(written.SerializeToString(deterministic=True))


def _weights(checkpoint: Checkpoint, source: list[int], target: list[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model with the kept rows of its tables."""
    for name, parameter in checkpoint.model.named_parameters():
        rows = source if name in SOURCE_TABLES else target if name in TARGET_TABLES else None
        yield name, parameter.detach() if rows is None else parameter.detach()[rows]


def _report(tokenizer: Tokenizer, seen: Sequence[Seen], kept: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield a line for each vocabulary: the pieces that are kept, and how much of new text they cover."""
    sides = [("", 0)] if tokenizer.joint else [("source ", 0), ("target ", 1)]
    for name, side in sides:
        counted = [seen[side]] if not tokenizer.joint or tokenizer.source is tokenizer.target else seen
        tokens, covered = sum(each.tokens for each in counted), sum(each.covered for each in counted)
        size = tokenizer.target_vocab if side else tokenizer.source_vocab
        share = f"{covered / tokens:.2%} of {tokens:,} tokens" if tokens else "no tokens"
        yield (
            f"trimmed: {len(kept[side]):,} of {size:,} {name}pieces kept; the other lines have {share} of every "
            f"{HELD_OUT}th line"
        )
