"""Vocabularies renumbered for Lingon, and sentencepiece models rewritten so that their ids are the new ones.

A checkpoint numbers its pieces as it likes, often by a dictionary beside the sentencepiece model. Lingon has pad, bos,
eos and unk first. Renumbering once, at import, means that neither search nor server knows of other ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES
from lingon.moses import WORD_END, serialised
from lingon.text import BOS, EOS, PAD, UNK, Tokenizer

ModelPiece = ModelProto.SentencePiece
SPACE = "\u2581"  # instead of a blank
SEGMENTING = (ModelPiece.NORMAL, ModelPiece.USER_DEFINED, ModelPiece.BYTE)  # types of pieces that text is cut into
UNKNOWN_PENALTY = 10.0  # of the score of an unknown piece, below the lowest score, in sentencepiece
NAMES = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}


class SpecialIds(NamedTuple):
    """The special ids of a checkpoint; start: of the token that the decoder reads first."""

    pad: int
    start: int
    eos: int
    unk: int


@dataclass(frozen=True, slots=True)
class Numbering:
    """The new ids of a vocabulary.

    pieces: the text of each new id
    rows: the row of the checkpoint's tables for each new id
    never: new ids besides pad, bos and unk that the model must not generate
    aliases: the number of pieces of a segmenter that the checkpoint does not know. They are the last ones
    written: the text of each new id as other files of the checkpoint write it, empty if that is `pieces`
    """

    pieces: tuple[str, ...]
    rows: tuple[int, ...]
    never: tuple[int, ...]
    aliases: int
    written: tuple[str, ...] = ()


def read_model(content: bytes, name: str) -> ModelProto:
    """Parse a sentencepiece model. Raises SourceModelError."""
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # the class of the error depends on the implementation of protobuf
        raise SourceModelError(f"{name}: not a sentencepiece model") from None
    if not model.pieces:
        raise SourceModelError(f"{name}: a sentencepiece model without pieces")
    # Protobuf returns bytes instead of a text that is not UTF-8.
    damaged = next((position for position, each in enumerate(model.pieces) if not isinstance(each.piece, str)), None)
    if damaged is not None:
        raise SourceModelError(f"{name}: not a sentencepiece model (piece {damaged:,} is not UTF-8)")
    return model


def renumber(
    vocabulary: Sequence[str],
    special: SpecialIds,
    segmenters: Sequence[ModelProto],
    reserved: Collection[str] = (),
    silent: Collection[str] = (),
) -> Numbering:
    """Return the new ids of a vocabulary: the special ones, the others in their order, then aliases of unk.

    vocabulary: the piece of each id of the checkpoint
    segmenters: the sentencepiece models whose pieces have these ids. A piece that the vocabulary lacks is an unknown
        one for the checkpoint: its alias has a copy of the row of unk.
    reserved: pieces of the vocabulary that no text may become, such as language codes
    silent: pieces that the model must not generate, though a text may become them
    """
    used = set(special)
    others = [row for row in range(len(vocabulary)) if row not in used]
    known = set(vocabulary)
    aliases = list(dict.fromkeys(piece for model in segmenters for piece in _segmenting(model) if piece not in known))
    named = [vocabulary[row] for row in others] + aliases
    taken = set(named)
    head = [_free(NAMES[each], taken) for each in (PAD, BOS, EOS, UNK)]
    rows = (special.pad, special.start, special.eos, special.unk, *others, *([special.unk] * len(aliases)))
    first_alias = 4 + len(others)
    unsaid = {*reserved, *silent}
    never = [new for new, piece in enumerate(named, start=4) if piece in unsaid or new >= first_alias]
    return Numbering((*head, *named), rows, tuple(never), len(aliases))


def spare_rows(pieces: int, rows: int) -> list[str]:
    """Return names for the rows of a table after those of its pieces. No text becomes one, and none is generated."""
    return [f"<spare {number}>" for number in range(rows - pieces)]


def rewrite(model: ModelProto, numbering: Numbering, reserved: Collection[str] = ()) -> bytes:
    """Return a sentencepiece model that cuts text as `model` does, with the new ids.

    Pieces of the vocabulary that the model has not are unused ones, but for single characters: the model spells them as
    unknown pieces, and the vocabulary knows them. They get the score of an unknown piece. In a BPE model all of these
    disturb the merges, so that there they are control pieces, which have no text when decoded.
    """
    own = {piece.piece: piece for piece in model.pieces if piece.type in SEGMENTING}
    is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
    never = set(numbering.never)
    unknown_score = min((piece.score for piece in own.values()), default=0.0) - UNKNOWN_PENALTY
    written = ModelProto()
    written.CopyFrom(model)
    del written.pieces[:]
    for new, text in enumerate(numbering.pieces):
        piece = written.pieces.add(piece=text, score=0.0)
        if new <= UNK:
            piece.type = ModelPiece.UNKNOWN if new == UNK else ModelPiece.CONTROL
        elif text in reserved:
            piece.type = ModelPiece.CONTROL
        elif text in own:
            piece.CopyFrom(own[text])
        elif is_bpe:
            piece.type = ModelPiece.CONTROL
        elif len(text) == 1 and new not in never:
            piece.type, piece.score = ModelPiece.NORMAL, unknown_score
        else:
            piece.type = ModelPiece.UNUSED
    trainer = written.trainer_spec
    trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id = PAD, BOS, EOS, UNK
    trainer.pad_piece, trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = numbering.pieces[:4]
    trainer.vocab_size = len(written.pieces)
    written.DiscardUnknownFields()  # such as its own test data, which has the old ids
    return bytes(written.SerializeToString(deterministic=True))


def tokenizer_of(source: bytes, target: bytes, *, source_end: bool = True) -> Tokenizer:
    """Return the tokenizer of two rewritten models, which is one if they are the same."""
    return Tokenizer(source, None if source == target else target, source_end=source_end)


def _segmenting(model: ModelProto) -> list[str]:
    return [piece.piece for piece in model.pieces if piece.type in SEGMENTING]


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name for a special piece that no other piece has."""
    while name in taken:
        name = f"<{name}>"
    return name


