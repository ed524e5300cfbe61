"""The text data of a bundle: words that translate to themselves, usual lengths, and the regression."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.bundle.manifest import ReliabilityBin
from lingon.export.text_data import (
    LEAST_PAIRS,
    SelfTranslatingWord,
    auroc,
    calibration_error,
    cross_predicted,
    fit,
    length_ranges,
    predict,
    reliability,
    self_translating_words,
)

PAIRS = [("Tom saw Mary in Boston.", "Tom sah Maria in Boston."), ("Tom, Tom and 1990", "Tom, Tom und 1990")]


def words(pairs: list[tuple[str, str]], least_pairs: int = 1) -> list[str]:
    return [each.word for each in self_translating_words(pairs, least_pairs=least_pairs)]


def test_words_of_both_sides_are_found_and_those_that_change_are_not():
    assert words(PAIRS * 10) == ["Tom", "1990", "Boston"]


def test_a_pair_counts_once_for_a_word():
    assert self_translating_words(PAIRS, least_pairs=2) == [SelfTranslatingWord("Tom", 2, 2)]


def test_parts_of_a_grammar_do_not_count():
    assert words([("It is in NATO at 10 so", "Es is in NATO at 10 so")]) == []


def test_a_word_that_changes_in_more_than_15_of_100_pairs_is_none():
    same, other = ("See Rome.", "Siehe Rome."), ("See Rome.", "Siehe Rom.")
    assert words([same] * 85 + [other] * 15) == ["Rome"]
    assert words([same] * 84 + [other] * 16) == []


def test_a_rare_word_is_less_sure_than_a_frequent_one_with_the_same_share():
    assert SelfTranslatingWord("Tom", 1000, 970).surety > SelfTranslatingWord("Bob", 100, 97).surety


@given(st.permutations(PAIRS * 2), st.integers(1, 5))
def test_the_order_of_the_pairs_changes_nothing(pairs: list[tuple[str, str]], least: int):
    assert words(pairs, least) == words(PAIRS * 2, least)


RNG = np.random.default_rng(7)
FEATURES = RNG.normal(2, 3, (20_000, 3)) * [1, 10, 0.1]
TRUE = np.array([0.7, -0.05, 4.0, -0.5])
CHANCE = 1 / (1 + np.exp(-(FEATURES @ TRUE[:3] + TRUE[3])))
RIGHT = RNG.random(len(CHANCE)) < CHANCE
EVEN = np.ones(len(RIGHT))


def test_the_weights_of_the_truth_are_found():
    found = fit(FEATURES, RIGHT, EVEN)
    assert found == pytest.approx(TRUE, abs=0.25)
    assert np.abs(predict(found, FEATURES) - CHANCE).max() < 0.03


def test_an_example_with_twice_the_weight_counts_as_two():
    few, right = FEATURES[:300], RIGHT[:300]
    doubled = fit(np.concatenate([few, few[:100]]), np.concatenate([right, right[:100]]), np.ones(400))
    assert fit(few, right, np.r_[np.full(100, 2.0), np.ones(200)]) == pytest.approx(doubled, rel=0.05)


def test_a_feature_that_never_changes_has_no_weight():
    found = fit(np.column_stack([FEATURES, np.full(len(RIGHT), 5.0)]), RIGHT, EVEN)
    assert np.isfinite(found).all()
    assert abs(found[3] * 5) < 1e-3


def test_an_example_is_predicted_without_its_group():
    noise, right = RNG.normal(size=(61, 20)), RNG.random(61) < 0.5
    alone = cross_predicted(noise, right, np.ones(61), np.arange(61))
    twice = cross_predicted(np.tile(noise, (2, 1)), np.tile(right, 2), np.ones(122), np.tile(np.arange(61), 2))
    seen = predict(fit(noise, right, np.ones(61)), noise)
    assert auroc(seen, right) > 0.8
    assert abs(auroc(alone, right) - 0.5) < 0.25
    assert twice[:61] == pytest.approx(alone, abs=0.02)


def test_auroc_is_the_share_of_pairs_in_order():
    scores, right = RNG.integers(0, 5, 60) / 4, RNG.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[right] for b in scores[~right]]
    assert auroc(scores, right) == pytest.approx(np.mean(pairs))
    assert auroc(scores, np.ones(60, bool)) == 0.5


def test_bins_say_how_often_a_confidence_is_right():
    confidence, right = np.array([0.05, 0.0, 0.95, 1.0, 0.55]), np.array([False, True, True, True, False])
    bins = reliability(confidence, right)
    assert bins == (ReliabilityBin(2, 0.025, 0.5), ReliabilityBin(1, 0.55, 0.0), ReliabilityBin(2, 0.975, 1.0))
    assert calibration_error(bins) == pytest.approx((2 * 0.475 + 0.55 + 2 * 0.025) / 5)


def test_ranges_of_length_hold_all_but_one_of_a_thousand_pairs_on_each_side():
    source = RNG.integers(1, 60, 40_000)
    target = np.maximum((source * RNG.lognormal(0.1, 0.3, len(source))).astype(int), 1)
    pairs = list(zip(source.tolist(), target.tolist(), strict=True))
    ranges = length_ranges(pairs)
    assert [each.most_source for each in ranges[:-1]] == [2**k for k in range(1, len(ranges))] or len(ranges) > 3
    assert ranges[-1].most_source == 59
    begin = 0
    for each in ranges:
        own = [b / a for a, b in pairs if begin < a <= each.most_source]
        assert len(own) >= LEAST_PAIRS
        for outside in (
            sum(ratio < each.least - 1e-3 for ratio in own),
            sum(ratio > each.most + 1e-3 for ratio in own),
        ):
            assert outside <= 0.002 * len(own)
        begin = each.most_source
