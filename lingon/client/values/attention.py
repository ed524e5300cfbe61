"""The attention of scored pairs on the client's side: which matrices to ask for, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lingon.attention_kinds import KINDS, AttentionKind
from lingon.client.values.results import AttentionMatrix, Piece
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb

_NAMES = {number: kind for kind, number in KINDS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSelection:
    """Which attention matrices `score` returns: by default all that the model has.

    kinds: encoder, decoder (self-attention of either) or cross; none is all that the model has
    layers, heads: from 0; none is all
    mean_of_heads: return the mean of the heads of each layer, instead of each head
    alignment: return the one matrix of cross-attention from which alignments are made; no other field may be set then
    """

    kinds: Sequence[AttentionKind] = ()
    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    mean_of_heads: bool = False
    alignment: bool = False

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise SettingsError(f"kinds must be of {', '.join(KINDS)}, got {kind!r}")

    def fields(self) -> dict[str, Any]:
        """The fields of the message."""
        return {
            "kinds": [KINDS[kind] for kind in self.kinds],
            "layers": self.layers,
            "heads": self.heads,
            "mean_of_heads": self.mean_of_heads,
            "alignment": self.alignment,
        }


def read_matrices(messages: Iterable[pb.AttentionMatrix]) -> tuple[AttentionMatrix, ...]:
    """The matrices of a result, without those of a kind that this client does not know."""
    return tuple(
        AttentionMatrix(
            _NAMES[message.kind],
            message.layer,
            message.head if message.HasField("head") else None,
            tuple(_rows(message)),
        )
        for message in messages
        if message.kind in _NAMES
    )


def read_pieces(messages: Iterable[pb.Piece]) -> tuple[Piece, ...]:
    """The tokens of a text."""
    return tuple(Piece(message.piece, (message.span.begin, message.span.end)) for message in messages)


def _rows(message: pb.AttentionMatrix) -> Iterable[tuple[float, ...]]:
    weights, columns = tuple(message.weights), message.columns
    return (weights[row * columns : (row + 1) * columns] for row in range(message.rows))
