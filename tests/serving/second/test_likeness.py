"""How likely an answer has to be, by our translation and by what both have in common."""

from __future__ import annotations

import pytest

from lingon.serving.second.likeness import LEAST_TOKEN, LESS_LIKELY, SHARED, least_likely, mean_likelihood, shared_grams


def test_a_token_that_the_model_does_not_know_counts_for_a_bounded_amount():
    assert mean_likelihood([-1.0, -400.0, -2.0]) == pytest.approx((-3 + LEAST_TOKEN) / 3)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("Das Haus ist alt.", "Das Haus ist alt.", 1.0),
        ("Das Haus ist alt.", "  das  HAUS ist alt. ", 1.0),
        ("Das Haus ist alt.", "Wir gehen gern", 0.0),
        ("a", "a", 1.0),
        ("", "", 1.0),
        ("", "Das Haus", 0.0),
        ("ab", "abc", 0.4),  # " ab", "ab " and " ab", "abc", "bc "
    ],
)
def test_texts_share_their_runs_of_characters(one: str, other: str, shared: float):
    assert shared_grams(one, other) == shared_grams(other, one) == pytest.approx(shared)


def test_runs_count_as_often_as_both_have_them():
    assert shared_grams("ja ja ja ja", "ja") < shared_grams("ja ja ja ja", "ja ja") < 1


def test_an_answer_may_be_less_likely_the_more_it_shares_and_the_less_likely_ours_is():
    assert least_likely([-1.0], 0.0, 0) == pytest.approx(-1 - LESS_LIKELY[0])
    assert least_likely([-1.0], 1.0, 0) == pytest.approx(-1 - LESS_LIKELY[0] - SHARED)
    assert least_likely([-2.0, -4.0], 0.5, 0) == pytest.approx(-3 - LESS_LIKELY[0] - SHARED / 2)


def test_an_answer_must_be_likelier_the_more_were_rejected_before_it():
    bounds = [least_likely([-1.0], 0.5, rejected) for rejected in range(6)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == len(LESS_LIKELY)
