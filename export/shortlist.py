"""The vocabulary shortlist of a bundle: learned from parallel text, and measured on held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lingon.errors import CorpusError, SettingsError
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, FORBIDDEN, PAD, UNK, Tokenizer, without_end
from lingon.training.config import LanguageSettings
from lingon.training.corpus import Pair

# A lexical translation table, learned by expectation maximisation: IBM Model 1 with a null word.
# Brown et al. (1993), The Mathematics of Statistical Machine Translation, section 4.1: one source piece of the
# sentence, or the null word, produced each target piece, and all alignments are equally likely. The model learns
# p(target piece | source piece). Target tokens are processed in chunks, so that the size of the table and of the text
# bounds the memory, for any length of sentences.

NULL = PAD
"""The source id of the null word. No sentence contains padding."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class LexiconSettings:
    """Settings of the training of a lexicon.

    iterations: iterations of expectation maximisation
    chunk_links: pairs of a source and a target token in one chunk, which bounds the working memory
    max_entries: largest number of entries. The pairs of pieces that occur together least often are dropped
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
class PieceLexicon:
    """p(target piece | source piece), (entries) each: sorted by source, then descending probability, then target.

    It has no entries of the null word, and none below `LexiconSettings.min_probability`.
    """

    sources: Ints
    targets: Ints
    probabilities: Floats


@dataclass(frozen=True, slots=True)
class _SentenceIds:
    """Concatenated sentences. Sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.int32]
    offsets: Ints

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], first: tuple[int, ...] = ()) -> _SentenceIds:
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
) -> PieceLexicon:
    """Learn the lexicon of parallel sentences (token ids without special tokens).

    target_vocab: the number of target pieces
    log: called with a line at every iteration

    Raises CorpusError if there is no pair of sentences.
    """
    settings = settings or LexiconSettings()
    source_text, target_text = _SentenceIds.of(sources, (NULL,)), _SentenceIds.of(targets)
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


def _chunks(source: _SentenceIds, target: _SentenceIds, target_vocab: int, chunk_links: int) -> Iterator[_Links]:
    """Yield the links of all target tokens, about chunk_links in a chunk. A sentence may span several chunks."""
    sentences = np.repeat(np.arange(len(target.lengths), dtype=np.int32), target.lengths)  # of each target token
    ends = np.cumsum(source.lengths[sentences])
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + chunk_links, side="right")), first + 1)
        yield _links(source, sentences[first:last], target.ids[first:last], target_vocab)
        first = last


def _links(
    source: _SentenceIds, sentences: NDArray[np.int32], target_ids: NDArray[np.int32], target_vocab: int
) -> _Links:
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


def _sorted_lexicon(keys: Ints, probabilities: Floats, target_vocab: int, min_probability: float) -> PieceLexicon:
    sources, targets = np.divmod(keys, target_vocab)
    kept = np.flatnonzero((probabilities >= min_probability) & (sources != NULL))
    order = kept[np.lexsort((targets[kept], -probabilities[kept], sources[kept]))]
    return PieceLexicon(sources[order], targets[order], probabilities[order])


# Building the vocabulary shortlist of a bundle from the training text.

