"""Figures of a prepared corpus for its report: lengths of all pairs, and what a sample of the texts is written in.

The lengths are counted in blocks. The sample has at most SAMPLE pairs, so that a large corpus takes little longer.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lingon.identifiers import Identifiers
from lingon.language_tags import canonical, primary
from lingon.source_language import script_of_letter
from lingon.text import UNK, Tokenizer
from lingon.training.epochs import Permutation
from lingon.training.filters import FEWEST_BYTES
from lingon.training.prepared import CorpusFacts, PreparedCorpus

SAMPLE = 10_000  # pairs, of all corpora together
SEED = 57
BLOCK = 2**20  # pairs whose lengths are in memory at once
EXAMPLES = 10  # pairs of the sample of a corpus that are shown at most
LONGEST = 5  # of the pairs with the most tokens
OCTAVES = 3  # of the histogram of ratios, below and above 1
BINS = 4  # of an octave
SURE = 0.5  # the probability from which on a text is in the language of its corpus
OTHER = "other"
SCRIPT_NAMES = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "CANADIAN": "Syllabics", "OL": "Ol Chiki"}
"""The names of scripts that the first word of the names of their letters does not say."""


@dataclass(slots=True)
class Lengths:
    """How many pairs have which lengths.

    sources, targets: pairs by tokens, from 0
    ratios: pairs by target tokens for each source token, from 1/8 to 8 in steps of a quarter of an octave; the first
        and the last have all beyond
    longest: the rows of the pairs with the longest side, that first
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    ratios: NDArray[np.int64]
    longest: list[int]


@dataclass(slots=True)
class Side:
    """What the sample has on one side of a corpus.

    tokens, bytes, unknown: pieces in all, those that stand for one byte, and those of unknown characters
    scripts: letters by the name of their script
    languages: texts by code, of those that are long enough to tell
    short: texts that are not
    """

    language: str
    characters: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0
    scripts: dict[str, int] = field(default_factory=dict)
    languages: dict[str, int] = field(default_factory=dict)
    short: int = 0

    @property
    def own_share(self) -> float:
        """The share of texts in the language of the corpus, 1 if none was told."""
        total = sum(self.languages.values())
        return self.languages.get(self.language, 0) / total if total else 1.0


@dataclass(slots=True)
class Sample:
    """Pairs of a corpus, drawn at random; examples: some of them."""

    pairs: int
    examples: list[tuple[str, str]]
    source: Side
    target: Side


@dataclass(slots=True)
class Survey:
    """The figures of a corpus; samples: of each corpus of its config."""

    lengths: Lengths
    samples: list[Sample]


def survey(corpus: PreparedCorpus, tokenizer: Tokenizer, identifiers: Identifiers | None) -> Survey:
    """Return the figures of a corpus; identifiers: that tell its languages, if they are installed."""
    is_byte = [
        np.array(list(map(model.is_byte, range(vocab))), np.bool_)
        for model, vocab in ((tokenizer.source, tokenizer.source_vocab), (tokenizer.target, tokenizer.target_vocab))
    ]
    samples = [
        _sample(corpus, number, facts, is_byte, identifiers) for number, facts in enumerate(corpus.manifest.corpora)
    ]
    return Survey(count_lengths(corpus.lengths), samples)


