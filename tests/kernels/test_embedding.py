"""Embed: the rows of tokens, beside what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native


def test_every_float16_is_widened_exactly() -> None:
    pieces = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 64)
    found = run("Embed", np.arange(len(pieces)), pieces, scale=1.0)[0]
    assert same_bits(found, pieces.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("dim", [1, 8, 13])
@pytest.mark.parametrize("parts", [0, 1, 3])
def test_a_row_is_the_scaled_piece_and_its_position(dtype: type, dim: int, parts: int) -> None:
    draw = np.random.default_rng(dim)
    pieces, table = draw.normal(size=(20, dim)).astype(dtype), draw.normal(size=(9, dim)).astype(np.float32)
    ids, positions = draw.integers(0, 20, parts * 5), draw.integers(0, 9, 5)
    rows = pieces[ids].astype(np.float32) * np.float32(5.5)
    assert same_bits(run("Embed", ids, pieces, scale=5.5)[0], rows)
    found = run("Embed", ids, pieces, positions, table, scale=5.5)[0]
    assert same_bits(found, rows + table[np.tile(positions, parts)])
