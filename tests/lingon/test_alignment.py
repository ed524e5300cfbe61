"""Links in Pharaoh form, the alignment error rate against values computed by hand, and words from pieces."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.alignment import (
    GoldLinks,
    LinkCounts,
    agreement,
    caller_words,
    check_range,
    format_links,
    parse_links,
    piece_links,
    read_links,
    strongest,
    symmetrise,
    word_links,
)
from lingon.errors import CorpusError
from lingon.text import normalise

GOLD = parse_links("0-0 1-1 2p2 3p3", "gold:1")  # S = {0-0, 1-1}, P = {0-0, 1-1, 2-2, 3-3}
LINKS = st.frozensets(st.tuples(st.integers(0, 9), st.integers(0, 9)))


def test_sure_links_are_possible_too() -> None:
    assert GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 2), (3, 3)})) == GOLD


def test_error_rate_precision_and_recall_are_those_computed_by_hand() -> None:
    """A = {0-0, 2-2, 4-4}: |A and S| = 1, |A and P| = 2, so AER = 1 - 3/5, precision 2/3, recall 1/2."""
    found = agreement({(0, 0), (2, 2), (4, 4)}, GOLD)
    assert found.error_rate == pytest.approx(0.4)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(1 / 2)


def test_the_error_rate_of_a_text_is_that_of_all_its_links_together_not_the_mean_of_the_lines() -> None:
    """With a second line of |A| = 1, |S| = 4 and nothing in common: 1 - 3/10; the mean of the lines would be 0.7."""
    other = parse_links("5-5 6-6 7-7 8-8", "gold:2")
    whole = agreement({(0, 0), (2, 2), (4, 4)}, GOLD) + agreement({(0, 1)}, other)
    assert whole == LinkCounts(found=4, sure=6, found_and_sure=1, found_and_possible=2)
    assert whole.error_rate == pytest.approx(0.7)
    assert whole.recall == pytest.approx(1 / 6)


def test_sure_links_alone_have_no_error() -> None:
    assert agreement(GOLD.sure, GOLD).error_rate == 0
    assert agreement(GOLD.possible, GOLD).error_rate == 0


def test_finding_nothing_has_no_recall_and_no_wrong_link() -> None:
    found = agreement((), GOLD)
    assert (found.error_rate, found.precision, found.recall) == (1, 1, 0)
    assert agreement((), parse_links("", "gold:1")).error_rate == 0


@given(LINKS)
def test_links_are_read_as_they_were_written(links: frozenset[tuple[int, int]]) -> None:
    assert parse_links(format_links(links), "file:1").sure == links


@pytest.mark.parametrize("wrong", ["0", "0-", "-1", "0-1-2", "a-b", "0:1", "0-1,2-3", "1.0-1", "9999999999-0", "٣-1"])
def test_a_line_that_is_no_pharaoh_line_is_an_error_with_file_line_and_link(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "links.gz"
    path.write_bytes(gzip.compress(f"0-0\n1-1 {wrong}\n".encode()))
    with pytest.raises(CorpusError) as error:
        list(read_links(path))
    assert str(error.value).startswith(f"{path}:2: ")
    assert repr(wrong) in str(error.value)


def test_a_link_out_of_range_is_an_error_with_its_side_and_bound() -> None:
    check_range({(1, 2)}, 2, 3, "file:7")
    with pytest.raises(CorpusError, match=r"^file:7: link 2-0: the source has 2 words, counted from 0$"):
        check_range({(2, 0)}, 2, 3, "file:7")
    with pytest.raises(CorpusError, match=r"^file:7: link 0-3: the target has 3 words, counted from 0$"):
        check_range({(0, 3)}, 2, 3, "file:7")


def test_symmetrised_links_are_those_worked_out_by_hand() -> None:
    """Grown: 1-2 links target word 2 and 2-2 source word 2; 0-1, beside 0-0, links no new word.

    Final: 6-7 and 4-5 link two new words each; 4-0 and 4-7 link a word that has a link by then.
    """
    forward, backward = {(0, 0), (0, 1), (1, 1), (1, 2), (4, 0), (6, 7)}, {(0, 0), (1, 1), (2, 2), (4, 5), (4, 7)}
    assert symmetrise(forward, backward, "intersection") == {(0, 0), (1, 1)}
    assert symmetrise(forward, backward, "union") == forward | backward
    grown = {(0, 0), (1, 1), (1, 2), (2, 2)}
    assert symmetrise(forward, backward, "grow-diag-final-and") == grown | {(6, 7), (4, 5)}


@given(LINKS, LINKS)
def test_the_final_alignment_is_that_of_the_pseudocode_of_koehn_et_al(forward, backward) -> None:
    """Section 2.1 of Koehn et al. (2005), in which every step looks at all links."""
    found, grown = set(forward & backward), True

    def links_a_new_word(source: int, target: int) -> bool:
        return not (any(source == each for each, _ in found) and any(target == each for _, each in found))

    while grown:
        grown = False
        for source, target in sorted(found):
            for near in ((source + i, target + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
                if near in forward | backward and near not in found and links_a_new_word(*near):
                    found.add(near)
                    grown = True
    for links in (forward, backward):
        for source, target in sorted(links):
            if all(source != each and target != other for each, other in found):
                found.add((source, target))
    assert symmetrise(forward, backward, "grow-diag-final-and") == found


@given(st.text("ab ", max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20))
def test_a_piece_belongs_to_the_word_in_which_it_ends(text: str, ends: list[tuple[int, int]]) -> None:
    links = [((max(first - 1, 0), first), (max(last - 1, 0), last)) for first, last in ends]
    assert word_links(links, text, text) == {
        (text.count(" ", 0, first), text.count(" ", 0, last)) for first, last in ends
    }


def test_words_are_linked_if_any_of_their_pieces_are() -> None:
    """The pieces ' ab', 'c' and ' d' of the source, ' x' and 'y' of the target; pieces begin with a space."""
    links = [((2, 3), (0, 1)), ((3, 5), (1, 2))]
    assert word_links(links, "abc d", "xy") == {(0, 0), (1, 0)}


def test_a_piece_that_is_the_space_before_a_word_belongs_to_that_word() -> None:
    assert word_links([((3, 4), (0, 1))], "abc d", "x") == {(1, 0)}


def test_a_piece_that_attends_most_to_the_end_token_has_no_link() -> None:
    rows = [[0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [0.6, 0.0, 0.4]]
    assert piece_links(map(strongest, rows), 2) == [(1, 0), (0, 2)]


def test_the_first_of_equal_weights_is_the_strongest() -> None:
    assert strongest([0.1, 0.4, 0.4]) == 1


def test_a_word_of_invisible_characters_counts_for_the_caller_and_not_for_the_model() -> None:
    text = "one \u00ad two\u00a0\u200b three\u00ad"
    assert [text.split()[place] for place in caller_words(text)] == ["one", "two", "three\u00ad"]
    assert len(caller_words(text)) == len(normalise(text).split(" "))
