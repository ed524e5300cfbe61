"""Parallel text from files: reading, normalisation, filters, and a count for every filter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingon.alignment import WordLink, caller_words, check_range, format_links, parse_links
from lingon.errors import CorpusError
from lingon.text import normalise
from lingon.training.config import Corpus, DataSettings, LanguagePair, pair_name
from lingon.training.parallel_text import read_blocks

BLOCK = 8192  # rows that are read at once


class Pair(NamedTuple):
    """A source sentence and its translation, both normalised.

    links: between their words, if training reads them
    languages: of the two, if they are others than those of the block data
    """

    source: str
    target: str
    links: tuple[WordLink, ...] = ()
    languages: LanguagePair | None = None


@dataclass(slots=True)
class FilterCounts:
    """How many pairs were read, and how many each filter dropped. A pair that an epoch repeats counts once."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: {"empty": 0, "ratio": 0, "duplicate": 0, "length": 0})

    @property
    def kept(self) -> int:
        """How many pairs passed every filter."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.read:,} pairs read, {self.kept:,} kept (dropped: {reasons})"


@dataclass(frozen=True, slots=True)
class TrainingText:
    """The pairs of every corpus that passed the filters, and how often an epoch repeats each corpus."""

    corpora: list[list[Pair]]
    repeats: list[int]
    counts: FilterCounts

    def epoch(self) -> list[Pair]:
        """Return the pairs of one epoch."""
        shown = zip(self.corpora, self.repeats, strict=True)
        return [pair for pairs, repeat in shown for _ in range(repeat) for pair in pairs]

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of the pairs of an epoch in their order."""
        digest = hashlib.sha256()
        for pair in self.epoch():
            digest.update(f"{pair.source}\n{pair.target}\n".encode())
            # Only what a pair has, so that the digest of a text of one pair of languages is that of older versions.
            if pair.links:
                digest.update(f"{format_links(pair.links)}\n".encode())
            if pair.languages:
                digest.update(f"{pair_name(pair.languages)}\n".encode())
        return digest.hexdigest()


def read_pairs(corpus: Corpus, languages: LanguagePair | None = None) -> Iterator[Pair]:
    """Yield the pairs of a corpus in the order of its files, normalised and without links; languages: see `Pair`."""
    for source, target in _lines(corpus):
        yield Pair(normalise(source), normalise(target), languages=languages)


def read_linked_pairs(corpus: Corpus) -> Iterator[Pair]:
    """Yield the pairs of a corpus with the links of its alignment file. Without such a file none has links."""
    if corpus.alignment is None:
        yield from read_pairs(corpus)
        return
    for block in read_blocks(corpus, BLOCK):
        rows = zip(block.sources, block.targets, block.links or (), strict=True)
        for number, (source, target, line) in enumerate(rows, start=block.first + 1):
            where = f"{corpus.alignment}:{number}"
            links = _normalised_links(parse_links(line, where).possible, source, target, where)
            yield Pair(normalise(source), normalise(target), links)


def read_training_text(settings: DataSettings, *, linked: bool = False) -> TrainingText:
    """Return the pairs of all corpora, after the filters that need no tokenizer.

    A pair that two corpora have belongs to the first of them, so name a corpus with repeat > 1 first.
    Raises CorpusError if no pair passes.

    linked: read the alignment files too. They are of text of one pair of languages
    """
    counts, seen = FilterCounts(), set[tuple[object, ...]]()
    corpora: list[list[Pair]] = []
    for corpus in settings.train:
        corpora.append([])
        for pair in read_linked_pairs(corpus) if linked else read_pairs(corpus, _other_languages(corpus, settings)):
            counts.read += 1
            reason = _drop_reason(pair, settings, seen)
            if reason:
                counts.dropped[reason] += 1
            else:
                corpora[-1].append(pair)
    if not counts.kept:
        raise CorpusError(f"no pair passes the filters of the training text: {counts}")
    return TrainingText(corpora, [corpus.repeat for corpus in settings.train], counts)


