"""Parallel text from files: read, normalised, filtered, and counted at every filter."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from lingon.errors import CorpusError
from lingon.text import normalise
from training.config import Corpus, DataSettings


class Pair(NamedTuple):
    """A source sentence and its translation, both normalised."""

    source: str
    target: str


@dataclass(slots=True)
class FilterCounts:
    """How many pairs were read and why some were left out."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: {"empty": 0, "ratio": 0, "duplicate": 0, "length": 0})

    @property
    def kept(self) -> int:
        """How many pairs are left."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.read:,} pairs read, {self.kept:,} kept (dropped: {reasons})"


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip'ed, without their ends; the error names file and line."""
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):
                yield raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
    except (OSError, EOFError) as error:
        where = f"{path}:{number + 1}" if number else str(path)
        raise CorpusError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def read_pairs(corpus: Corpus) -> Iterator[Pair]:
    """The pairs of a corpus as they stand in its files."""
    if corpus.tsv is not None:
        yield from _read_tsv(corpus.tsv)
        return
    assert corpus.source is not None and corpus.target is not None
    source, target = read_lines(corpus.source), read_lines(corpus.target)
    for count, line in enumerate(source):
        other = next(target, None)
        if other is None:
            raise CorpusError(f"{corpus.target}:{count + 1}: ends here, but {corpus.source} goes on")
        yield Pair(normalise(line), normalise(other))
    if next(target, None) is not None:
        raise CorpusError(f"{corpus.source}: has fewer lines than {corpus.target}")


def read_training_pairs(settings: DataSettings) -> tuple[list[Pair], FilterCounts]:
    """The pairs to learn from: all corpora after the filters, a repeated corpus as often as it says."""
    kept: list[Pair] = []
    counts, seen = FilterCounts(), set[Pair]()
    for corpus in settings.train:
        for pair in read_pairs(corpus):
            counts.read += 1
            reason = _why_dropped(pair, settings, seen)
            if reason:
                counts.dropped[reason] += 1
            else:
                kept += [pair] * corpus.repeat
    if not kept:
        raise CorpusError(f"no pair is left to train on: {counts}")
    return kept, counts


def sides(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    """All sources and all targets."""
    sources, targets = zip(*pairs, strict=True)
    return list(sources), list(targets)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_tsv(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise CorpusError(f"{path}:{number}: needs two columns separated by a tab, has {len(columns)}")
        yield Pair(normalise(columns[0]), normalise(columns[1]))


def _why_dropped(pair: Pair, settings: DataSettings, seen: set[Pair]) -> str | None:
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if not shorter:
        return "empty"
    if longer > settings.max_ratio * shorter + 25:  # short sentences vary freely: 25 characters are always allowed
        return "ratio"
    if settings.drop_duplicates:
        if pair in seen:
            return "duplicate"
        seen.add(pair)
    return None
