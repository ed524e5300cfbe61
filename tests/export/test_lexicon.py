"""The lexical translation table: what it learns, and what it refuses."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from lingon.errors import CorpusError, SettingsError
from lingon.export.shortlist import LexiconSettings, PieceLexicon, learn_lexicon

VOCAB = 40
Text = tuple[list[list[int]], list[list[int]]]


def planted_text(count: int = 300, seed: int = 0) -> Text:
    """Source piece s always becomes target piece VOCAB + 3 - s, in any order; every target has piece 4."""
    random = np.random.default_rng(seed)
    sources = [random.integers(5, VOCAB, random.integers(1, 9)).tolist() for _ in range(count)]
    targets = [[4, *random.permutation([VOCAB + 3 - piece for piece in source]).tolist()] for source in sources]
    return sources, targets


def learn(text: Text, **settings: float) -> PieceLexicon:
    return learn_lexicon(*text, VOCAB, LexiconSettings(**settings))  # type: ignore[arg-type]


def as_dict(lexicon: PieceLexicon) -> dict[tuple[int, int], float]:
    pairs = zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True)
    return dict(zip(pairs, lexicon.probabilities.tolist(), strict=True))


def plain_model_1(text: Text, iterations: int) -> dict[tuple[int, int], float]:
    """Model 1 as in the paper, in loops over words; 0 is the null word."""
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in zip(*text, strict=True):
            for word in target:
                whole = sum(table[piece, word] for piece in (0, *source))
                for piece in (0, *source):
                    counts[piece, word] += table[piece, word] / whole
                    totals[piece] += table[piece, word] / whole
        table = defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})
    return {pair: value for pair, value in table.items() if pair[0] != 0}


def test_pieces_that_always_occur_together_become_translations():
    lexicon = learn(planted_text(), iterations=8)
    first = np.searchsorted(lexicon.sources, np.arange(5, VOCAB))
    assert lexicon.sources[first].tolist() == list(range(5, VOCAB))
    assert lexicon.targets[first].tolist() == [VOCAB + 3 - piece for piece in range(5, VOCAB)]
    assert lexicon.probabilities[first].min() > 0.9


@pytest.mark.parametrize("iterations", [1, 4])
def test_the_probabilities_equal_a_simple_implementation_of_model_1(iterations):
    text = planted_text(count=40)
    expected = plain_model_1(text, iterations)
    found = as_dict(learn(text, iterations=iterations, min_probability=0))
    assert found.keys() == expected.keys()
    assert max(abs(found[pair] - expected[pair]) for pair in expected) < 1e-12


def test_the_chunk_size_changes_no_probability():
    text = planted_text(count=60)
    whole = as_dict(learn(text))
    for chunk_links in (1, 50, 1000):
        found = as_dict(learn(text, chunk_links=chunk_links))
        assert found == pytest.approx(whole, abs=1e-12)


def test_a_long_pair_uses_no_more_memory_than_a_chunk():
    random = np.random.default_rng(0)
    source, target = (random.integers(4, VOCAB, 2000).tolist() for _ in range(2))
    whole = as_dict(learn(([source], [target]), iterations=1))
    tracemalloc.start()
    try:
        found = as_dict(learn(([source], [target]), iterations=1, chunk_links=1 << 14))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == pytest.approx(whole, abs=1e-12)
    assert peak < 10e6, f"{peak / 1e6:.0f} MB for 4 million links"


def test_entries_are_sorted_by_source_and_descending_probability():
    lexicon = learn(planted_text(count=60))
    places = list(zip(lexicon.sources, -lexicon.probabilities, lexicon.targets, strict=True))
    assert places == sorted(places)


def test_the_probabilities_of_a_source_piece_sum_to_one_without_min_probability():
    text = planted_text(count=60)
    for least in (0.0, 0.01):
        lexicon = learn(text, min_probability=least)
        sums = np.bincount(lexicon.sources, lexicon.probabilities)[np.unique(lexicon.sources)]
        assert lexicon.probabilities.min() >= least
        assert ((sums > 0.8) & (sums < 1 + 1e-9)).all()
        assert least or np.allclose(sums, 1)


def test_a_full_table_drops_the_least_frequent_pairs():
    text = planted_text()
    whole = learn(text, min_probability=0)
    small = learn(text, min_probability=0, max_entries=120, chunk_links=200)
    assert len(small.sources) < 120 < len(whole.sources)
    first = np.searchsorted(small.sources, np.unique(small.sources))
    assert np.mean(small.targets[first] == VOCAB + 3 - small.sources[first]) > 0.9


def test_empty_sentences_change_nothing():
    sources, targets = planted_text(count=30)
    assert as_dict(learn(([*sources, [], [7]], [*targets, [], []]))) == as_dict(learn((sources, targets)))


def test_every_iteration_is_logged():
    lines: list[str] = []
    learn_lexicon(*planted_text(count=20), VOCAB, LexiconSettings(iterations=3), lines.append)
    assert [line.split(" over")[0] for line in lines] == [f"lexicon: iteration {number} of 3" for number in (1, 2, 3)]


@pytest.mark.parametrize("text", [([], []), ([[5]], [[]])])
def test_no_text_is_refused(text):
    with pytest.raises(CorpusError, match="no pair of sentences"):
        learn(text)


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"chunk_links": 0}, {"max_entries": 0}, {"min_probability": 1}])
def test_a_setting_out_of_bounds_is_named(wrong):
    with pytest.raises(SettingsError, match=f"{next(iter(wrong))} must be"):
        LexiconSettings(**wrong)
