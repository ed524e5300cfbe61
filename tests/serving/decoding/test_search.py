"""Ranking and row assignment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.decoding.search import assign_rows, rank, select_survivors
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