def read_validation_text(settings: DataSettings) -> list[Pair]:
    """Return the pairs of all validation corpora, unfiltered."""
    return [pair for corpus in settings.valid for pair in read_pairs(corpus, _other_languages(corpus, settings))]


def by_languages(pairs: Sequence[Pair], own: LanguagePair) -> dict[LanguagePair, list[Pair]]:
    """Return the pairs of each pair of languages, in the order in which these occur.

    own: the pair of languages of the block data
    """
    found: dict[LanguagePair, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.languages or own, []).append(pair)
    return found


def sides(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    """Return all sources and all targets."""
    pairs = list(pairs)
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def _other_languages(corpus: Corpus, settings: DataSettings) -> LanguagePair | None:
    """Return the pair of languages of a corpus, or None if it is that of the settings."""
    found = settings.languages_of(corpus)
    return None if found == settings.languages else found


def _lines(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for block in read_blocks(corpus.model_copy(update={"alignment": None}), BLOCK):
        yield from zip(block.sources, block.targets, strict=True)


def _normalised_links(links: Iterable[WordLink], source: str, target: str, where: str) -> tuple[WordLink, ...]:
    """Return links between the words of the normalised texts; where: the file and the number of the line.

    links: between the words of source and target as the files have them. Those of words that normalisation removes
    are dropped.
    """
    check_range(links, len(source.split()), len(target.split()), where)
    sources, targets = (
        {word: position for position, word in enumerate(caller_words(text))} for text in (source, target)
    )
    return tuple(sorted((sources[i], targets[j]) for i, j in links if i in sources and j in targets))


def _drop_reason(pair: Pair, settings: DataSettings, seen: set[tuple[object, ...]]) -> str | None:
    """Return the filter that drops a pair, or None. Add its texts to seen."""
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if not shorter:
        return "empty"
    if longer > settings.max_ratio * shorter + 25:  # the ratio of short sentences varies much
        return "ratio"
    if settings.drop_duplicates:
        texts = pair.source, pair.target, pair.languages
        if texts in seen:
            return "duplicate"
        seen.add(texts)
    return None


# The shares of several pairs of languages in an epoch (Arivazhagan et al., 2019, section 3.2).


def language_numbers(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Return a number for the languages of each pair, (pairs), counted from 0 in the order in which they occur."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(pair.languages, len(numbers)) for pair in pairs], np.int64)


def epoch_sizes(sizes: NDArray[np.int64], temperature: float) -> NDArray[np.int64]:
    """Return how many pairs of each pair of languages an epoch has, in proportion to sizes ** (1 / temperature).

    sizes: how many there are, each at least 1

    The largest has as many as there are, so that none has fewer and an epoch still has every pair. With a temperature
    of 1 these are the sizes themselves.
    """
    shares: NDArray[np.float64] = (sizes / sizes.max()) ** (1 / temperature)
    found: NDArray[np.int64] = np.maximum(np.rint(sizes.max() * shares).astype(np.int64), sizes)
    return found


def first_epoch(pairs: Sequence[Pair], temperature: float, seed: int) -> list[Pair]:
    """Return the pairs of the first epoch of a run with this seed."""
    return [pairs[row] for row in epoch_rows(language_numbers(pairs), temperature, (seed, 0))]


def epoch_rows(numbers: NDArray[np.int64], temperature: float, seed: Sequence[int]) -> NDArray[np.int64]:
    """Return the rows of the pairs of one epoch, a function of the seed.

    numbers: of the languages of each row, see `language_numbers`

    Each pair is there as often as all of its languages can be. The rest is drawn without replacement.
    """
    if temperature == 1:
        return np.arange(len(numbers))
    random, sizes = np.random.default_rng([*seed, 3]), np.bincount(numbers)
    chosen: list[NDArray[np.int64]] = []
    for number, size in enumerate(epoch_sizes(sizes, temperature).tolist()):
        rows = np.flatnonzero(numbers == number)
        whole, rest = divmod(size, len(rows))
        chosen += [np.tile(rows, whole), random.permutation(rows)[:rest]]
    return np.concatenate(chosen)
