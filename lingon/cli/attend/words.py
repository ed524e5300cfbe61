"""From the tokens of a model to the rows and columns that a person reads: words, or the pieces themselves."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.attention_kinds import AttentionKind
from lingon.client.values.results import Piece, ScoreResult

BEGIN = "<s>"  # the begin token of a target, which is a column of the decoder's self-attention
UNKNOWN = "<unk>"

Weights = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens that are shown as one row or column; places: their indices among the tokens."""

    label: str
    places: tuple[int, ...]


def axes(kind: AttentionKind, result: ScoreResult, *, pieces: bool) -> tuple[list[Group], list[Group]]:
    """The rows and the columns of the matrices of a kind.

    pieces: whether each token is a row or column of its own; else each word is
    """
    group = by_piece if pieces else by_word
    source = group(result.normalised_source, result.source_pieces)
    target = group(result.normalised_target, result.target_pieces)
    if kind == "encoder":
        return source, source
    if kind == "cross":
        return target, source
    read = [Group(each.label, tuple(place + 1 for place in each.places)) for each in target[:-1]]
    return target, [Group(BEGIN, (0,)), *read]


def by_piece(text: str, pieces: Sequence[Piece]) -> list[Group]:
    """A group for each token; an unknown one shows its characters too."""
    return [
        Group(f"{piece.piece} {_surface(text, [piece])}" if piece.piece == UNKNOWN else piece.piece, (place,))
        for place, piece in enumerate(pieces)
    ]


def by_word(text: str, pieces: Sequence[Piece]) -> list[Group]:
    """A group for each word, which spaces end; a character of a script without spaces is a word. The end token is last.

    text: the normalised text that the spans refer to
    """
    words: list[list[int]] = []
    for place, piece in enumerate(pieces):
        if place == 0 or _is_end(pieces, place) or _begins_word(text, pieces[place - 1], piece):
            words.append([])
        words[-1].append(place)
    return [Group(_surface(text, [pieces[place] for place in word]), tuple(word)) for word in words]


def merge(weights: Weights, rows: Sequence[Group], columns: Sequence[Group]) -> tuple[tuple[float, ...], ...]:
    """The mean over the tokens of each row, of the sums over the tokens of each column, so that sums of rows stay."""
    return tuple(
        tuple(
            sum(weights[row][column] for row in down.places for column in across.places) / len(down.places)
            for across in columns
        )
        for down in rows
    )


def _is_end(pieces: Sequence[Piece], place: int) -> bool:
    """Whether a token is the end token, which has no characters; the source of some models has none."""
    return place == len(pieces) - 1 and pieces[place].span[0] == pieces[place].span[1]


def _begins_word(text: str, before: Piece, piece: Piece) -> bool:
    if piece.span == before.span:  # the bytes of one character
        return False
    first, last = text[slice(*piece.span)].strip()[:1], text[slice(*before.span)].strip()[-1:]
    return text[before.span[1] : piece.span[1]].startswith(" ") or _without_spaces(first) or _without_spaces(last)


def _without_spaces(character: str) -> bool:
    """Whether a letter is of a script that puts no spaces between words, such as Chinese, Japanese or Thai."""
    if not character.isalpha():
        return False
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    name = unicodedata.name(character, "")
    return (wide and not name.startswith("HANGUL")) or name.startswith(("THAI", "LAO", "KHMER", "MYANMAR"))


def _surface(text: str, pieces: Sequence[Piece]) -> str:
    """The characters of adjacent tokens, without white space; the name of the first token if they have none."""
    found = text[pieces[0].span[0] : pieces[-1].span[1]].strip()
    return found or pieces[0].piece
