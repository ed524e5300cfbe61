"""Embed beside NumPy: pieces of 16 and of 32 bits, with and without positions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_operators import refusal, run, same_bits

pytestmark = pytest.mark.usefixtures("native_library")
RANDOM = np.random.default_rng(5)
IDS, POSITIONS = np.array([0, 6, 2, 2, 5, 1]), np.array([3, 0, 1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("dim", [1, 7, 8, 33])
def test_a_row_is_the_scaled_piece_and_the_position(dtype: type[np.floating], dim: int) -> None:
    pieces, table = RANDOM.normal(size=(7, dim)).astype(dtype), RANDOM.normal(size=(4, dim)).astype(np.float32)
    scaled = np.float32(1.7) * pieces.astype(np.float32)[IDS]
    assert same_bits(run("Embed", IDS, pieces, scale=1.7)[0], scaled)
    found = run("Embed", IDS, pieces, POSITIONS, table, scale=1.7)[0]  # the positions of each half of the ids
    assert same_bits(found, scaled + table[np.tile(POSITIONS, 2)])


def test_every_half_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 8)
    found = run("Embed", np.arange(len(halves)), halves, scale=1.0)[0]
    assert same_bits(found, halves.astype(np.float32))


@pytest.mark.parametrize(
    ("ids", "positions", "reason"),
    [
        ([7], [0], "an id that the vocabulary does not have"),
        ([-1], [0], "an id that the vocabulary does not have"),
        ([0], [4], "a position beyond its table"),
        ([0], [-1], "a position beyond its table"),
        ([0, 1, 2], [0, 1], "positions for its ids"),
    ],
)
def test_what_the_tables_do_not_have_is_refused(ids: list[int], positions: list[int], reason: str) -> None:
    tables = np.zeros((7, 8), np.float32), np.zeros((4, 8), np.float32)
    assert reason in refusal("Embed", np.array(ids), tables[0], np.array(positions), tables[1], scale=1.0)
