"""Candidates: the likeliest columns of each row and their log-probabilities, beside a stable sort in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import native_operators as native
from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native
SIZES = [(1, 1, 1), (3, 7, 7), (2, 8, 3), (4, 63, 5), (2, 64, 64), (2, 65, 65), (1, 1000, 256), (5, 4097, 16)]
sizes = pytest.mark.parametrize(("rows", "columns", "count"), SIZES)


def logits_of(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(rows, columns)) * 4).astype(np.float32)


def every(columns: int) -> np.ndarray:
    return np.arange(columns)


@sizes
def test_candidates_are_the_likeliest_columns(rows: int, columns: int, count: int) -> None:
    logits = logits_of(rows, columns)
    ids, log_probs = run("Candidates", logits, np.array([count]))
    expected, exact = native.candidates(logits, count)
    assert ids.tolist() == expected.tolist()
    assert log_probs == pytest.approx(exact, abs=2e-6)


@given(seed=st.integers(0, 1 << 32), columns=st.integers(1, 300), levels=st.integers(1, 9), data=st.data())
def test_of_equal_columns_the_first_comes_first(seed: int, columns: int, levels: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, min(columns, 256)))
    draw = np.random.default_rng(seed)
    logits = draw.integers(0, levels, (2, columns)).astype(np.float32)
    logits[draw.random(logits.shape) < 0.3] *= np.float32(-0.0)
    assert run("Candidates", logits, np.array([count]))[0].tolist() == native.candidates(logits, count)[0].tolist()


@sizes
@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_has_its_allowed_columns_alone(rows: int, columns: int, count: int, beam: int) -> None:
    logits = logits_of(rows * beam, columns)
    allowed = np.random.default_rng(1).random((rows, columns)) < 0.5
    allowed[:, -1] = True
    pieces = every(columns) * 7 + 5
    ids, log_probs = run("Candidates", logits, np.array([count]), pieces, allowed)
    expected, exact = native.candidates(logits, count, allowed.repeat(beam, axis=0))
    present = np.isfinite(exact)
    assert (ids[present] == expected[present] * 7 + 5).all()
    assert log_probs[present] == pytest.approx(exact[present], abs=2e-6)
    assert (log_probs[~present] == -np.inf).all()


def test_where_fewer_columns_are_allowed_the_rest_has_no_probability() -> None:
    allowed = np.zeros((1, 100), bool)
    allowed[0, [13, 99]] = True
    ids, log_probs = run("Candidates", logits_of(1, 100), np.array([4]), every(100) + 1000, allowed)
    assert set(ids[0, :2]) == {1013, 1099}
    assert np.exp(log_probs[0, :2]).sum() == pytest.approx(1)
    assert log_probs[0, 2:].tolist() == [-np.inf, -np.inf]
    assert ids[0, 2:].tolist() == [1000, 1000]


def test_forbidden_columns_may_have_any_logit() -> None:
    logits, allowed = logits_of(2, 90), np.ones((1, 90), bool)
    allowed[0, 40:50] = False
    expected = run("Candidates", logits, np.array([5]), every(90), allowed)
    logits[:, 40:50] = [np.nan, np.inf, -np.inf, 1e38, np.nan, 0, 1, 2, 3, np.inf]
    found = run("Candidates", logits, np.array([5]), every(90), allowed)
    assert all(map(same_bits, found, expected))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 7, 64, 99])
def test_a_row_that_is_not_finite_fails_alone(bad: float, place: int) -> None:
    logits = logits_of(4, 100)
    expected = run("Candidates", logits, np.array([6]))
    logits[2, place] = bad
    found = run("Candidates", logits, np.array([6]))
    assert np.isnan(found[1][2]).all()
    assert (found[0][2] < 100).all()
    assert (found[0][2] >= 0).all()
    for first, second in zip(found, expected, strict=True):
        assert same_bits(np.delete(first, 2, 0), np.delete(second, 2, 0))


def test_a_row_without_allowed_columns_fails() -> None:
    allowed = np.array([[True] * 9, [False] * 9])
    log_probs = run("Candidates", logits_of(2, 9), np.array([2]), every(9), allowed)[1]
    assert np.isfinite(log_probs[0]).all()
    assert np.isnan(log_probs[1]).all()


def test_minus_infinity_is_a_logit_without_probability() -> None:
    logits = np.full((1, 70), -np.inf, np.float32)
    logits[0, [3, 66]] = [1.0, 2.0]
    ids, log_probs = run("Candidates", logits, np.array([3]))
    assert ids[0, :2].tolist() == [66, 3]
    assert log_probs[0, :2] == pytest.approx([-0.313262, -1.313262], abs=1e-6)
    assert log_probs[0, 2] == -np.inf


@pytest.mark.parametrize("columns", [2, 100, 32000])
@pytest.mark.parametrize("largest", [0.0, -1e4, 1e4])
def test_log_probabilities_are_as_exact_as_float32(columns: int, largest: float) -> None:
    logits = logits_of(3, columns) + np.float32(largest)
    exact = native.candidates(logits, min(columns, 16))[1]
    found = run("Candidates", logits, np.array([min(columns, 16)]))[1]
    assert np.abs(found - exact).max() < 1e-5  # a lane adds 2,000 numbers


def test_any_number_of_threads_and_rows_chooses_the_same() -> None:
    logits = logits_of(40, 3000)
    one, two = (run("Candidates", logits, np.array([8]), threads=threads) for threads in (1, 2))
    assert all(map(same_bits, one, two))
    alone = run("Candidates", logits[7:8], np.array([8]))
    assert all(same_bits(first[7:8], second) for first, second in zip(one, alone, strict=True))
