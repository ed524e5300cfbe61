"""Mining words that translate to themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lingon.export.text_data.words import SelfTranslatingWord, self_translating_words

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
