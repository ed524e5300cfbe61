"""Which pairs an epoch has, in which order and batches, and that a feed goes on from any of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import SettingsError
from lingon.text import Tokenizer
from lingon.training import epochs
from lingon.training.batches import Batch
from lingon.training.checkpoint import TrainingProgress
from lingon.training.config import Config
from lingon.training.corpus import Pair
from lingon.training.epochs import (
    Mixture,
    Permutation,
    Segment,
    block_positions,
    blocks,
    epoch_sizes,
    mixture,
    plan_batches,
)
from lingon.training.feed import Feed, UpdateGroup
from lingon.training.processes import Processes
from tests.support.corpora import ids_of, maker_of, text_config

SMALL = 64
"""Positions of a block, where a test makes them few: what is above is drawn by the network."""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "BLOCK", SMALL)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 2, SMALL, SMALL + 1, 100, 128, 129, 255, 256, 257, 1000, 4096, 4097])
def test_a_permutation_has_every_number_once_and_any_part_is_that_of_the_whole(size: int) -> None:
    whole = Permutation(size, (1, 2))(np.arange(size))
    assert sorted(whole.tolist()) == list(range(size))
    part = np.random.default_rng(0).integers(0, size, 50)
    assert Permutation(size, (1, 2))(part).tolist() == whole[part].tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [SMALL, SMALL + 1, 1000])
def test_permutations_of_different_seeds_differ_and_none_keeps_the_order(size: int) -> None:
    seeds = [(seed, epoch) for seed in range(20) for epoch in range(5)]
    found = [tuple(Permutation(size, seed)(np.arange(size)).tolist()) for seed in seeds]
    assert len(set(found)) == len(seeds)
    stays = [sum(number == place for place, number in enumerate(each)) for each in found]
    assert np.mean(stays) < 3  # 1 is expected of random ones


@pytest.mark.usefixtures("small_blocks")
def test_a_drawn_part_of_a_large_permutation_has_all_numbers_alike() -> None:
    """Of the first tenth of 1,000 numbers, 2,000 seeds draw each number 200 times, with a deviation of 13."""
    drawn = np.concatenate([Permutation(1000, (seed,))(np.arange(100)) for seed in range(2000)])
    counts = np.bincount(drawn, minlength=1000)
    assert counts.std() == pytest.approx(13.4, rel=0.1)
    assert abs(counts - 200).max() < 70


def rows_of(groups: Sequence[tuple[Sequence[Segment], int]], *seed: int) -> list[int]:
    shown = Mixture(groups, seed)
    return shown.rows(np.arange(len(shown))).tolist()


SEGMENTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3)), min_size=1, max_size=4)


@given(groups=st.lists(st.tuples(SEGMENTS, st.floats(1, 5)), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_each_row_of_a_group_is_there_as_often_as_its_repeats_say_and_all_can_be(
    groups: list[tuple[list[tuple[int, int]], float]], seed: int
) -> None:
    """The rows of a group are shown in whole rounds; of the last one, a part is drawn without replacement."""
    made, expected, first = list[tuple[list[Segment], int]](), list[dict[int, int]](), 0
    for shapes, times in groups:
        segments = []
        for size, repeat in shapes:
            segments.append(Segment(first, size, repeat))
            first += size
        expected.append({row: each.repeat for each in segments for row in range(each.first, each.first + each.size)})
        made.append((segments, int(sum(expected[-1].values()) * times)))
    found = Counter(rows_of(made, seed))
    assert found.total() == sum(size for _, size in made)
    for repeats, (_, size) in zip(expected, made, strict=True):
        assert sum(found[row] for row in repeats) == size
        whole, rest = divmod(size, sum(repeats.values()) or 1)
        for row, repeat in repeats.items():
            assert whole * repeat <= found[row] <= (whole + (rest > 0)) * repeat


def test_the_rest_of_a_group_is_drawn_anew_for_each_seed_and_each_group() -> None:
    groups = [([Segment(0, 50)], 70), ([Segment(50, 50)], 70)]
    drawn = [
        [row % 50 for row in rows_of(groups, 1, epoch)[first + 50 : first + 70]]
        for epoch in (0, 1)
        for first in (0, 70)
    ]
    assert len({tuple(sorted(each)) for each in drawn}) == 4
    assert all(len(set(each)) == 20 for each in drawn)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 129, 1000])
def test_the_blocks_of_an_epoch_have_every_position_once_and_are_about_equal(size: int) -> None:
    parts = [block_positions(size, block, (1, 0)) for block in range(blocks(size))]
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    assert len({*map(len, parts)}) <= 2
    assert max(map(len, parts)) <= SMALL


@pytest.mark.usefixtures("small_blocks")
def test_a_block_of_several_has_positions_from_the_whole_epoch_and_other_ones_in_the_next_epoch() -> None:
    first, other = (block_positions(1000, 0, (1, epoch)) for epoch in (0, 1))
    assert first.min() < 100
    assert first.max() >= 900
    assert len({*first.tolist()} & {*other.tolist()}) < 20  # 4 are expected


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


# The feed of a run.


def config_of_blocks(folder: Path, pairs: list[Pair], alpha: float = 0.0, **training: Any) -> Config:
    """Return settings of two corpora of 200 and 100 pairs. The second is repeated, or has other languages.

    alpha: with sampling, all pairs must be of one pair of languages
    """
    texts = [(pair.source, pair.target) for pair in pairs]
    for name, part in (("a", texts[:200]), ("b", texts[200:])):
        (folder / f"{name}.tsv").write_text(
            "".join(f"{source}\t{target}\n" for source, target in part), encoding="utf-8"
        )
    more: dict[str, Any] = {"tokenizer": {"sampling_alpha": alpha}}
    if not alpha:
        sides = {"sources": [{"language": "en"}], "targets": [{"language": "de"}, {"language": "fr"}]}
        more = {"languages": sides, "data": {"temperature": 3}}
    second = {"file": folder / "b.tsv", **({"repeat": 2} if alpha else {"target_language": "fr"})}
    limits = {"batch_tokens": 120, "accumulate": 2, **training}
    return text_config(folder, {"file": folder / "a.tsv"}, second, training=limits, **more)


def feed_of(folder: Path, config: Config, tokenizer: Tokenizer) -> Feed:
    maker = maker_of(config, folder / "corpus", tokenizer)
    return Feed(maker._corpus, config, maker, Processes(0, 1, torch.device("cpu")))


Update = tuple[UpdateGroup, list[Batch]]


def place(group: UpdateGroup) -> tuple[int, int, int, float]:
    return group.epoch, group.block, group.batch, group.share


def alike(left: Update, right: Update) -> bool:
    """Return whether two updates are at the same place and have the same batches."""
    if place(left[0]) != place(right[0]) or len(left[1]) != len(right[1]):
        return False
    return all(
        torch.equal(*pair)
        for one, other in zip(left[1], right[1], strict=True)
        for pair in zip(one[:4], other[:4], strict=True)
    )


@pytest.mark.usefixtures("small_blocks")
def test_an_epoch_of_several_blocks_has_every_pair_as_often_as_the_mixture_says(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer
) -> None:
    config = config_of_blocks(tmp_path, pairs)
    sizes = epoch_sizes(np.array([200, 100]), 3).tolist()
    seen: dict[int, list[int]] = {0: [], 1: []}
    for group, _ in feed_of(tmp_path, config, tokenizer).updates(TrainingProgress()):
        if group.epoch == 2:
            break
        seen[group.epoch] += [int(row) for request in group.requests for row in request.rows]
    for epoch, rows in seen.items():
        shown = mixture(config, [200, 100], (config.training.seed, epoch))
        assert blocks(len(shown)) == 6
        assert Counter(rows) == Counter(shown.rows(np.arange(len(shown))).tolist())
        assert [sum(row < 200 for row in rows), sum(row >= 200 for row in rows)] == sizes
    assert seen[0] != seen[1]


@pytest.mark.usefixtures("small_blocks")
def test_the_progress_of_an_epoch_grows_evenly_to_one_over_its_blocks(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer
) -> None:
    feed, shares, first = feed_of(tmp_path, config_of_blocks(tmp_path, pairs), tokenizer), list[float](), set[int]()
    for group, _ in feed.updates(TrainingProgress()):
        if group.epoch == 1:
            break
        shares.append(group.share)
        first.add(group.block)
    assert first == set(range(6))
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert np.diff([0, *shares]).max() < 0.1


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_feed_goes_on_from_any_progress_with_the_same_batches(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer, alpha: float
) -> None:
    feed = feed_of(tmp_path, config_of_blocks(tmp_path, pairs, alpha), tokenizer)
    whole = list(islice(feed.updates(TrainingProgress()), 60))
    places = {group.epoch: group.block for group, _ in whole}
    assert len(places) >= 2, "the end of a block and of an epoch are among them"
    for done, (group, _) in enumerate(whole[:-3], start=1):
        after = TrainingProgress(epoch=group.epoch, block=group.block, batch=group.batch)
        for found, expected in zip(islice(feed.updates(after), 3), whole[done:], strict=False):
            assert alike(found, expected)


@pytest.mark.parametrize("small", [False, True])
def test_a_pair_is_sampled_again_each_time_that_it_is_shown(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """In the next epoch, and where a corpus is repeated."""
    if small:
        monkeypatch.setattr(epochs, "BLOCK", SMALL)
    seen: dict[int, list[tuple[int, list[int]]]] = {}
    for group, batches in feed_of(tmp_path, config_of_blocks(tmp_path, pairs, 0.1), tokenizer).updates(
        TrainingProgress()
    ):
        if group.epoch == 2:
            break
        for request, batch in zip(group.requests, batches, strict=True):
            for row, target in zip(request.rows.tolist(), ids_of(batch)[1], strict=True):
                seen.setdefault(row, []).append((group.epoch, target))
    assert {row: [epoch for epoch, _ in shown] for row, shown in seen.items()} == {
        row: [0, 1] if row < 200 else [0, 0, 1, 1] for row in range(300)
    }
    for apart in (
        [shown[0][1] != shown[-1][1] for shown in seen.values()],
        [s[0][1] != s[1][1] for s in seen.values()],
    ):
        assert np.mean(apart) > 0.8


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_worker_processes_make_the_same_batches(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer, alpha: float
) -> None:
    begin, made = TrainingProgress(epoch=1, block=2, batch=2), list[list[Update]]()
    for workers in (0, 2):
        feed = feed_of(tmp_path, config_of_blocks(tmp_path, pairs, alpha, workers=workers), tokenizer)
        made.append(list(islice(feed.updates(begin), 40)))
    assert all(map(alike, *made))


def test_a_signal_to_all_processes_does_not_end_those_that_make_batches(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer
) -> None:
    """Ctrl-C in a terminal and supervisors send it to all; the process of the run still does the update in hand."""
    feed = feed_of(tmp_path, config_of_blocks(tmp_path, pairs, workers=1), tokenizer)
    updates = feed.updates(TrainingProgress())
    before = next(updates)
    children = multiprocessing.active_children()
    assert children
    for number in (signal.SIGINT, signal.SIGTERM):
        for child in children:
            assert child.pid
            os.kill(child.pid, number)
    assert place(before[0]) < place(list(islice(updates, 100))[-1][0])
    updates.close()  # type: ignore[attr-defined]


def test_more_batches_in_an_update_than_a_block_has_are_refused(
    tmp_path: Path, pairs: list[Pair], tokenizer: Tokenizer
) -> None:
    feed = feed_of(tmp_path, config_of_blocks(tmp_path, pairs, accumulate=90), tokenizer)
    with pytest.raises(
        SettingsError, match=r"training\.accumulate must be at most \d+, the batches of an epoch, got 90"
    ):
        next(feed.updates(TrainingProgress()))
