"""Terms from references: pairs of words that a model aligns, as a test of terms that real translations have.

A term is a word of the source and the word of the reference that attend to each other most, with more than half of the
attention. Both are of four letters at least, stand once in their sentence, and are rare in the test set, so that they
carry meaning. Words that are the same on both sides, such as names, are left out, because keeping them is easy. This is
the test of Dinu et al. (2019), "Training Neural Machine Translation to Apply Terminology Constraints", with alignments
in place of a bilingual dictionary.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lingon.bench.tools.tag_placement import Pair, read
from lingon.bench.tools.term_methods import Sentence, Wanted
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.attention import word_weights
from lingon.text import normalise

SHORTEST = 4  # letters of a word of a term
MOST_COMMON = 0.02  # share of the sentences in which a word of a term is at most
LEAST_WEIGHT = 0.5  # share of the attention of the target word
SEED = 60

_LETTERS = re.compile(r"\w+")


class Mined(NamedTuple):
    """A sentence with terms, and the translation that they are from."""

    sentence: Sentence
    reference: str


class Word(NamedTuple):
    """A word of letters in a text: its number among the words between blanks, and its letters."""

    number: int
    letters: str


def mine(translator: LocalTranslator, pairs: Sequence[tuple[str, str]], *, count: int, terms: int) -> list[Mined]:
    """Return the first `count` pairs that have so many terms, chosen at random among those that they have.

    translator: of a model with attention
    """
    given = [(normalise(source), normalise(target)) for source, target in pairs]
    common = [_common([pair[side] for pair in given]) for side in range(2)]
    chosen, draw = list[Mined](), random.Random(SEED)
    for pair in read(translator, given):
        found = [] if pair is None else list(_terms(pair, *common))
        if pair is None or len(found) < terms:
            continue
        picked = sorted(draw.sample(found, terms))
        chosen.append(Mined(Sentence(pair.source, tuple(term for _, term in picked)), pair.target))
        if len(chosen) == count:
            break
    return chosen


def _terms(pair: Pair, common_sources: frozenset[str], common_targets: frozenset[str]) -> Iterator[tuple[int, Wanted]]:
    """Yield the terms of a pair, each with the number of its source word."""
    weights = word_weights(pair.attention, pair.sources, pair.targets, pair.source, pair.target)
    sources = _words(pair.source, common_sources)
    targets = _words(pair.target, common_targets)
    for target in targets:
        row = weights[target.number]
        number = max(range(len(row)), key=row.__getitem__)
        back = max(range(len(weights)), key=lambda each: weights[each][number])
        source = next((each for each in sources if each.number == number), None)
        linked = source is not None and back == target.number and row[number] > LEAST_WEIGHT
        if source is not None and linked and source.letters.lower() != target.letters.lower():
            yield number, Wanted(source.letters, target.letters)


def _words(text: str, common: frozenset[str]) -> list[Word]:
    """Return the words of a text that may be terms."""
    counts = Counter(word.lower() for word in _LETTERS.findall(text))
    words = (Word(number, each.strip(".,;:!?\"'“”„()")) for number, each in enumerate(text.split()))
    return [
        word
        for word in words
        if len(word.letters) >= SHORTEST
        and word.letters.isalpha()
        and counts[word.letters.lower()] == 1
        and word.letters.lower() not in common
    ]


def _common(texts: Sequence[str]) -> frozenset[str]:
    """Return the words, in lower case, that are in too many of the texts."""
    counts = Counter(word for text in texts for word in set(_LETTERS.findall(text.lower())))
    return frozenset(word for word, count in counts.items() if count > MOST_COMMON * len(texts))
