"""Keeps the pieces of a vocabulary that given texts have; the rows of the others leave the tables of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from torch import Tensor

from lingon.errors import SettingsError
from lingon.importers.assembly.checkpoint import checkpoint_of
from lingon.importers.files.pieces import Numbering, Piece, tokenizer_of
from lingon.importers.source import ForeignModel
from lingon.lines import read_lines
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import UNK, Tokenizer, normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.config import LanguageSettings

HELD_OUT = 20  # every line of this number measures how many tokens of new text the other lines cover
SOURCE_TABLES = ("source_embedding.pieces.weight",)
TARGET_TABLES = ("target_embedding.pieces.weight", "output.weight", "output.bias")
ALWAYS = (Piece.USER_DEFINED, Piece.BYTE)  # types of pieces that are kept in any case


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
    normal = [number for number, piece in enumerate(model.pieces) if piece.type == Piece.NORMAL]
    kept = {*range(UNK + 1), *seen, min(normal, key=lambda number: model.pieces[number].score, default=UNK)}
    for number, piece in enumerate(model.pieces):
        single = len(piece.piece) == 1 and piece.type != Piece.CONTROL
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
            (-scores[both], place)
            for place in range(len(parts) - 1)
            if (both := parts[place] + parts[place + 1]) in scores
        ]
        if not pairs:
            return
        _, place = min(pairs)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        yield parts[place]


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
