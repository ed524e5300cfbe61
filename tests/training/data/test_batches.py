from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import CorpusError
from lingon.text import BOS, EOS, PAD, Tokenizer
from lingon.training.data.batches import (
    EncodedPairs,
    EpochEncoder,
    derive_seed,
    drop_long,
    filter_by_length,
    plan_batches,
)
from lingon.training.data.corpus import FilterCounts, Pair, TrainingText

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80)


@given(lengths=LENGTHS, budget=st.integers(1, 200), seed=st.integers(0, 2**40))
def test_every_pair_is_in_one_batch_within_the_budget(lengths: list[tuple[int, int]], budget: int, seed: int) -> None:
    array = np.array(lengths)
    batches = plan_batches(array, budget, (seed, 3))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * array[rows].max() <= budget


def test_the_plan_is_a_function_of_the_seed_and_the_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (200, 2))

    def plan(*seed: int) -> list[list[int]]:
        return [rows.tolist() for rows in plan_batches(lengths, 100, seed)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1) != plan(2, 0)


def test_pairs_of_similar_length_are_batched_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (2000, 2))
    padded = sum(len(rows) * lengths[rows, 1].max() for rows in plan_batches(lengths, 400, (1,)))
    assert padded < 1.1 * lengths[:, 1].sum()


def test_a_long_source_makes_only_its_own_batch_small() -> None:
    lengths = np.array([(40, 1), *[(5, 5)] * 100])
    assert len(plan_batches(lengths, 100, (1,))) <= 6


def test_a_batch_has_padded_pairs_with_begin_and_end_tokens() -> None:
    batch = EncodedPairs([[5, 6], [7]], [[8], [9, 10, 11]]).batch([0, 1])
    assert batch.source_ids.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_ids.tolist() == [[BOS, 8, PAD, PAD], [BOS, 9, 10, 11]]
    assert batch.labels.tolist() == [[8, EOS, PAD, PAD], [9, 10, 11, EOS]]
    assert batch.tokens == 6


def test_a_source_without_an_end_token_is_its_pieces(tokenizer: Tokenizer) -> None:
    pairs = [Pair("1 2 3", "3 2 1"), Pair("4", "4")]
    framed = tokenizer.with_source_end(source_end=False)
    for alpha in (0.0, 0.1):
        encoded = EpochEncoder(pairs, framed, alpha).encode((1,))
        batch = encoded.batch([0, 1])
        assert batch.source_lengths.tolist() == [len(source) for source in encoded.sources]
        assert EOS not in batch.source_ids
        assert (batch.labels == EOS).sum() == 2
        assert batch.source_ids[0].tolist() == encoded.sources[0]


def test_different_numbers_give_different_seeds() -> None:
    seeds = {derive_seed(run, step, index) for run in range(3) for step in range(100) for index in range(3)}
    assert len(seeds) == 900
    assert max(seeds) < 2**32


def test_pairs_longer_than_max_tokens_on_a_side_are_filtered(tokenizer: Tokenizer) -> None:
    short, long = Pair("1 2", "2 1"), Pair("1 2 3 4 5 6", "6 5 4 3 2 1")
    length = len(tokenizer.encode_source(long.source))
    assert filter_by_length([short, long], tokenizer, length) == [short, long]
    assert filter_by_length([short, long], tokenizer, length - 1) == [short]


def test_long_pairs_are_dropped_and_counted_once_however_often_they_repeat(tokenizer: Tokenizer) -> None:
    text = TrainingText([[Pair("1", "1"), Pair("1 2 3 4 5 6", "6")]], [3], FilterCounts(2))
    kept = drop_long(text, tokenizer, 4)
    assert kept.epoch() == [Pair("1", "1")] * 3
    assert (kept.counts.kept, kept.counts.dropped["length"]) == (1, 1)
    with pytest.raises(CorpusError, match=r"no pair has at most data\.max_tokens = 1 tokens"):
        drop_long(text, tokenizer, 1)