def count_lengths(lengths: NDArray[np.unsignedinteger], block: int = BLOCK) -> Lengths:
    """Return how many pairs have which lengths; lengths: (pairs, 2); block: pairs that are taken at once."""
    most = 1 + max((int(lengths[at : at + block].max()) for at in range(0, len(lengths), block)), default=0)
    sources, targets = np.zeros(most, np.int64), np.zeros(most, np.int64)
    ratios = np.zeros(2 * OCTAVES * BINS + 1, np.int64)
    longest, rows = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for at in range(0, len(lengths), block):
        here = np.asarray(lengths[at : at + block], np.int64)
        sources += np.bincount(here[:, 0], minlength=most)
        targets += np.bincount(here[:, 1], minlength=most)
        octaves = np.log2(here[:, 1] / here[:, 0]).clip(-OCTAVES, OCTAVES)
        ratios += np.bincount(np.rint((octaves + OCTAVES) * BINS).astype(np.int64), minlength=len(ratios))
        sides = here.max(axis=1)
        above = np.flatnonzero(sides > longest[-1]) if len(longest) == LONGEST else np.arange(len(sides))
        longest, rows = np.concatenate([longest, sides[above]]), np.concatenate([rows, at + above])
        order = np.argsort(-longest, kind="stable")[:LONGEST]
        longest, rows = longest[order], rows[order]
    return Lengths(sources, targets, ratios, rows.tolist())


def sample_size(corpora: int) -> int:
    """Return how many pairs are drawn of each of so many corpora at most."""
    return max(SAMPLE // corpora, 1)


def quantile(counts: NDArray[np.int64], share: float) -> int:
    """Return the length that this share of the pairs have at most; counts: pairs by length."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))


def mean(counts: NDArray[np.int64]) -> float:
    """Return the mean length; counts: pairs by length."""
    return float(counts @ np.arange(len(counts)) / max(counts.sum(), 1))


def _sample(
    corpus: PreparedCorpus,
    number: int,
    facts: CorpusFacts,
    is_byte: Sequence[NDArray[np.bool_]],
    identifiers: Identifiers | None,
) -> Sample:
    """Return the figures of pairs of one corpus, as many as of each other one."""
    size = min(facts.kept, sample_size(len(corpus.manifest.corpora)))
    drawn = corpus.corpus_starts[number] + Permutation(facts.kept, (SEED, number))(np.arange(size))
    examples = list(zip(*corpus.texts(drawn[:EXAMPLES]), strict=True))
    rows = np.sort(drawn)
    every = zip(facts.languages, corpus.texts(rows), corpus.ids(rows), is_byte, strict=True)
    source, target = (_side(language, texts, ids, flags, identifiers) for language, texts, ids, flags in every)
    return Sample(size, examples, source, target)


def _side(
    language: str,
    texts: Sequence[str],
    ids: Sequence[NDArray[np.unsignedinteger]],
    is_byte: NDArray[np.bool_],
    identifiers: Identifiers | None,
) -> Side:
    characters = Counter("".join(texts))
    tokens = np.concatenate([*ids, np.zeros(0, np.int64)]).astype(np.int64)
    found = Side(language, characters.total(), len(tokens), int(is_byte[tokens].sum()), int((tokens == UNK).sum()))
    found.scripts = by_count(scripts(characters))
    if identifiers is not None:
        long = [text for text in texts if len(text.encode()) >= FEWEST_BYTES]
        found.short = len(texts) - len(long)
        codes = identifiers.codes_of(primary(canonical(language, "the language")))
        found.languages = by_count(Counter(_language(text, language, codes, identifiers) for text in long))
    return found


def scripts(characters: Counter[str]) -> Counter[str]:
    """Return how many letters there are of each script."""
    found: Counter[str] = Counter()
    for character, count in characters.items():
        if character.isalpha():
            found[_script_name(character)] += count
    return found


def _script_name(letter: str) -> str:
    if not script_of_letter(letter):
        return OTHER
    word = unicodedata.name(letter).replace("-", " ").split(" ")[0]
    return SCRIPT_NAMES.get(word, word.title())


def _language(text: str, language: str, codes: frozenset[str], identifiers: Identifiers) -> str:
    """Return the code of the language of a text: that of its corpus, if one of the identifiers takes it for that."""
    if codes and identifiers.confirms(text, codes, SURE):
        return language
    code = identifiers.rank(text)[0][0]
    return language if code in codes else code


def by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts in descending order, with equal ones in the order of their names."""
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
