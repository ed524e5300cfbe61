"""A lexical translation table, learned by expectation and maximisation: IBM Model 1 with a null word.

Brown et al. (1993), The Mathematics of Statistical Machine Translation, section 4.1: every target piece was produced
by one source piece of its sentence, or by the null word, each as likely as any other; what is learned is
p(target piece | source piece). Target tokens are computed in chunks, so that memory is bounded by the table
and the text, however long its sentences are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lingon.errors import CorpusError, SettingsError
from lingon.text import PAD

NULL = PAD
"""The source id of the null word: no sentence holds padding."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class LexiconSettings:
    """How a lexicon is learned.

    iterations: rounds of expectation and maximisation
    chunk_links: pairs of a source and a target token that are computed at once, which bounds the scratch memory
    max_entries: of the table; beyond it the pairs of pieces that stood together least often are forgotten
    min_probability: entries below it are left out in the end
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
    """p(target piece | source piece), (entries) each: by source, then the likeliest first, then by target.

    The null word's probabilities are left out, as is what falls below `LexiconSettings.min_probability`.
    """

    sources: Ints
    targets: Ints
    probabilities: Floats


@dataclass(frozen=True, slots=True)
class _Text:
    """Sentences end to end; sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.int32]
    offsets: Ints

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], first: tuple[int, ...] = ()) -> _Text:
        """Sentences with the ids of `first` put before each."""
        lengths = np.fromiter((len(first) + len(sentence) for sentence in sentences), np.int64, len(sentences))
        ids = (token for sentence in sentences for token in (*first, *sentence))
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), np.append(0, np.cumsum(lengths)))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True)
class _Links:
    """Every pair of a source and a target token of some sentences.

    keys: (distinct), sorted: source id * target vocabulary + target id
    entries: (links): the place of each link's pair in keys
    tokens: (links): the target token of each link, counted from 0
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
    """The lexicon of parallel sentences, token ids without special tokens; target_vocab: number of target pieces.

    say: told how far it has come. Raises CorpusError where there is nothing to learn from.
    """
    settings = settings or LexiconSettings()
    source_text, target_text = _Text.of(sources, (NULL,)), _Text.of(targets)
    if not len(target_text.ids):
        raise CorpusError("a lexicon cannot be learned: there is no pair of sentences")

    def chunks() -> Iterator[_Links]:
        return _chunks(source_text, target_text, target_vocab, settings.chunk_links)

    keys = _pairs_seen(chunks(), settings.max_entries)
    probabilities = np.ones(len(keys))
    for iteration in range(settings.iterations):
        log(f"lexicon: round {iteration + 1} of {settings.iterations} over {len(keys):,} entries")
        probabilities = _maximise(keys // target_vocab, _expect(keys, probabilities, chunks()))
    return _sorted_lexicon(keys, probabilities, target_vocab, settings.min_probability)


def _chunks(source: _Text, target: _Text, target_vocab: int, chunk_links: int) -> Iterator[_Links]:
    """The links of all target tokens, about chunk_links at a time: the tokens of one sentence may be in several."""
    sentences = np.repeat(np.arange(len(target.lengths), dtype=np.int32), target.lengths)  # of each target token
    ends = np.cumsum(source.lengths[sentences])
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + chunk_links, side="right")), first + 1)
        yield _links(source, sentences[first:last], target.ids[first:last], target_vocab)
        first = last


def _links(source: _Text, sentences: NDArray[np.int32], target_ids: NDArray[np.int32], target_vocab: int) -> _Links:
    """The links of some target tokens; sentences: where each stands."""
    source_lengths = source.lengths[sentences]
    tokens = np.repeat(np.arange(len(sentences)), source_lengths)
    links_before = np.cumsum(source_lengths) - source_lengths
    places = np.arange(len(tokens)) + np.repeat(source.offsets[sentences] - links_before, source_lengths)
    keys = source.ids[places].astype(np.int64) * target_vocab + target_ids[tokens]
    distinct, entries = np.unique(keys, return_inverse=True)
    return _Links(distinct, entries, tokens)


def _pairs_seen(chunks: Iterator[_Links], max_entries: int) -> Ints:
    """The keys of all links, or of the max_entries that were seen most often."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    waiting: list[tuple[Ints, Ints]] = []
    for links in chunks:
        waiting.append((links.keys, np.bincount(links.entries)))
        if sum(len(some) for some, _ in waiting) > len(keys):  # merging costs as much as what is merged into
            keys, counts = _merged([(keys, counts), *waiting], max_entries)
            waiting = []
    return _merged([(keys, counts), *waiting], max_entries)[0]


def _merged(parts: list[tuple[Ints, Ints]], max_entries: int) -> tuple[Ints, Ints]:
    keys, entries = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    counts = np.bincount(entries, np.concatenate([counts for _, counts in parts])).astype(np.int64)
    if len(keys) > max_entries:
        often = np.sort(np.argsort(-counts, kind="stable")[:max_entries])
        keys, counts = keys[often], counts[often]
    return keys, counts


def _expect(keys: Ints, probabilities: Floats, chunks: Iterator[_Links]) -> Floats:
    """How often each entry is expected to have produced a target token of the text."""
    expected = np.zeros(len(keys))
    for links in chunks:
        places = np.minimum(np.searchsorted(keys, links.keys), len(keys) - 1)
        known = keys[places] == links.keys
        likely = np.where(known, probabilities[places], 0)[links.entries]
        totals = np.bincount(links.tokens, likely)
        totals[totals == 0] = 1  # a token all of whose entries were forgotten
        shares = np.bincount(links.entries, likely / totals[links.tokens])
        expected[places[known]] += shares[known]
    return expected


def _maximise(sources: Ints, expected: Floats) -> Floats:
    """Expected counts made probabilities: those of a source piece sum to 1."""
    totals = np.bincount(sources, expected)
    totals[totals == 0] = 1
    shares: Floats = expected / totals[sources]
    return shares


def _sorted_lexicon(keys: Ints, probabilities: Floats, target_vocab: int, min_probability: float) -> Lexicon:
    sources, targets = np.divmod(keys, target_vocab)
    kept = np.flatnonzero((probabilities >= min_probability) & (sources != NULL))
    order = kept[np.lexsort((targets[kept], -probabilities[kept], sources[kept]))]
    return Lexicon(sources[order], targets[order], probabilities[order])
