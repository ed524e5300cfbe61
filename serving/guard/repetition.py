"""Finds translations that repeat themselves: loops of words, of tokens, or of a phrase."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Sequence

NGRAM = 4
OFTENER = 2  # a translation has its commonest n-gram at least so many times more often than its source has its own
COMPRESSED_BYTES = 200  # of UTF-8: shorter texts do not compress well, whatever they say
COMPRESSION = 2.4  # bytes of a text for each byte of it compressed: what looping text exceeds


PERIODS = range(1, 17)  # tokens of a phrase that `is_looping` finds
TIMES = 4  # that a phrase is repeated, and at least TIMES * NGRAM tokens


def is_looping(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether the last tokens of a translation are one phrase again and again, and its source has no such phrase."""
    count = len(target)
    if count < TIMES * NGRAM:
        return False
    last = target[-1]
    for period in PERIODS:
        length = TIMES * max(period, NGRAM)
        if length > count:
            return False
        if target[-1 - period] == last and target[count - length : -period] == target[count - length + period :]:
            return _commonest(source) < TIMES
    return False


def repeats(source: str, target: str, source_ids: Sequence[int], target_ids: Sequence[int]) -> bool:
    """Whether a translation repeats itself more than its source does.

    The commonest 4-gram of words or tokens is compared as by Raunak et al. (2021), section 4.2, the ratio of
    compression as by Radford et al. (2022), section 4.5.
    """
    if _commonest(target_ids) > 1 and (  # words that repeat themselves have tokens that do
        _oscillates(source_ids, target_ids) or _oscillates(source.split(), target.split())
    ):
        return True
    return len(target) >= COMPRESSED_BYTES // 4 and _is_compressible(source, target)


def _oscillates(source: Sequence[Hashable], target: Sequence[Hashable]) -> bool:
    found = _commonest(target)
    return found >= OFTENER and found >= _commonest(source) + OFTENER


def _commonest(items: Sequence[Hashable]) -> int:
    """How often the commonest n-gram occurs; 0 if there are fewer than NGRAM items."""
    if len(items) < NGRAM or len(set(items)) == len(items):
        return int(len(items) >= NGRAM)
    grams = list(zip(*(items[begin:] for begin in range(NGRAM)), strict=False))
    return 1 if len(set(grams)) == len(grams) else max(Counter(grams).values())


def _is_compressible(source: str, target: str) -> bool:
    return _compression(target) > COMPRESSION >= _compression(source)


def _compression(text: str) -> float:
    """Bytes for each byte compressed; 0 for a text that is too short to say."""
    content = text.encode(errors="replace")
    return len(content) / len(zlib.compress(content)) if len(content) >= COMPRESSED_BYTES else 0.0