# Files of byte-pair merges, and vocabularies of Moses pieces with the ids of Lingon.

HEADER = "#version:"  # the first line of files of subword-nmt
VERSION = "0.2"  # in 0.1 the end of a word is a symbol of its own
CONTINUED = "@@"  # after a piece that does not end a word, as subword-nmt writes text
MOST_MERGES = 2**20


def read_merges(path: Path) -> list[str]:
    """Return the merges of a file, the first one first: two symbols with a space between them.

    fastBPE writes a count after them. Raises SourceModelError.
    """
    try:
        if (size := path.stat().st_size) > MOST_JSON_BYTES:
            raise SourceModelError(f"{path}: must have at most {MOST_JSON_BYTES:,} bytes, has {size:,}")
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SourceModelError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    first = 0
    if lines[0].startswith(HEADER):
        first = 1
        if (version := lines[0].removeprefix(HEADER).strip()) != VERSION:
            raise SourceModelError(f"{path}: the version of the merges must be {VERSION}, is {version[:20]!r}")
    found = []
    for number, line in enumerate(lines[first:], start=first + 1):
        parts = line.strip("\r ").split(" ", 3)  # more would take memory of many times the line
        if parts == [""]:
            continue
        if len(parts) not in (2, 3) or not all(parts) or (len(parts) == 3 and not parts[2].isdigit()):
            raise SourceModelError(f"{path}: line {number} must be two symbols, is {line[:60]!r}")
        found.append(f"{parts[0]} {parts[1]}")
    if not 1 <= len(found) <= MOST_MERGES:
        raise SourceModelError(f"{path}: must have 1 to {MOST_MERGES:,} merges, has {len(found):,}")
    return found


def with_word_ends(pieces: Sequence[str], special: Collection[str]) -> list[str]:
    """Return pieces that say which ones end a word, made from pieces that say which ones do not.

    special: pieces that are not of words
    """
    return [
        piece
        if piece in special
        else piece.removesuffix(CONTINUED)
        if piece.endswith(CONTINUED) and piece != CONTINUED
        else piece + WORD_END
        for piece in pieces
    ]


def moses_tokenizer(
    languages: tuple[str, str],
    numberings: tuple[Numbering, Numbering],
    merges: tuple[Sequence[str], Sequence[str]],
    reserved: Collection[str],
    *,
    plain: bool = False,
    source_end: bool = True,
) -> Tokenizer:
    """Return the tokenizer of a source and a target vocabulary.

    languages: whose rules Moses applies, such as en. Those of a region or script are the same
    reserved: pieces that no text may become
    plain: see lingon.moses.serialised
    source_end: whether a source ends with the end token
    """
    sides = [
        serialised(
            language.partition("-")[0].lower(),
            numbering.pieces,
            [number for number, piece in enumerate(numbering.pieces) if piece in reserved],
            each,
            plain=plain,
        )
        for language, numbering, each in zip(languages, numberings, merges, strict=True)
    ]
    return Tokenizer(sides[0], sides[1], source_end=source_end)
