"""A lexical translation table, learned by expectation maximisation: IBM Model 1 with a null word.

Brown et al. (1993), The Mathematics of Statistical Machine Translation, section 4.1: one source piece of the sentence,
or the null word, produced each target piece, and all alignments are equally likely. The model learns
p(target piece | source piece). Target tokens are processed in chunks, so that the size of the table and of the text
bounds the memory, for any length of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lingon.errors import CorpusError, SettingsError
from lingon.text import PAD

NULL = PAD
"""The source id of the null word; no sentence contains padding."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class LexiconSettings:
    """Settings of the training of a lexicon.

    iterations: iterations of expectation maximisation
    chunk_links: pairs of a source and a target token in one chunk, which bounds the working memory
    max_entries: largest number of entries; the pairs of pieces that occur together least often are dropped
    min_probability: entries with a smaller probability are dropped at the end
    """

    iterations: int = 5
    chunk_links: int = 1 << 20
    max_entries: int = 1 << 24
    min_probability: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("iterations", "chunk_links", "max_entries"):
            if getattr(self, name) < 1:
                raise SettingsError(f"lexicon: {name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.min_probability < 1:
            raise SettingsError(f"lexicon: min_probability must be from 0 to below 1, got {self.min_probability}")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """p(target piece | source piece), (entries) each: sorted by source, then descending probability, then target.

    It has no entries of the null word, and none below `LexiconSettings.min_probability`.
    """

    sources: Ints
    targets: Ints
    probabilities: Floats


@dataclass(frozen=True, slots=True)
class _Text:
    """Concatenated sentences; sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.int32]
    offsets: Ints

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], first: tuple[int, ...] = ()) -> _Text:
        """Concatenate sentences, each after the ids of `first`."""
        lengths = np.fromiter((len(first) + len(sentence) for sentence in sentences), np.int64, len(sentences))
        ids = (token for sentence in sentences for token in (*first, *sentence))
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), np.append(0, np.cumsum(lengths)))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True)
class _Links:
    """Every pair of a source token and a target token of some sentences.

    keys: (distinct), sorted; source id * target vocabulary + target id
    entries: (links), the index in keys of each link
    tokens: (links), the index of the target token of each link, from 0
    """

    keys: Ints
    entries: Ints
    tokens: Ints


def learn_lexicon(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    target_vocab: int,
    settings: LexiconSettings | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Lexicon:
    """Learn the lexicon of parallel sentences (token ids without special tokens).

    target_vocab: the number of target pieces
    log: called with a line at every iteration

    Raises CorpusError if there is no pair of sentences.
    """
    settings = settings or LexiconSettings()
    source_text, target_text = _Text.of(sources, (NULL,)), _Text.of(targets)
    if not len(target_text.ids):
        raise CorpusError("a lexicon cannot be learned: there is no pair of sentences")

    def chunks() -> Iterator[_Links]:
        return _chunks(source_text, target_text, target_vocab, settings.chunk_links)

    keys = _observed_pairs(chunks(), settings.max_entries)
    probabilities = np.ones(len(keys))
    for iteration in range(settings.iterations):
        log(f"lexicon: iteration {iteration + 1} of {settings.iterations} over {len(keys):,} entries")
        probabilities = _maximise(keys // target_vocab, _expect(keys, probabilities, chunks()))
    return _sorted_lexicon(keys, probabilities, target_vocab, settings.min_probability)


def _chunks(source: _Text, target: _Text, target_vocab: int, chunk_links: int) -> Iterator[_Links]:
    """Yield the links of all target tokens, about chunk_links in a chunk; a sentence may span several chunks."""
    sentences = np.repeat(np.arange(len(target.lengths), dtype=np.int32), target.lengths)  # of each target token
    ends = np.cumsum(source.lengths[sentences])
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + chunk_links, side="right")), first + 1)
        yield _links(source, sentences[first:last], target.ids[first:last], target_vocab)
        first = last


def _links(source: _Text, sentences: NDArray[np.int32], target_ids: NDArray[np.int32], target_vocab: int) -> _Links:
    """Return the links of some target tokens; sentences has the sentence of each token."""
    source_lengths = source.lengths[sentences]
    tokens = np.repeat(np.arange(len(sentences)), source_lengths)
    links_before = np.cumsum(source_lengths) - source_lengths
    indices = np.arange(len(tokens)) + np.repeat(source.offsets[sentences] - links_before, source_lengths)
    keys = source.ids[indices].astype(np.int64) * target_vocab + target_ids[tokens]
    distinct, entries = np.unique(keys, return_inverse=True)
    return _Links(distinct, entries, tokens)


def _observed_pairs(chunks: Iterator[_Links], max_entries: int) -> Ints:
    """Return the keys of all links, or the max_entries most frequent ones."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    pending: list[tuple[Ints, Ints]] = []
    for links in chunks:
        pending.append((links.keys, np.bincount(links.entries)))
        if sum(len(each) for each, _ in pending) > len(keys):  # merging costs as much as the merged table is long
            keys, counts = _merged([(keys, counts), *pending], max_entries)
            pending = []
    return _merged([(keys, counts), *pending], max_entries)[0]


def _merged(parts: list[tuple[Ints, Ints]], max_entries: int) -> tuple[Ints, Ints]:
    keys, entries = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    counts = np.bincount(entries, np.concatenate([counts for _, counts in parts])).astype(np.int64)
    if len(keys) > max_entries:
        frequent = np.sort(np.argsort(-counts, kind="stable")[:max_entries])
        keys, counts = keys[frequent], counts[frequent]
    return keys, counts


def _expect(keys: Ints, probabilities: Floats, chunks: Iterator[_Links]) -> Floats:
    """Return the expected number of target tokens that each entry has produced (the E step)."""
    expected = np.zeros(len(keys))
    for links in chunks:
        indices = np.minimum(np.searchsorted(keys, links.keys), len(keys) - 1)
        known = keys[indices] == links.keys
        likely = np.where(known, probabilities[indices], 0)[links.entries]
        totals = np.bincount(links.tokens, likely)
        totals[totals == 0] = 1  # all entries of this token were dropped
        shares = np.bincount(links.entries, likely / totals[links.tokens])
        expected[indices[known]] += shares[known]
    return expected


def _maximise(sources: Ints, expected: Floats) -> Floats:
    """Normalise expected counts, so that the probabilities of a source piece sum to 1 (the M step)."""
    totals = np.bincount(sources, expected)
    totals[totals == 0] = 1
    shares: Floats = expected / totals[sources]
    return shares


def _sorted_lexicon(keys: Ints, probabilities: Floats, target_vocab: int, min_probability: float) -> Lexicon:
    sources, targets = np.divmod(keys, target_vocab)
    kept = np.flatnonzero((probabilities >= min_probability) & (sources != NULL))
    order = kept[np.lexsort((targets[kept], -probabilities[kept], sources[kept]))]
    return Lexicon(sources[order], targets[order], probabilities[order])
