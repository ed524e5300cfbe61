"""Texts that are written as pieces of the vocabulary, with blanks between them, by callers with their own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lingon.errors import InvalidRequest, TextTooLong
from lingon.segments.boundaries import Span
from lingon.text import UNK, Tokenizer, printable

if TYPE_CHECKING:
    from lingon.text import Segmenter

SHOWN = 40  # characters of a piece in an error


def source_of_pieces(text: str, field: str, tokenizer: Tokenizer, most: int) -> list[int]:
    """Return the source tokens of a text in pieces, with the end token and those of the languages; none without pieces.

    most: tokens that the model reads. Raises TextTooLong, and InvalidRequest for what is no piece.
    """
    pieces = text.split()
    if not pieces:
        return []
    if (tokens := len(pieces) + len(tokenizer.framed(()))) > most:
        message = (
            f"{field} has {tokens} tokens, the model reads {most} at most; a text in pieces is not split, shorten it"
        )
        raise TextTooLong(field, message)
    return tokenizer.framed(_ids(pieces, field, tokenizer.source, "source"))


def target_of_pieces(text: str, field: str, tokenizer: Tokenizer, most: int) -> tuple[int, ...]:
    """Return the tokens of a target prefix in pieces; most: tokens that it may have; errors as for a source."""
    pieces = text.split()
    if len(pieces) > most:
        raise TextTooLong(field, f"{field} has {len(pieces)} tokens, at most {most} are allowed")
    return tuple(_ids(pieces, field, tokenizer.target, "target"))


def written(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return target tokens as a text in pieces."""
    return " ".join(tokenizer.target_pieces(tokens))


def piece_spans(text: str) -> list[Span]:
    """Return where each piece of a text is, without the blanks around it."""
    spans, end = list[Span](), 0
    for piece in text.split():
        begin = text.index(piece, end)
        end = begin + len(piece)
        spans.append((begin, end))
    return spans


def _ids(pieces: Sequence[str], field: str, vocabulary: Segmenter, side: str) -> list[int]:
    """Return the ids of pieces; `<unk>` is the unknown piece, and other pieces that stand for no text are refused."""
    unknown = str(vocabulary.id_to_piece(UNK))
    ids = list[int]()
    for place, piece in enumerate(pieces):
        token = int(vocabulary.piece_to_id(piece))
        if token < UNK or vocabulary.is_control(token) or (token == UNK and piece != unknown):
            shown = printable(piece if len(piece) <= SHOWN else f"{piece[:SHOWN]}…")
            kind = "is no piece" if token == UNK else "stands for no text, and cannot be used as a piece"
            message = f"{field}: {shown!r} at place {place} {kind} of the {side} vocabulary"
            raise InvalidRequest(field, f"{message}; {unknown} is an unknown piece" if token == UNK else message)
        ids.append(token)
    return ids
