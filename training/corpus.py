"""Parallel text from files: reading, normalisation, filters, and a count for every filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lingon.alignment import WordLink, caller_words, check_range
from lingon.errors import CorpusError
from lingon.files import read_lines, read_parallel
from lingon.text import normalise
from lingon.training.config import Corpus, DataSettings, LanguagePair


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


def read_raw(corpus: Corpus, *, linked: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield source, target and the line of the alignment file of each pair, as the files have them.

    linked: whether the alignment file is read. Else its lines are empty
    """
    if not linked or corpus.alignment is None:
        for source, target in _lines(corpus):
            yield source, target, ""
        return
    text, links, number = corpus.files()[0], read_lines(corpus.alignment), 0
    for number, (source, target) in enumerate(_lines(corpus), start=1):
        found = next(links, None)
        if found is None:
            raise CorpusError(f"{corpus.alignment}:{number}: ends here, but {text} goes on")
        yield source, target, found
    if next(links, None) is not None:
        raise CorpusError(f"{text}:{number + 1}: ends here, but {corpus.alignment} goes on")


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
    if corpus.tsv is not None:
        return _read_tsv(corpus.tsv)
    assert corpus.source is not None
    assert corpus.target is not None
    return read_parallel(corpus.source, corpus.target)


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


def _read_tsv(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if not line.strip():
            columns = ["", ""]  # counts as an empty pair, as in parallel files
        if len(columns) < 2:
            raise CorpusError(f"{path}:{number}: must have two columns separated by a tab, got {len(columns)}")
        yield columns[0], columns[1]
