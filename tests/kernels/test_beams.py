"""BeamStep beside the search in NumPy: the same beams, to the last bit, for random candidates with many equal ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from lingon.serving.decoding.beam import assign_rows, rank, select_survivors
from lingon.text import EOS
from tests.support.native_operators import refusal, run, same_bits

pytestmark = pytest.mark.usefixtures("native_library")
CAPACITY = 9


class Beams(NamedTuple):
    """The inputs of BeamStep in their order."""

    ids: np.ndarray
    log_probs: np.ndarray
    tokens: np.ndarray
    positions: np.ndarray
    rows: np.ndarray
    totals: np.ndarray
    history: np.ndarray
    history_log_probs: np.ndarray
    table: np.ndarray


def drawn(sentences: int, beams: int, seed: int) -> Beams:
    """Beams in the middle of a search; log-probabilities of few values, so that many continuations are equal."""
    random = np.random.default_rng(seed)
    rows, candidates = sentences * beams, 2 * beams
    pieces = np.array([random.permutation(80)[:candidates] for _ in range(rows)])
    pieces[random.random(rows) < 0.5, 0] = EOS
    steps = random.integers(0, CAPACITY, sentences)
    totals = -np.sort(random.integers(0, 4, (sentences, beams)).astype(np.float32), axis=1)
    totals[random.random((sentences, beams)) < 0.2] = -np.inf
    return Beams(
        ids=pieces,
        log_probs=-np.sort(random.integers(0, 3, (rows, candidates)).astype(np.float32), axis=1),
        tokens=random.integers(4, 40, rows),
        positions=np.repeat(steps, beams),
        rows=np.array([random.permutation(beams) for _ in range(sentences)]),
        totals=totals,
        history=random.integers(4, 40, (sentences, beams, CAPACITY)),
        history_log_probs=random.normal(size=(sentences, beams, CAPACITY)).astype(np.float32),
        table=np.zeros((rows, CAPACITY), np.int32),
    )


@pytest.mark.parametrize("beams", [1, 2, 4, 7, 32])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_that_of_the_search_in_numpy(beams: int, seed: int) -> None:
    given = drawn(6, beams, seed)
    past = np.random.default_rng(seed).integers(0, beams, (6, beams, CAPACITY))  # the row of each position
    past[np.arange(6)[:, None], np.arange(beams), given.positions.reshape(6, beams)] = np.arange(beams)
    table_before = (past - np.arange(beams)[:, None]).astype(np.int32).reshape(6 * beams, CAPACITY)
    given = given._replace(table=table_before)
    results = run("BeamStep", *given, end=EOS, optional=True)
    tokens, positions, rows, totals, history, log_probs, table, ended, ended_totals, ended_tokens, _, failed, by_row = (
        results
    )
    shape, slots = (6, beams, -1), np.arange(6)[:, None]
    by_rank = (slots, given.rows)
    ranked = rank(given.totals, given.ids.reshape(shape)[by_rank], given.log_probs.reshape(shape)[by_rank])
    survivors = select_survivors(ranked, beams)
    assigned, copies = assign_rows(given.rows, survivors.parents)
    steps = given.positions.reshape(6, beams)[:, :1]
    expected, expected_log_probs = given.history.copy(), given.history_log_probs.copy()
    for of in (expected, expected_log_probs):
        for sentence, source, target in zip(*copies, strict=True):
            length = int(steps[sentence, 0])
            of[sentence, target, :length] = of[sentence, source, :length]
    expected[slots, assigned, steps], expected_log_probs[slots, assigned, steps] = survivors.tokens, survivors.log_probs
    assert same_bits(totals, survivors.totals)
    assert (rows == assigned).all()
    assert (history == expected).all()
    assert same_bits(log_probs, expected_log_probs)
    assert (tokens.reshape(6, beams)[slots, assigned] == survivors.tokens).all()
    assert (positions == given.positions + 1).all()
    assert not failed.any()
    in_beam = (ranked.tokens[:, :beams] == EOS) & (ranked.totals[:, :beams] > -np.inf)
    assert (ended == in_beam).all()
    assert same_bits(ended_totals[ended], ranked.totals[:, :beams][in_beam])
    for sentence, place in zip(*np.nonzero(ended), strict=True):
        row, length = given.rows[sentence, ranked.parents[sentence, place]], int(steps[sentence, 0])
        assert (ended_tokens[sentence, place, :length] == given.history[sentence, row, :length]).all()
        assert (by_row[sentence, place, : length + 1] == past[sentence, row, : length + 1]).all()
    for sentence, source, target in zip(*copies, strict=True):
        length = int(steps[sentence, 0]) + 1
        copied = past[sentence, source, :length] - target
        assert (table.reshape(6, beams, -1)[sentence, target, :length] == copied).all()


def test_a_sentence_with_nan_stays_as_it_is() -> None:
    given = drawn(3, 4, 0)
    given.log_probs[5, 2] = np.nan
    alone = run("BeamStep", *given, end=EOS)
    assert alone[-1].tolist() == [False, True, False]
    for before, after in zip(given[2:], alone, strict=False):
        size = len(after) // 3
        assert (after[size : 2 * size] == before[size : 2 * size]).all()


def test_places_beyond_the_arrays_are_refused() -> None:
    for field, place, reason in (
        ("rows", 4, "a row that its sentence"),
        ("positions", CAPACITY, "beyond the capacity"),
    ):
        given = drawn(2, 4, 1)
        getattr(given, field)[...] = place
        assert reason in refusal("BeamStep", *given, end=EOS)
