"""Ranking, the assignment of rows, and the beam that forced words get."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.decoding.beam import Ranked, allocate, assign_rows, rank, select_survivors
from lingon.serving.decoding.choice import Candidates, RowState, RuledRow, largest
from lingon.serving.decoding.rules import ForcedWords, Progress, Rules
from lingon.serving.decoding.spelling import Pieces, Spelling
from lingon.text import EOS


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
def test_ranking_finds_the_best_continuations_of_all_parents(seed: int, beam_size: int, sentences: int) -> None:
    random = np.random.default_rng(seed)
    totals = -np.sort(random.random((sentences, beam_size)).round(1), axis=1)
    log_probs = -np.sort(random.random((sentences, beam_size, 2 * beam_size)).round(1), axis=2)
    ids = np.arange(log_probs.size).reshape(log_probs.shape) % 7
    ranked = rank(totals, ids, log_probs)
    for sentence in range(sentences):
        continuations = sorted(
            (-(totals[sentence, parent] + log_probs[sentence, parent, candidate]), parent, candidate)
            for parent in range(beam_size)
            for candidate in range(2 * beam_size)
        )
        best = continuations[: 2 * beam_size]
        expected = [(parent, ids[sentence, parent, candidate]) for _, parent, candidate in best]
        assert list(zip(ranked.parents[sentence], ranked.tokens[sentence], strict=True)) == expected


def test_survivors_are_the_best_that_do_not_end() -> None:
    ranked = rank(np.zeros((1, 2)), np.array([[[EOS, 5, 6, 7], [8, EOS, 9, 4]]]), -np.arange(8.0).reshape(1, 2, 4))
    assert select_survivors(ranked, 2).tokens.tolist() == [[5, 6]]


@given(st.lists(st.tuples(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.permutations(range(5))), min_size=1))
def test_every_child_gets_its_own_row_with_the_past_of_its_parent(
    beams: list[tuple[list[int], list[int]]],
) -> None:
    parents, rows = (np.array(each) for each in zip(*beams, strict=True))
    assigned, copies = assign_rows(rows, parents)
    for sentence in range(len(rows)):
        mine = copies.sentences == sentence
        past = {row: row for row in range(5)}  # what each row holds: the row that it came from
        past |= dict(zip(copies.targets[mine].tolist(), copies.sources[mine].tolist(), strict=True))
        assert sorted(assigned[sentence]) == list(range(5))
        assert [past[row] for row in assigned[sentence].tolist()] == rows[sentence][parents[sentence]].tolist()
        further = 5 - len(set(parents[sentence].tolist()))
        assert mine.sum() == further, "only a parent's further children are copied"
        assert not set(copies.sources[mine].tolist()) & set(copies.targets[mine].tolist())


PIECES = Pieces([b""] * 4 + [b" %c" % letter for letter in b"abcdefghijkl"], {})
A, B, C, X, Y = 4, 5, 6, 14, 15  # X and Y are unlikely; they spell the forced words
FORCED = ForcedWords(PIECES, [b"k", b"l c"], [(X,), (Y, C)])
RULES = Rules(spelling=Spelling(PIECES), vocab=16, forced=FORCED)
LOGITS = np.float32([-99, -99, 2.7, -99, 3, 2.5, 1, *[0] * 7, -5, -6])


def allocated(hypotheses: list[tuple[float, list[int]]], beam_size: int, remaining: int = 50) -> list[list[int]]:
    """The tokens of all continuations that allocation chooses, those that end first."""
    rows: list[RuledRow | None] = []
    ids, log_probs, totals = [], [], np.full(beam_size, -np.inf, np.float32)
    for place in range(beam_size):
        total, tokens = hypotheses[place] if place < len(hypotheses) else (-np.inf, [])
        totals[place] = total
        best = largest(LOGITS, 2 * beam_size)
        normaliser = np.log(np.exp(LOGITS - LOGITS[A]).sum())
        likeliest = Candidates(best, LOGITS[best] - LOGITS[A] - normaliser)
        progress: Progress = RULES.start(tokens)
        row = RuledRow(RULES, RowState(progress, tokens, len(tokens), remaining), LOGITS.copy(), likeliest)
        found = row.candidates(2 * beam_size, end=not RULES.lacks_words(progress))
        rows.append(row if total > -np.inf else None)
        ids.append(found.ids)
        log_probs.append(found.log_probs)
    all_ids, all_log_probs = np.stack(ids), np.stack(log_probs)
    ranked = Ranked(*(column[0] for column in rank(totals[None], all_ids[None], all_log_probs[None])))
    allocate(rows, totals, Candidates(all_ids, all_log_probs), ranked)
    live = ranked.totals > -np.inf
    survivors = ranked.totals[live & (ranked.tokens != EOS)]
    assert (np.diff(survivors) <= 0).all()
    return [
        [*hypotheses[parent][1], token]
        for parent, token in zip(ranked.parents[live].tolist(), ranked.tokens[live].tolist(), strict=True)
    ]


def test_a_forced_word_that_is_unlikely_stays_in_the_beam() -> None:
    found = allocated([(0.0, [])], 4)
    assert len(found) == 4
    assert [X] in found, "a bank of its own"
    assert [Y] in found, "the second best of that bank"
    assert [A] in found


def test_every_bank_gets_its_share_and_the_fullest_one_what_is_left() -> None:
    hypotheses = [(0.0, [A]), (-9.0, [X, Y]), (-12.0, [X, Y, C])]
    found = allocated(hypotheses, 4)
    words = [sum(token in (X, Y) for token in tokens) + ([Y, C] in [tokens[-2:], tokens[-3:-1]]) for tokens in found]
    assert {0, 1, 3} <= set(words)
    assert [X, Y, C, A] in found
    assert [X, Y, C] in found


@pytest.mark.parametrize("beam_size", [2, 4])
def test_a_hypothesis_ends_only_with_all_words(beam_size: int) -> None:
    found = allocated([(0.0, [A]), (-20.0, [X, Y, C])], beam_size)
    assert [tokens for tokens in found if tokens[-1] == EOS] == [[X, Y, C, EOS]]
    assert found[0][-1] == EOS
    assert not [tokens for tokens in allocated([(0.0, [X])], beam_size) if tokens[-1] == EOS]


def test_words_are_brought_in_when_the_length_leaves_no_other_choice() -> None:
    assert {tokens[-1] for tokens in allocated([(0.0, [A]), (-1.0, [B])], 4, remaining=4)} == {X, Y}
    assert A in {tokens[-1] for tokens in allocated([(0.0, [A]), (-1.0, [B])], 4, remaining=5)}


def test_a_word_that_is_begun_is_continued() -> None:
    assert [Y, C] in allocated([(0.0, [Y])], 2)
    assert allocated([(0.0, [X, Y])], 2, remaining=2) == [[X, Y, C]]
