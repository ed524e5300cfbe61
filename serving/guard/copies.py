"""Finds translations that are the source again."""

from __future__ import annotations

from collections import Counter

MIN_WORDS = 3  # one or two words are often the same in both languages
COPIED = 0.9  # similarity
LEAST_LENGTH = 0.7  # of the shorter text, relative to the longer one: others are less similar than COPIED
ORDER, BETA = 6, 2  # longest n-gram of characters; weight of recall, as in chrF


def copies(source: str, target: str) -> bool:
    """Whether a translation is a copy of its source, of at least MIN_WORDS words that are not all names."""
    if not LEAST_LENGTH * len(source) <= len(target) <= len(source) / LEAST_LENGTH:
        return False
    words = source.split()
    kinds = set(words)
    if len(words) < MIN_WORDS or 2 * len(kinds.intersection(target.split())) < len(kinds):
        return False
    return not all(map(_may_be_name, words)) and similarity(target, source) >= COPIED


def similarity(text: str, reference: str) -> float:
    """The F score of the n-grams of characters of two texts, 0 to 1: chrF of Popović (2015), with beta 2."""
    scores = []
    text, reference = "".join(text.split()), "".join(reference.split())
    for order in range(1, ORDER + 1):
        mine, wanted = _ngrams(text, order), _ngrams(reference, order)
        if not mine or not wanted:
            break
        common = (mine & wanted).total()
        precision, recall = common / mine.total(), common / wanted.total()
        weighted = BETA**2 * precision + recall
        scores.append((1 + BETA**2) * precision * recall / weighted if weighted else 0.0)
    return sum(scores) / len(scores) if scores else 0.0


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[begin : begin + order] for begin in range(len(text) - order + 1))


def _may_be_name(word: str) -> bool:
    """Whether a word is in title case, or has no letter: a name, a number or a sign."""
    return not any(letter.isalpha() for letter in word) or (word[0].isupper() and not word.isupper())
