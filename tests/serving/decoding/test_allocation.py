"""Dynamic beam allocation: which continuations of a sentence with forced words stay."""

from __future__ import annotations

import numpy as np
import pytest

from lingon.serving.constraints.forced import ForcedWords
from lingon.serving.constraints.pieces import Pieces
from lingon.serving.constraints.rules import Progress, Rules
from lingon.serving.constraints.spelling import Spelling
from lingon.serving.decoding.allocation import allocate
from lingon.serving.decoding.ruled_row import Candidates, RowState, RuledRow, largest
from lingon.serving.decoding.search import Ranked, rank
from lingon.text import EOS

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
