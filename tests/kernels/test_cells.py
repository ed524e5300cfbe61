"""StepCell: one step of an SSRU, beside what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native


def cell_of(gates: np.ndarray, past: np.ndarray) -> np.ndarray:
    """The new cells in double precision. gates: (rows, 2 * dim); past: (rows, dim)."""
    gate, value = np.split(gates.astype(np.float64), 2, axis=1)
    keep = 1 / (1 + np.exp(-gate))
    return keep * past + (1 - keep) * value


def inputs_of(seed: int, rows: int, dim: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(rows, columns)).astype(np.float32) * 4 for columns in (2 * dim, dim, dim)]


@given(seed=st.integers(0, 1 << 32), rows=st.integers(1, 9), dim=st.integers(1, 70))
def test_a_cell_is_what_numpy_computes(seed: int, rows: int, dim: int) -> None:
    gates, past, residual = inputs_of(seed, rows, dim)
    said, present = run("StepCell", gates, past)
    assert present == pytest.approx(cell_of(gates, past), rel=1e-6, abs=4e-6)
    assert same_bits(said, np.maximum(present, 0))
    with_residual, again = run("StepCell", gates, past, residual)
    assert same_bits(again, present)
    assert same_bits(with_residual, said + residual)


def test_a_cell_has_its_bits_alone_and_with_any_number_of_threads() -> None:
    given = inputs_of(1, 300, 257)
    together = run("StepCell", *given, threads=2)
    for row in (0, 150, 299):
        alone = run("StepCell", *(each[row : row + 1] for each in given))
        assert all(same_bits(each, all_[row : row + 1]) for each, all_ in zip(alone, together, strict=True))


@pytest.mark.parametrize("gate", [200.0, -200.0, np.inf, -np.inf])
def test_a_gate_that_is_far_from_zero_keeps_all_or_nothing(gate: float) -> None:
    gates, past = np.float32([[gate, 0.75]]), np.float32([[-0.5]])
    said, present = run("StepCell", gates, past)
    assert present.item() == (-0.5 if gate > 0 else 0.75)
    assert said.item() == (0.0 if gate > 0 else 0.75)


@pytest.mark.parametrize("place", [(0, 3), (0, 9), (1, 3)], ids=["gate", "value", "past"])
def test_a_cell_that_is_no_number_fails_alone(place: tuple[int, int]) -> None:
    given = inputs_of(2, 4, 6)[:2]
    expected = run("StepCell", *given)
    broken = [each.copy() for each in given]
    broken[place[0]][2, place[1]] = np.nan
    found = run("StepCell", *broken)
    for each, whole in zip(found, expected, strict=True):
        assert np.isnan(each[2, 3])
        assert same_bits(np.delete(each, 2, axis=0), np.delete(whole, 2, axis=0))
