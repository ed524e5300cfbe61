"""The vocabularies of Marian: a dictionary of pieces, or a sentencepiece model whose ids are those of the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES, parse_json, shown
from lingon.importers.files.pieces import Piece, read_model
from lingon.importers.readers.marian.container import unpacked

ENDS, UNKNOWNS = ("</s>", "eos"), ("<unk>", "UNK")  # names of the special pieces; the second ones are of Nematus
MOST_PIECES = 2**20
MOST_DIGITS = 18  # of an id
CONTROL_BYTES = frozenset(f"<0x{value:02X}>" for value in range(32))  # which Marian never generates

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"} | {
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


@dataclass(frozen=True, slots=True)
class MarianVocabulary:
    """A vocabulary in the order of its ids.

    eos, unk: the ids of the end token and of the unknown piece
    segmenter: the sentencepiece model whose ids these are; None for a dictionary
    """

    path: Path
    pieces: list[str]
    eos: int
    unk: int
    segmenter: ModelProto | None = None

    @property
    def codes(self) -> set[str]:
        """The codes of target languages, such as >>deu<<."""
        return {piece for piece in self.pieces if piece.startswith(">>") and piece.endswith("<<")}


def read_vocabulary(path: Path) -> MarianVocabulary:
    """Read a file NAME.spm, NAME.json, NAME.yml or NAME.yaml, or one of these with .gz. Raises SourceModelError."""
    content = unpacked(path, MOST_JSON_BYTES)
    if len(content) > MOST_JSON_BYTES:
        raise SourceModelError(f"{path}: must have at most {MOST_JSON_BYTES:,} bytes, has {len(content):,}")
    if path.name.removesuffix(".gz").endswith(".spm"):
        return _of_segmenter(path, read_model(content.tobytes(), str(path)))
    try:
        text = content.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    pieces = _ordered(path, _json(path, text) if text.lstrip().startswith("{") else _yaml(path, text))
    eos, unk = (_id_of(path, pieces, names) for names in (ENDS, UNKNOWNS))
    return MarianVocabulary(path, pieces, eos, unk)


def _of_segmenter(path: Path, model: ModelProto) -> MarianVocabulary:
    pieces = [piece.piece for piece in model.pieces]
    unknown = [number for number, piece in enumerate(model.pieces) if piece.type == Piece.UNKNOWN]
    eos = model.trainer_spec.eos_id
    if len(unknown) != 1 or not 0 <= eos < len(pieces):
        raise SourceModelError(f"{path}: must have an end token and one unknown piece")
    return MarianVocabulary(path, pieces, eos, unknown[0], model)


def _json(path: Path, text: str) -> list[tuple[str, int]]:
    try:
        found = parse_json(text)
    except ValueError:
        raise SourceModelError(f"{path}: not JSON") from None
    if wrong := [piece for piece, number in found.items() if type(number) is not int][:1]:
        raise SourceModelError(
            f"{path}: the id of {wrong[0][:60]!r} must be a whole number, is {shown(found[wrong[0]])}"
        )
    return list(found.items())


def _yaml(path: Path, text: str) -> list[tuple[str, int]]:
    """Read a dictionary line by line.

    A library for YAML refuses characters that published dictionaries have, and reads `null` and `1.0` as values.
    """
    found, pending = [], ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or line in ("---", "..."):
            continue
        if line.startswith("? "):  # a long key; its value is in the next line
            pending = line[2:]
            continue
        key, _, digits = (pending + line).rpartition(":")
        key, digits = key.rstrip(), digits.strip()
        if not key or key[0].isspace() or not digits.isdecimal() or len(digits) > MOST_DIGITS:
            raise SourceModelError(f"{path}: line {number} must be a piece, a colon and its id, is {line[:60]!r}")
        found.append((_unquoted(path, number, key), int(digits)))
        pending = ""
    return found


def _unquoted(path: Path, number: int, key: str) -> str:
    """Return the text of a key, which may be in quotation marks."""
    if len(key) < 2 or key[0] not in "\"'" or key[-1] != key[0]:
        return key
    if key[0] == "'":
        return key[1:-1].replace("''", "'")

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        text = chr(int(code, 16)) if code else _SHORT.get(found[4], found[4])
        text.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
        return text

    try:
        return _ESCAPE.sub(character, key[1:-1])
    except (ValueError, OverflowError):  # also beyond the last character of Unicode
        raise SourceModelError(f"{path}: line {number} has an escape that is no character: {key[:60]}") from None


def _ordered(path: Path, found: list[tuple[str, int]]) -> list[str]:
    """Return the pieces in the order of their ids; an id that has no piece gets a name that no text has."""
    most = max((number for _, number in found), default=-1) + 1
    if not 1 <= most <= MOST_PIECES:
        raise SourceModelError(f"{path}: must have 1 to {MOST_PIECES:,} pieces, has {most:,}")
    pieces: list[str | None] = [None] * most
    for piece, number in found:
        if number < 0 or pieces[number] is not None:
            raise SourceModelError(f"{path}: {piece!r} and {pieces[number]!r} both have the id {number}")
        pieces[number] = piece
    ids: dict[str, int] = {}
    for piece, number in found:
        if ids.setdefault(piece, number) != number:
            raise SourceModelError(f"{path}: {piece!r} has the ids {ids[piece]} and {number}")
    return [spare(number) if piece is None else piece for number, piece in enumerate(pieces)]


def spare(number: int) -> str:
    """Return the name of an id that has no piece."""
    return f"<spare {number}>"


def _id_of(path: Path, pieces: list[str], names: tuple[str, ...]) -> int:
    for name in names:
        if name in pieces:
            return pieces.index(name)
    raise SourceModelError(f"{path}: has no piece {' or '.join(names)}")
