"""Uses of the attention between tokens: the matrices of a request to score, word weights, and coverage. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from lingon.alignment import KINDS, AttentionKind, caller_words
from lingon.bundle.manifest import Manifest
from lingon.errors import InvalidRequest, Unsupported
from lingon.segments.boundaries import Span
from lingon.serving.decoding.job import Hypothesis
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
    """Return the matrices that a request selects. Raises InvalidRequest and Unsupported, which name the field.

    sizes: numbers of layers and heads of the model's attention
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
    """Return the number of weights in all matrices of a pair of so many tokens, end tokens included."""
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
    """Yield the tokens of a text with their spans. The end token, which has no span, is at the end of the text."""
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
    """Return the selected layers or heads without repetition, or all of them if none is selected."""
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


WordWeights = list[list[float]]

MOST_WEIGHTS = 200_000  # weights of a sentence, such as 450 words; with more, tag placement blocks the event loop

_WORD = re.compile(r"\S+")


def word_weights(
    attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span], source: str, target: str
) -> WordWeights:
    """Return (target words, source words): the share of a target word's attention that each source word receives.

    attention: (target tokens, source tokens), tokens without a span last
    sources, targets: the spans of the tokens in `source` and `target`, with words separated by white space
    """
    of_tokens = attention[: len(targets), : len(sources)]
    summed = _sums(targets, target) @ of_tokens @ _sums(sources, source).T
    totals = summed.sum(axis=0, keepdims=True)
    found: WordWeights = np.divide(summed, totals, out=np.zeros_like(summed), where=totals > 0).tolist()
    return found


def sentence_weights(sentence: str, parts: Sequence[tuple[str, str, WordWeights | None]]) -> WordWeights | None:
    """Return the weights of a sentence from its parts, or None if one has none or the sentence is very long.

    sentence: as it was sent; it may have words of invisible characters, which its parts do not have
    parts: for each, the normalised source, the translation, and the weights between their words
    """
    columns, count = caller_words(sentence), len(sentence.split())
    if count * sum(len(target.split()) for _, target, _ in parts) > MOST_WEIGHTS:
        return None
    found, first = WordWeights(), 0
    for source, target, weights in parts:
        words = len(source.split())
        if weights is None or len(weights) != len(target.split()) or first + words > len(columns):
            return None
        for row in weights:
            placed = [0.0] * count
            for index, weight in zip(columns[first : first + words], row, strict=True):
                placed[index] = weight
            found.append(placed)
        first += words
    return found if first == len(columns) else None


def _sums(spans: Sequence[Span], text: str) -> np.ndarray:
    """Return (words, tokens): 1 for the word in which a token ends. A token of white space begins the next word."""
    ends = [found.end() for found in _WORD.finditer(text)]
    sums = np.zeros((len(ends), len(spans)), np.float32)
    for token, (begin, end) in enumerate(spans):
        if end > begin:
            sums[min(bisect_left(ends, end), len(ends) - 1), token] = 1
    return sums


LEAST_COVERAGE = float(np.finfo(np.float32).tiny)
"""The least attention to a source token, because a softmax can underflow to 0."""


def coverage(attention: np.ndarray) -> float:
    """Return the sum over source tokens of log(min(coverage, 1)), at most 0 (Wu et al. 2016, equation 14).

    attention: (target_length, source_length), a row for each token of the translation and its end token
    """
    covered = attention.sum(axis=0, dtype=np.float64)
    return float(np.log(np.clip(covered, LEAST_COVERAGE, 1.0)).sum())


def with_coverage(hypothesis: Hypothesis, attention: np.ndarray, penalty: float) -> Hypothesis:
    """Return a hypothesis with the penalty in its score.

    attention: see `coverage`; penalty: beta, the factor of the sum
    """
    return replace(hypothesis, score=hypothesis.score + penalty * coverage(attention))


def covering_tokens(hypothesis: Hypothesis) -> tuple[int, ...]:
    """Return the tokens for the scorer. Its attention has one more row, for the token that follows them.

    The last token is left out if it ends the translation at the bound of its length, because no scorer reads beyond it.
    """
    return hypothesis.tokens if hypothesis.finished else hypothesis.tokens[:-1]
