"""Lists of terms of any length: what a request for some texts gets of them."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import SettingsError
from lingon.terms.matcher import Matcher
from lingon.terms.term import Term
from lingon.terms.term_list import MOST_IN_REQUEST, TermList

OTHERS = [Term(f"x{number}", "y") for number in range(MOST_IN_REQUEST + 1)]
WORDS = st.sampled_from(["a", "b", "B", "c", "a b", "b c", "a b c", "C"])


@given(st.lists(WORDS, max_size=6, unique_by=str.lower), st.lists(WORDS, max_size=8).map(" ".join), st.booleans())
def test_the_server_finds_in_the_selection_what_it_finds_in_all(sources: list[str], text: str, exact: bool):
    terms = TermList([*(Term(each, "y", exact=exact) for each in sources), *OTHERS])
    selected = terms.for_texts([text], "en")
    assert Matcher(selected, "en").find(text) == Matcher(terms, "en").find(text)
    assert set(OTHERS).isdisjoint(selected)


def test_a_selection_has_the_order_of_the_list():
    assert TermList([Term("b", "y"), Term("a", "y"), *OTHERS]).for_texts(["a", "b"]) == [Term("b", "y"), Term("a", "y")]


def test_few_terms_are_all_sent():
    few = OTHERS[:MOST_IN_REQUEST]
    assert TermList(few).for_texts([]) == few


def test_a_term_is_found_across_the_tags_of_markup():
    terms = TermList([Term("big house", "y"), Term("caf\u00e9", "y"), Term("alt", "y"), *OTHERS])
    text = '<p>A big <b>house</b>, caf&eacute; <img alt="alt"></p>'
    assert [each.source for each in terms.for_texts([text], markup=True)] == ["big house", "caf\u00e9", "alt"]
    for text in ("un<b>usual</b> big<br>house", "a <i>big</i> h<b>ou</b>se"):
        assert [each.source for each in terms.for_texts([text], markup=True)] == ["big house"]


def test_stems_need_a_language_that_has_them():
    terms = TermList([Term("dog", "Hund", stems=True), *OTHERS])
    assert terms.for_texts(["two dogs"], "en") == [Term("dog", "Hund", stems=True)]
    with pytest.raises(SettingsError, match=r"^terms: entry 1: there are no stems of words in a language that is not"):
        terms.for_texts(["two dogs"])


def test_a_list_is_a_sequence_of_its_terms_and_copied_as_such():
    terms = TermList({"dog": "Hund", "cat": "Katze"})
    terms.for_texts(["dog"])
    again = copy.deepcopy(terms)  # as processes get it
    assert list(again) == list(terms) == [Term("dog", "Hund"), Term("cat", "Katze")]
    assert (len(again), again[1], again.digest) == (2, Term("cat", "Katze"), terms.digest)
    assert TermList.of(terms) is terms


@given(st.lists(st.tuples(WORDS, WORDS), unique_by=lambda pair: pair[0].lower()))
def test_two_lists_have_one_digest_only_if_they_are_the_same(pairs: list[tuple[str, str]]):
    terms = TermList([Term(*pair) for pair in pairs])
    assert terms.digest == TermList(dict(pairs)).digest
    changed = [Term(source, target, ("z",)) for source, target in pairs]
    assert (TermList(changed).digest == terms.digest) is (not pairs)
