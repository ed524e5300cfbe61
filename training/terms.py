"""What is annotated of a pair so that a model learns to use terms: phrases and their translations, by word alignments.

A phrase pair is consistent with the links as in phrase extraction (Och and Ney, 2004, section 2.2): no word of either
side is linked to a word outside. Besides, each of its words has a link. The translation is the form that the target
has, not its lemma, because no lemmatiser is there for most languages, and because the target is then always right.
What is annotated is a function of the pair and of its key in an epoch, so that any process draws the same.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lingon.alignment import Span, WordLink
from lingon.terms.annotation import Place, annotated
from lingon.training.config import TermSettings
from lingon.training.epochs import mixed

ROOM = 10
"""Tokens that an annotation may have for each of its terms, which batches are planned for: three are its markers."""

_JOINING = "-'’·"  # signs inside a word


@dataclass(frozen=True, slots=True)
class TermAnnotator:
    """What annotates the sources of a run. Equal arguments give equal results in every process."""

    settings: TermSettings

    def counts(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return how many terms each pair is annotated with, at most; keys: of their places in the epoch."""
        drawn = (mixed(keys + np.uint64(3)) >> np.uint64(11)) * 2.0**-53 / self.settings.share
        found: NDArray[np.int64] = np.where(drawn < 1, 1 + (drawn * self.settings.max_terms).astype(np.int64), 0)
        return found

    def annotated(
        self, pair: tuple[str, str], links: Sequence[WordLink], count: int, key: int, fits: Callable[[str], bool]
    ) -> str | None:
        """Return the annotated source of a pair, or None if nothing of it can be annotated.

        pair: normalised source and target
        links: between their words
        count: of terms, at most
        key: of the place in the epoch
        fits: whether an annotated source is short enough
        """
        source, target = pair
        if self.settings.form.is_in(source):
            return None
        draw = random.Random(key)
        groups = list(phrases(source, target, links, self.settings))
        draw.shuffle(groups)
        chosen, text = list[Place](), None
        for group in groups:
            place = draw.choice(group)
            if len(chosen) == count:
                break
            if any(place.begin < other.end and other.begin < place.end for other in chosen):
                continue
            more = sorted([*chosen, place])
            if fits(longer := annotated(source, more, self.settings.form)):
                chosen, text = more, longer
        return text


def phrases(source: str, target: str, links: Sequence[WordLink], settings: TermSettings) -> Iterator[list[Place]]:
    """Yield the phrases of a pair, those that begin with the same word together.

    source, target: normalised
    """
    forward, backward = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for one, other in links:
        forward[one].add(other)
        backward[other].add(one)
    words = _words(source), _words(target)
    for first in sorted(forward):
        found = list[Place]()
        inside = set[int]()
        for last in range(first, first + settings.max_words):
            if last not in forward:
                break
            inside |= forward[last]
            begin, end = min(inside), max(inside) + 1
            if end - begin > settings.max_words:
                break
            if len(inside) < end - begin or any(
                not first <= word <= last for each in inside for word in backward[each]
            ):
                continue
            spans = (words[0][first][0], words[0][last][1]), (words[1][begin][0], words[1][end - 1][1])
            found += _place(source, target, *spans, settings.min_letters)
        if found:
            yield found


def _words(text: str) -> list[Span]:
    return [word.span() for word in re.finditer("[^ ]+", text)]


def _place(source: str, target: str, phrase: Span, translation: Span, min_letters: int) -> list[Place]:
    """Return a phrase without the punctuation around it as a list of one; empty if no term looks so."""
    one, other = _bare(source, phrase, min_letters), _bare(target, translation, min_letters)
    if one is None or other is None or source[slice(*one)] == target[slice(*other)]:
        return []
    return [Place(*one, target[slice(*other)])]


def _bare(text: str, span: Span, min_letters: int) -> Span | None:
    """Return a span without the punctuation at its ends, or None if some is inside or too few letters are there."""
    begin, end = span
    while begin < end and _is_sign(text[begin]):
        begin += 1
    while begin < end and _is_sign(text[end - 1]):
        end -= 1
    inside = text[begin:end]
    if sum(map(str.isalpha, inside)) < min_letters:
        return None
    return None if any(_is_sign(each) and each not in _JOINING for each in inside) else (begin, end)


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
