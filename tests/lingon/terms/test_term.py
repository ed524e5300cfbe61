"""A term as a message, its bounds, and contradictions between terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.terms.term import MOST_CHARACTERS, MOST_TEXTS, Term, TermError, check_terms
from lingon.translation.v1 import translation_pb2 as pb

TEXT = st.text(alphabet="abÄ漢 -'", max_size=6)
TERMS = st.builds(
    Term,
    source=TEXT,
    target=TEXT,
    variants=st.lists(TEXT, max_size=2).map(tuple),
    exact=st.booleans(),
    forbid=st.lists(TEXT, max_size=2).map(tuple),
    stems=st.booleans(),
)
TOO_LONG = "x" * (MOST_CHARACTERS + 1)
TOO_MANY = tuple(f"x{number}" for number in range(MOST_TEXTS + 1))


@given(TERMS)
def test_a_term_comes_back_from_its_message(term: Term):
    assert Term.of(pb.Term.FromString(term.message().SerializeToString())) == term


@pytest.mark.parametrize("exact", [False, True])
def test_a_term_of_the_largest_size_passes(exact: bool):
    longest = TOO_LONG[1:]
    term = Term(longest, longest, TOO_MANY[1:], exact, tuple(f"y{each}" for each in TOO_MANY[1:]))
    assert check_terms([term]) == [term]


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (Term(""), "its source is empty"),
        (Term(" \u200b "), "its source is empty"),
        (Term("\u3000", "a"), "its source is empty"),
        (Term("a", "\u200b"), "its target is empty"),
        (Term("a", "b", ("",)), "its variant is empty"),
        (Term("a", "b", forbid=(" ",)), "its forbidden translation is empty"),
        (Term(TOO_LONG), f'its source "{TOO_LONG[:64]}..." has 257 characters; at most 256'),
        (Term("a", TOO_LONG), f'its target "{TOO_LONG[:64]}..." has 257 characters; at most 256'),
        (Term("a", "b", (TOO_LONG,)), f'its variant "{TOO_LONG[:64]}..." has 257 characters; at most 256'),
        (Term("a\nb"), 'its source "a\\nb" has the control character U+000A at 1'),
        (Term("a", "b\x00"), 'its target "b\\x00" has the control character U+0000 at 1'),
        (Term("a", "b\ud800c"), 'its target "b\\ud800c" has the control character U+D800 at 1'),
        (Term("a", "b\u2028c"), 'its target "b\\u2028c" has the control character U+2028 at 1'),
        (Term("a", "b", TOO_MANY), '"a" has 17 variants; at most 16'),
        (Term("a", "b", forbid=TOO_MANY), '"a" has 17 forbidden translations; at most 16'),
        (Term("a", "", ("b",)), '"a" has variants, but no target'),
        (Term("a", "b", forbid=("b",)), '"a" has "b" both as a target and as forbidden'),
        (Term("a", "b", ("c",), forbid=("c",)), '"a" has "c" both as a target and as forbidden'),
    ],
)
def test_a_term_out_of_bounds_is_named_by_its_number(term: Term, message: str):
    with pytest.raises(TermError) as raised:
        check_terms([Term("fine", "gut"), term])
    assert (str(raised.value), raised.value.number, raised.value.other) == (f"entry 2: {message}", 2, 0)


def test_blanks_around_texts_are_left_out():
    assert check_terms([Term(" a ", "\u3000b ", (" c",), forbid=("d ",))]) == [Term("a", "b", ("c",), forbid=("d",))]


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (Term("dog", "Hund"), Term("Dog", "Köter"), '"Dog" is "Hund" in the one and "Köter" in the other'),
        (Term("New York", "a"), Term("new  york", "b"), '"new  york" is "a" in the one and "b" in the other'),
        (Term("caf\u00e9", "a"), Term("cafe\u0301", "b"), '"cafe\u0301" is "a" in the one and "b" in the other'),
        (Term("Straße", "a"), Term("STRASSE", "b"), '"STRASSE" is "a" in the one and "b" in the other'),
        (Term("dog", "Hund"), Term("dog"), '"dog" is "Hund" in the one and without a translation in the other'),
        (Term("dog", "a", stems=True), Term("dog", "b"), '"dog" is "a" in the one and "b" in the other'),
        (Term("Dog", "a", exact=True), Term("Dog", "b", exact=True), '"Dog" is "a" in the one and "b" in the other'),
    ],
)
def test_terms_that_contradict_each_other_are_both_named(one: Term, other: Term, shown: str):
    with pytest.raises(TermError) as raised:
        check_terms([Term("cat", "Katze"), one, Term("cow", "Kuh"), other])
    assert str(raised.value) == f"entries 2 and 4: contradict each other: {shown}"
    assert (raised.value.number, raised.value.other) == (4, 2)


@pytest.mark.parametrize(
    "terms",
    [
        [Term("Apple", "Apple", exact=True), Term("apple", "Apfel")],
        [Term("Apple", "Apple", exact=True), Term("apple", "Apfel", exact=True)],
        [Term("house", "Haus"), Term("houses", "Häuser")],
        [Term("e-mail", "a"), Term("email", "b"), Term("e mail", "c")],
    ],
)
def test_terms_that_are_looked_for_at_other_places_do_not_contradict(terms: list[Term]):
    assert check_terms(terms) == terms


def test_terms_that_say_the_same_are_one_with_the_variants_of_all():
    terms = [Term("dog", "Hund", ("Hunde",)), Term("cat", "Katze"), Term("DOG", "Hund", ("Hunds", "Hunde"), stems=True)]
    assert check_terms(terms) == [Term("dog", "Hund", ("Hunde", "Hunds"), stems=True), Term("cat", "Katze")]


def test_terms_that_are_joined_have_no_more_variants_than_one_may_have():
    terms = [Term("dog", "Hund", TOO_MANY[:9]), Term("dog", "Hund", TOO_MANY[9:])]
    with pytest.raises(TermError, match=r'^entry 2: "dog" has 17 variants; at most 16$'):
        check_terms(terms)


@pytest.mark.parametrize(("term", "kept"), [(Term("a", "a"), True), (Term("a", "A"), False), (Term("a"), False)])
def test_a_term_whose_target_is_its_source_is_kept(term: Term, kept: bool):
    assert term.is_kept is kept
