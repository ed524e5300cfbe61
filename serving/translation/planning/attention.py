"""The attention of a request to score: what it selects, how many weights that is, and the messages of the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from lingon.attention_kinds import KINDS, AttentionKind
from lingon.bundle import Manifest
from lingon.errors import InvalidRequest, Unsupported
from lingon.serving.runtime.runner import (
    AttentionChoice,
    AttentionMatrix,
    AttentionSize,
    HeadChoice,
    matrix_shape,
)
from lingon.translation.v1 import translation_pb2 as pb

Sizes = Mapping[AttentionKind, AttentionSize]


def choose_attention(selection: pb.AttentionSelection, manifest: Manifest, sizes: Sizes) -> AttentionChoice:
    """Return the matrices that a request selects; raises InvalidRequest and Unsupported, which name the field.

    sizes: of the attention that the model has
    """
    if not sizes:
        raise Unsupported(f"attention: the model {manifest.name}/{manifest.version} has no attention")
    if selection.alignment:
        return _alignment(selection, manifest, sizes)
    return tuple(
        HeadChoice(
            kind,
            _within("layers", selection.layers, sizes[kind].layers, kind),
            _within("heads", selection.heads, sizes[kind].heads, kind),
            mean=selection.mean_of_heads,
        )
        for kind in _kinds(selection, manifest, sizes)
    )


def count_weights(choice: AttentionChoice, source: int, target: int) -> int:
    """Return the weights of all matrices of a pair of so many tokens, the end tokens included."""
    return sum(each.matrices * math.prod(matrix_shape(each.kind, source, target)) for each in choice)


def matrix_message(matrix: AttentionMatrix) -> pb.AttentionMatrix:
    """Return the message of a matrix."""
    rows, columns = matrix.weights.shape
    message = pb.AttentionMatrix(
        kind=KINDS[matrix.kind], layer=matrix.layer, rows=rows, columns=columns, weights=matrix.weights.ravel().tolist()
    )
    if matrix.head is not None:
        message.head = matrix.head
    return message


def piece_messages(pieces: Sequence[str], spans: Sequence[tuple[int, int]], end: int) -> Iterator[pb.Piece]:
    """Yield the tokens of a text with their spans; the end token, which has none, is at the end of the text."""
    for piece, (first, last) in zip_longest(pieces, spans, fillvalue=(end, end)):
        yield pb.Piece(piece=str(piece), span=pb.Span(begin=first, end=last))


def _kinds(selection: pb.AttentionSelection, manifest: Manifest, sizes: Sizes) -> list[AttentionKind]:
    """Return the selected kinds in the order of KINDS."""
    names = {number: kind for kind, number in KINDS.items()}
    for number in selection.kinds:
        if number not in names:
            raise InvalidRequest("attention.kinds", f"attention.kinds has no value {number}")
        if names[number] not in sizes:
            raise Unsupported(
                f"attention.kinds: the model {manifest.name}/{manifest.version} has no {names[number]} attention, "
                f"only {' and '.join(sizes)}"
            )
    return [kind for kind in KINDS if kind in sizes and (not selection.kinds or KINDS[kind] in selection.kinds)]


def _within(field: str, selected: Sequence[int], count: int, kind: AttentionKind) -> tuple[int, ...]:
    """Return the selected layers or heads without repetition, all of them if none is selected."""
    most = max(selected, default=0)
    if most >= count:
        message = f"attention.{field} must be 0 to {count - 1} for {kind} attention of this model, got {most}"
        raise InvalidRequest(f"attention.{field}", message)
    return tuple(sorted(set(selected))) if selected else tuple(range(count))


def _alignment(selection: pb.AttentionSelection, manifest: Manifest, sizes: Sizes) -> AttentionChoice:
    others = [field.name for field, _ in selection.ListFields() if field.name != "alignment"]
    if others:
        message = f"attention.alignment selects layer and heads itself; unset attention.{others[0]}"
        raise InvalidRequest("attention.alignment", message)
    if "cross" not in sizes:
        raise Unsupported(f"attention.alignment: the model {manifest.name}/{manifest.version} has no cross attention")
    size, named = sizes["cross"], manifest.alignment
    if named.heads:
        return (HeadChoice("cross", (named.layer,), tuple(sorted(set(named.heads))), mean=True),)
    return (HeadChoice("cross", (size.layers - 1,), tuple(range(size.heads)), mean=True),)
