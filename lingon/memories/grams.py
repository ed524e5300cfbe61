"""An index of the rarest character trigrams of texts, which finds the texts that are similar to another one.

Each text is listed under its rarest trigrams only, and a text is looked up by its rarest ones: both sides order
trigrams by how rare they are, so that similar texts share some (the prefix filter of Chaudhuri, Ganti and Kaushik,
2006). Texts are numbered by their length. Those of a range of lengths therefore are a slice of each list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BUCKETS = 1 << 18  # of trigrams; a language has about 50,000 different ones
LISTED = 24  # trigrams of a text under which it is listed
LOOKED_UP = 48  # trigrams of a text that is looked up
SAMPLE = 1 << 17  # texts that tell how rare trigrams are
MOST_POSTINGS = 400_000  # that are counted for one text: about 4 ms
_CHUNK = 1 << 14  # texts that are indexed at once: some 50 MB
_BETWEEN = ord("\n")  # no comparable text has it

Numbers = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class GramIndex:
    """Lists of texts by trigram.

    rarity: (BUCKETS,) the place of each bucket of trigrams in the order from rare to frequent
    begins: (BUCKETS + 1,) where the list of the trigram with this place begins
    postings: the numbers of texts, ascending in each list
    """

    rarity: Numbers
    begins: NDArray[np.uint64]
    postings: Numbers

    def candidates(self, form: str, begin: int, end: int, most: int) -> list[int]:
        """Return the numbers of at most `most` texts from `begin` to `end` that share most with one, the best first.

        form: a comparable text
        """
        if begin >= end:
            return []
        wanted = self._ranked(form)
        counts = np.zeros(end - begin, np.uint8)
        left = MOST_POSTINGS
        bounds = np.array([begin, end], np.uint32)  # of the type of the lists, which else were converted
        for first, last in zip(self.begins[wanted].tolist(), self.begins[wanted + 1].tolist(), strict=True):
            listed = self.postings[first:last]
            if last - first > 0 and (listed[0] < begin or listed[-1] >= end):
                listed = listed[slice(*np.searchsorted(listed, bounds).tolist())]
            left -= len(listed)
            if left < 0:
                break
            counts[listed - begin] += 1  # a list has a text once
        return [begin + each for each in _largest(counts, most)]

    def _ranked(self, form: str) -> Numbers:
        """Return the places of the rarest trigrams of a text, the rarest first."""
        _, places = _grams([form], self.rarity)
        return places[:LOOKED_UP]


def _largest(counts: NDArray[np.uint8], most: int) -> list[int]:
    """Return where at most `most` of the largest counts above 0 are, the largest first and equal ones in order."""
    low, high = 1, LOOKED_UP + 1  # the least bound that at most `most` counts reach is in low..high
    while low < high:
        middle = (low + high) // 2
        if np.count_nonzero(counts >= middle) <= most:
            high = middle
        else:
            low = middle + 1
    found = np.flatnonzero(counts >= low)
    if low > 1 and len(found) < most:
        found = np.concatenate([found, np.flatnonzero(counts == low - 1)[: most - len(found)]])
    order = np.argsort(-counts[found].astype(np.int16), kind="stable")
    ordered: list[int] = found[order].tolist()
    return ordered


def _hashes(forms: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Return for each character of texts the bucket of the trigram around it, and the number of its text."""
    characters = np.frombuffer(("\n" + "\n".join(forms) + "\n").encode("utf-32-le", "surrogatepass"), np.uint32)
    mixed = characters[:-2] * np.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> np.uint32(15))) + characters[1:-1] * np.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE3D) + characters[2:] * np.uint32(0x27D4EB2F)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x165667B1)
    inside = characters[1:-1] != _BETWEEN
    texts = np.cumsum(~inside, dtype=np.uint32)
    return mixed[inside] >> np.uint32(33 - BUCKETS.bit_length()), texts[inside]


def _grams(forms: Sequence[str], rarity: Numbers) -> tuple[Numbers, Numbers]:
    """Return the different trigrams of texts as places in the order of rarity: text by text, the rarest first.

    Returns the numbers of the texts and the places.
    """
    buckets, texts = _hashes(forms)
    pairs = np.sort(texts.astype(np.uint64) << np.uint64(32) | rarity[buckets])
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]]
    return (pairs >> np.uint64(32)).astype(np.uint32), (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _rarity(sample: Iterable[Sequence[str]]) -> Numbers:
    """Return the places of buckets in the order from rare to frequent, as chunks of some texts have them."""
    unordered = np.arange(BUCKETS, dtype=np.uint32)
    frequency = np.zeros(BUCKETS, np.int64)
    for forms in sample:
        frequency += np.bincount(_grams(forms, unordered)[1], minlength=BUCKETS)
    rarity = np.empty(BUCKETS, np.uint32)
    rarity[np.argsort(frequency, kind="stable")] = unordered
    return rarity


def build_index(count: int, read: Callable[[range], list[str]]) -> GramIndex:
    """Return the index of texts, which takes about 130 bytes a text in memory while it is built.

    count: of the texts, which are numbered from 0 by their lengths
    read: returns the comparable texts of some numbers
    """
    every = max(1, count // SAMPLE)
    rarity = _rarity(read(numbers) for numbers in _chunks(range(0, count, every)))
    chunks = [_rarest(read(numbers), rarity) for numbers in _chunks(range(count))]
    lengths = sum((np.bincount(places, minlength=BUCKETS) for _, places in chunks), np.zeros(BUCKETS, np.int64))
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    postings = np.empty(int(begins[-1]), np.uint32)
    filled = begins[:-1].astype(np.int64)
    for numbers, (listed, places) in zip(_chunks(range(count)), chunks, strict=True):
        texts = np.repeat(np.arange(numbers.start, numbers.stop, dtype=np.uint32), listed)
        order = np.argsort(places, kind="stable")  # keeps the numbers of a list ascending
        lengths = np.bincount(places, minlength=BUCKETS)
        begin = np.repeat(filled - (np.cumsum(lengths) - lengths), lengths)
        postings[begin + np.arange(len(places))] = texts[order]
        filled += lengths
    return GramIndex(rarity, begins, postings)


def _chunks(numbers: range) -> Iterator[range]:
    return (numbers[at : at + _CHUNK] for at in range(0, len(numbers), _CHUNK))


def _rarest(forms: Sequence[str], rarity: Numbers) -> tuple[NDArray[np.uint8], Numbers]:
    """Return how many trigrams each text is listed under, and their places, text by text."""
    texts, places = _grams(forms, rarity)
    sizes = np.bincount(texts, minlength=len(forms))
    nth = np.arange(len(texts)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.minimum(sizes, LISTED).astype(np.uint8), places[nth < LISTED]
