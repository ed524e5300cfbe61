"""embed and place_memory in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.card_kernels import Interpreter, halves
from tests.support.native_operators import same_bits

pytestmark = pytest.mark.triton


@pytest.mark.parametrize("dim", [16, 1024, 1040])
@pytest.mark.parametrize("positioned", [True, False])
def test_an_embedding_is_the_scaled_piece_and_its_position(
    interpreter: Interpreter, dim: int, positioned: bool
) -> None:
    pieces, table = halves(9, dim, seed=1), halves(7, dim, seed=2)
    ids, positions = np.array([8, 0, 3, 3]), np.array([0, 6, 2, 6])
    given = (positions, table) if positioned else (None, None)
    found = np.zeros((4, dim), np.float16)
    grid = 4, -(-dim // 1024)
    found = interpreter.run("embed", grid, ids, pieces, *given, found, dim, 22.5, int(positioned))[-1]
    expected = pieces[ids].astype(np.float64) * 22.5 + (table[positions] if positioned else 0)
    assert same_bits(found, expected.astype(np.float32).astype(np.float16))


@pytest.mark.parametrize("size", [8, 64, 128])
def test_tokens_are_placed_at_their_slots_and_nothing_else_changes(interpreter: Interpreter, size: int) -> None:
    heads, layers, layer, slots, width = 2, 3, 1, 4, 5
    dim = heads * size
    rows = halves(6, layers * 2 * dim)
    targets = np.array([(0, 3, 0, 0), (4, 0, 4, 0), (5, 3, 1, 0)], np.int32)
    keys, values = halves(slots, heads, size, width, seed=1), halves(slots, heads, width, size, seed=2)
    found = interpreter.run(
        "place_memory",
        (len(targets), heads),
        *(rows, targets, keys, values, heads, size, width, layers * 2 * dim, layer * 2 * dim),
    )
    expected_keys, expected_values = keys.copy(), values.copy()
    for row, slot, position, _ in targets:
        key, value = rows[row].reshape(layers, 2, heads, size)[layer]
        expected_keys[slot, :, :, position], expected_values[slot, :, position] = key, value
    assert same_bits(found[2], expected_keys)
    assert same_bits(found[3], expected_values)