ONE_PAIR = "text of one pair of languages would leave out the pieces of the others"
"""Why none is learned for a model of several languages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortlistSettings:
    """Settings of a shortlist.

    With the defaults, the shipped model loses 0.05 BLEU with beam 4 and 0.01 in greedy search, at 830 pieces per
    sentence. With per_piece = 24 and always = 128, at 290 pieces, beam 4 loses 0.25: scores are normalised over the
    pieces of the sentence, so that a step in which the model is unsure gets too high a score.

    per_piece: the number of most probable target pieces of each source piece, without those of `always`
    always: the number of most frequent target pieces, which every sentence may use
    max_pairs: the most sentence pairs to learn from, taken evenly from the text
    """

    per_piece: int = 64
    always: int = 512
    max_pairs: int = 500_000
    lexicon: LexiconSettings = field(default_factory=LexiconSettings)

    def __post_init__(self) -> None:
        for name in ("per_piece", "always", "max_pairs"):
            if getattr(self, name) < 1:
                raise SettingsError(f"shortlist: {name} must be at least 1, got {getattr(self, name)}")


def serves_one_pair(languages: LanguageSettings | None) -> bool:
    """Return whether a model translates from one language into one other. None is a model that was made for a pair."""
    return languages is None or len(languages.sources) + len(languages.targets) == 2


def check_one_pair(
    languages: LanguageSettings | None, option: str = "--shortlist", remedy: str = "export without it: --no-shortlist"
) -> None:
    """Raise SettingsError if a shortlist that is learned from text of one pair would not fit a model.

    option: that asks for it; remedy: what to do
    """
    if not serves_one_pair(languages):
        raise SettingsError(f"{option}: {ONE_PAIR}; {remedy}")


def build_shortlist(
    pairs: Sequence[Pair],
    tokenizer: Tokenizer,
    settings: ShortlistSettings | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Shortlist:
    """Build the shortlist from the pairs that the model was trained on.

    log: called with a line at every stage. Raises CorpusError if there is no pair.
    """
    settings = settings or ShortlistSettings()
    chosen = pairs[:: max(-(-len(pairs) // settings.max_pairs), 1)]
    log(f"shortlist: {len(chosen):,} of {len(pairs):,} sentence pairs")
    sources = [without_end(tokenizer.encode_source(pair.source)) for pair in chosen]
    targets = [tokenizer.encode_target(pair.target) for pair in chosen]
    lexicon = learn_lexicon(sources, targets, tokenizer.target_vocab, settings.lexicon, log)
    always = _most_frequent(targets, tokenizer.target_vocab, settings.always)
    likely = _most_probable(lexicon, np.append(always, FORBIDDEN), settings.per_piece)
    return _assemble(always, np.concatenate([likely, _identical_pieces(tokenizer, always)]), tokenizer)


def _most_frequent(targets: Sequence[Sequence[int]], target_vocab: int, count: int) -> NDArray[np.int64]:
    """Return the end token and the `count` most frequent pieces of targets, in ascending order."""
    counts = np.bincount(np.fromiter(chain.from_iterable(targets), np.int64), minlength=target_vocab)
    counts[[*FORBIDDEN, EOS]] = 0
    frequent = np.argsort(-counts, kind="stable")[:count]
    return np.union1d(frequent[counts[frequent] > 0], [EOS])


def _most_probable(lexicon: PieceLexicon, excluded: NDArray[np.int64], per_piece: int) -> NDArray[np.int64]:
    """Return rows (source, target) of the per_piece most probable target pieces of each source piece.

    excluded: target pieces that do not count
    """
    kept = ~np.isin(lexicon.targets, excluded)
    sources, targets = lexicon.sources[kept], lexicon.targets[kept]
    ranks = np.arange(len(sources)) - np.searchsorted(
        sources, sources
    )  # within the source piece, the most probable first
    return np.stack([sources, targets], axis=1)[ranks < per_piece]


def _identical_pieces(tokenizer: Tokenizer, always: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows (source, target) of the pieces that are the same text on both sides, to copy names and numbers."""
    source, target = tokenizer.source, tokenizer.target
    same = [target.piece_to_id(source.id_to_piece(piece)) for piece in range(tokenizer.source_vocab)]
    rows = np.stack([np.arange(len(same)), np.array(same, np.int64)], axis=1)
    return rows[(rows[:, 1] > UNK) & ~np.isin(rows[:, 1], always)]


def _assemble(always: NDArray[np.int64], rows: NDArray[np.int64], tokenizer: Tokenizer) -> Shortlist:
    """Make a shortlist of rows (source, target). The target pieces of a source piece are in ascending order."""
    rows = np.unique(rows, axis=0)
    offsets = np.searchsorted(rows[:, 0], np.arange(tokenizer.source_vocab + 1))
    return Shortlist(always.astype(np.int32), offsets.astype(np.int32), rows[:, 1].astype(np.int32))


# The coverage of a shortlist: the share of held-out references that its sets contain.

BATCH_SIZE = 32
"""Sentences of a union of sets: the usual size of a running batch."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of held-out references that the sets of their sentences contain, and the size of the sets.

    tokens: the share of reference tokens that are in the set of their sentence
    sentences: the share of references whose tokens are all in the set of their sentence
    mean_size, p95_size, largest: size of the sets, in pieces
    mean_union: size of the union of the sets of `batch_size` random sentences, in pieces
    """

    pairs: int
    tokens: float
    sentences: float
    mean_size: float
    p95_size: float
    largest: int
    batch_size: int
    mean_union: float


def measure_coverage(shortlist: Shortlist, pairs: Sequence[Pair], tokenizer: Tokenizer) -> Coverage:
    """Measure the coverage on held-out pairs. Raises CorpusError if there is no pair."""
    if not pairs:
        raise CorpusError("the coverage of a shortlist cannot be measured: there is no pair of sentences")
    sets = [shortlist.select(tokenizer.encode_source(pair.source)) for pair in pairs]
    targets = [tokenizer.encode_target(pair.target) for pair in pairs]
    covered = [int(np.isin(target, pieces).sum()) for target, pieces in zip(targets, sets, strict=True)]
    complete = sum(count == len(target) for count, target in zip(covered, targets, strict=True))
    sizes, random, batch_size = [len(each) for each in sets], np.random.default_rng(0), min(BATCH_SIZE, len(sets))
    batches = [random.choice(len(sets), batch_size, replace=False) for _ in range(50)]
    unions = [len(np.unique(np.concatenate([sets[index] for index in each]))) for each in batches]
    return Coverage(
        pairs=len(pairs),
        tokens=sum(covered) / max(sum(map(len, targets)), 1),
        sentences=complete / len(pairs),
        mean_size=float(np.mean(sizes)),
        p95_size=float(np.percentile(sizes, 95)),
        largest=max(sizes),
        batch_size=batch_size,
        mean_union=float(np.mean(unions)),
    )
