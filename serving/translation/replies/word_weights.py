"""How much of each source word is in each target word, by the attention between tokens; tags are placed by it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from lingon.alignment import caller_words
from lingon.segments.boundaries import Span

WordWeights = list[list[float]]

MOST_WEIGHTS = 200_000  # of a sentence, such as 450 words; placing tags by them holds up the event loop

_WORD = re.compile(r"\S+")


def word_weights(
    attention: np.ndarray, sources: Sequence[Span], targets: Sequence[Span], source: str, target: str
) -> WordWeights:
    """Return (target words, source words): the share of the attention to a source word that a target word has.

    attention: (target tokens, source tokens), those without a span last
    sources, targets: the spans of the tokens in `source` and `target`, whose words white space separates
    """
    of_tokens = attention[: len(targets), : len(sources)]
    summed = _sums(targets, target) @ of_tokens @ _sums(sources, source).T
    totals = summed.sum(axis=0, keepdims=True)
    found: WordWeights = np.divide(summed, totals, out=np.zeros_like(summed), where=totals > 0).tolist()
    return found


def sentence_weights(sentence: str, parts: Sequence[tuple[str, str, WordWeights | None]]) -> WordWeights | None:
    """Return the weights of a sentence by those of its parts; None if one has none, or the sentence is very long.

    sentence: as it was sent; it may have words of invisible characters, which are not in its parts
    parts: of each the normalised source, the translation, and the weights between their words
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
            for place, weight in zip(columns[first : first + words], row, strict=True):
                placed[place] = weight
            found.append(placed)
        first += words
    return found if first == len(columns) else None


def _sums(spans: Sequence[Span], text: str) -> np.ndarray:
    """Return (words, tokens): 1 for the word in which a token ends; a token of white space begins the word after it."""
    ends = [found.end() for found in _WORD.finditer(text)]
    sums = np.zeros((len(ends), len(spans)), np.float32)
    for token, (begin, end) in enumerate(spans):
        if end > begin:
            sums[min(bisect_left(ends, end), len(ends) - 1), token] = 1
    return sums
