"""Pairs of a corpus: normalised texts and links, and how many each filter has dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lingon.alignment import WordLink, caller_words, check_range
from lingon.text import normalise
from lingon.training.config import Corpus, DataSettings, LanguagePair
from lingon.training.parallel_text import read_blocks

BLOCK = 8192  # rows that are read at once


class Pair(NamedTuple):
    """A source sentence and its translation, both normalised.

    languages: of the two, if they are others than those of the block data
    """

    source: str
    target: str
    languages: LanguagePair | None = None


@dataclass(slots=True)
class FilterCounts:
    """How many pairs were read, and how many each filter dropped. A pair that an epoch repeats counts once."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: FilterCounts) -> FilterCounts:
        reasons = {**self.dropped, **other.dropped}
        dropped = {reason: self.dropped.get(reason, 0) + other.dropped.get(reason, 0) for reason in reasons}
        return FilterCounts(self.read + other.read, dropped)

    @property
    def kept(self) -> int:
        """How many pairs passed every filter."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        shown = {"empty": 0, "ratio": 0, "duplicate": 0, "length": 0, **self.dropped}
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in shown.items())
        return f"{self.read:,} pairs read, {self.kept:,} kept (dropped: {reasons})"


def read_pairs(corpus: Corpus, languages: LanguagePair | None = None) -> Iterator[Pair]:
    """Yield the pairs of a corpus in the order of its files, normalised and without links; languages: see `Pair`."""
    for source, target in _lines(corpus):
        yield Pair(normalise(source), normalise(target), languages=languages)


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


def normalised_links(links: Iterable[WordLink], source: str, target: str, where: str) -> tuple[WordLink, ...]:
    """Return links between the words of the normalised texts; where: the file and the number of the line.

    links: between the words of source and target as the files have them. Those of words that normalisation removes
    are dropped.
    """
    check_range(links, len(source.split()), len(target.split()), where)
    sources, targets = (
        {word: position for position, word in enumerate(caller_words(text))} for text in (source, target)
    )
    return tuple(sorted((sources[i], targets[j]) for i, j in links if i in sources and j in targets))
