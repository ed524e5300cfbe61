"""Sentences with random inline elements around their words."""

from __future__ import annotations

import random
import re
from itertools import count

MOST_DEEP = 3
_TAG = re.compile(r"</?[^>]*>")


def tagged(sentence: str, rng: random.Random) -> str:
    """A sentence with elements and points, each with an `id` of its own; words are separated by spaces."""
    return _with_elements(sentence.split(), rng, count(), MOST_DEEP)


def tags_of(text: str) -> list[str]:
    """The tags of a text in order."""
    return _TAG.findall(text)


def without_tags(text: str) -> str:
    """A text without its tags."""
    return _TAG.sub("", text)


def _with_elements(words: list[str], rng: random.Random, numbers: count[int], depth: int) -> str:
    parts, at = list[str](), 0
    while at < len(words):
        length = rng.randint(1, len(words) - at)
        inside = words[at : at + length]
        if depth and rng.random() < 0.5:
            number = next(numbers)
            parts.append(f'<b id="{number}">{_with_elements(inside, rng, numbers, depth - 1)}</b>')
        else:
            parts.append(" ".join(inside))
        if rng.random() < 0.1:
            parts.append(f'<img id="{next(numbers)}"/>')
        at += length
    return " ".join(parts)
