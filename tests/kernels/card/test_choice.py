"""choose and merge in Triton's interpreter, beside all logits and a stable sort."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests.support.card_kernels import Interpreter, grid_of, halves
from tests.support.card_launcher import ROWS, moved
from tests.support.native_operators import candidates, same_bits

pytestmark = pytest.mark.triton
BLOCK = 128  # columns
TOPS = {1: 1, 8: 7, 16: 16}
"""Candidates of a block, and those that the tests ask for."""

tops = pytest.mark.parametrize("top", TOPS)
tiles = pytest.mark.parametrize("tile", [16, 32])


class Rows(NamedTuple):
    """The inputs of choose."""

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray


class Chosen(NamedTuple):
    ids: np.ndarray
    log_probs: np.ndarray
    logits: np.ndarray | None


def drawn(rows: int, columns: int, inner: int = 32) -> Rows:
    return Rows(halves(rows, inner, seed=1), halves(columns, inner, seed=2), halves(columns, seed=3))


def choose(
    interpreter: Interpreter, given: Rows, top: int, tile: int = 16, count: int = 0, *, logits: bool = False
) -> Chosen:
    """Return the candidates of each row; count: by default that of TOPS."""
    (rows, inner), columns, count = given.x.shape, len(given.weight), count or TOPS[top]
    blocks = -(-columns // BLOCK)
    found = interpreter.run(
        f"choose_t{top}_m{tile}" + "_logits" * logits,
        grid_of(rows, columns, tile, BLOCK),
        *given,
        np.full((rows, blocks, top), -1),
        *(np.full((rows, blocks), np.nan, np.float32) for _ in range(2)),
        np.full((rows, columns), np.nan, np.float32) if logits else None,
        *(rows, columns, inner, blocks),
    )
    return merge(interpreter, *found[3:6], count)._replace(logits=found[6] if logits else None)


def merge(interpreter: Interpreter, best: np.ndarray, top: np.ndarray, total: np.ndarray, count: int) -> Chosen:
    rows, blocks, kept = best.shape
    log_probs, ids = np.zeros((rows, count), np.float32), np.full((rows, count), -1)
    name = f"merge_t{kept}"
    *_, log_probs, ids = interpreter.run(name, (rows,), best, top, total, log_probs, ids, blocks, count)
    return Chosen(ids, log_probs, None)


def logits_of(given: Rows) -> np.ndarray:
    found: np.ndarray = given.x.astype(np.float64) @ given.weight.T.astype(np.float64) + given.bias
    return found


@tops
@tiles
def test_candidates_are_the_likeliest_with_their_log_probabilities(
    interpreter: Interpreter, top: int, tile: int
) -> None:
    """Every tile has each of the shapes once."""
    shapes = [(1, 16), (5, 400), (35, 272)]
    given = drawn(*shapes[(list(TOPS).index(top) + tile // 32) % len(shapes)])
    found = choose(interpreter, given, top, tile)
    ids, log_probs = candidates(logits_of(given), TOPS[top])
    assert (found.ids == ids).all()
    assert found.log_probs == pytest.approx(log_probs, abs=2e-5)


@tops
@tiles
def test_logits_are_written_and_change_no_bit_of_the_candidates(interpreter: Interpreter, top: int, tile: int) -> None:
    given = drawn(19, 400, 272)
    found = choose(interpreter, given, top, tile, logits=True)
    alone = choose(interpreter, given, top, tile)
    assert found.logits == pytest.approx(logits_of(given), abs=1e-4)
    assert same_bits(found.ids, alone.ids)
    assert same_bits(found.log_probs, alone.log_probs)


@pytest.mark.parametrize("top", [8, 16])
def test_of_equal_logits_the_smaller_id_comes_first(interpreter: Interpreter, top: int) -> None:
    logits = np.random.default_rng(0).integers(-2, 3, 528).astype(np.float16)
    logits[logits == 0] = np.where(np.arange((logits == 0).sum()) % 2, 0.0, -0.0)
    given = Rows(np.zeros((1, 16), np.float16), np.zeros((528, 16), np.float16), logits)
    found = choose(interpreter, given, top)
    assert (found.ids == candidates(logits[None], TOPS[top])[0]).all()
    given.bias[given.bias > 0] = -1  # equal to zero are then the largest, -0 among them
    found = choose(interpreter, given, top)
    assert (found.ids == candidates(given.bias[None], TOPS[top])[0]).all()


@tops
@tiles
def test_a_logit_of_nan_of_either_sign_is_not_chosen(interpreter: Interpreter, top: int, tile: int) -> None:
    given = drawn(3, 272)
    given.bias[5], given.bias[200] = np.nan, -np.nan
    logits = logits_of(given)
    found = choose(interpreter, given, top, tile)
    assert (found.ids == candidates(np.where(np.isnan(logits), -np.inf, logits), TOPS[top])[0]).all()
    assert np.isnan(found.log_probs).all()


@tops
@tiles
def test_an_infinite_logit_and_nan_show_in_all_log_probabilities_of_their_row_alone(
    interpreter: Interpreter, top: int, tile: int
) -> None:
    given = drawn(3, 272)
    before = choose(interpreter, given, top, tile)
    likeliest = int(before.ids[1, 0])
    given.x[1, 0] = np.inf  # times a weight of 0 it is NaN, else infinite
    given.weight[:, 0] = 0
    given.weight[likeliest, 0] = 1
    after = choose(interpreter, given, top, tile)
    assert np.isnan(after.log_probs[1]).all()
    assert after.ids[1, 0] == likeliest, "the only logit that is a number"
    assert ((after.ids[1] >= 0) & (after.ids[1] < 272)).all()
    given.x[1, 0] = 0
    expected = choose(interpreter, given, top, tile)
    assert same_bits(after.ids[[0, 2]], expected.ids[[0, 2]])
    assert same_bits(after.log_probs[[0, 2]], expected.log_probs[[0, 2]])


def test_a_block_without_finite_logits_adds_nothing(interpreter: Interpreter) -> None:
    given = drawn(2, 272)
    given.bias[:128] = -np.inf
    found = choose(interpreter, given, 8)
    ids, log_probs = candidates(logits_of(given), 7)
    assert (found.ids == ids).all()
    assert found.log_probs == pytest.approx(log_probs, abs=2e-5)


def test_more_candidates_than_finite_logits_are_the_first_of_the_others(interpreter: Interpreter) -> None:
    given = drawn(1, 272)
    given.bias[:] = -np.inf
    given.bias[[200, 9]] = 1, 2
    found = choose(interpreter, Rows(np.zeros_like(given.x), *given[1:]), 8)
    assert found.ids.tolist() == [[9, 200, 0, 1, 2, 3, 4]]
    assert found.log_probs[0, 2:].tolist() == [-np.inf] * 5


def test_a_row_without_finite_logits_has_log_probabilities_of_nan(interpreter: Interpreter) -> None:
    given = drawn(1, 144)
    given.bias[:] = -np.inf
    found = choose(interpreter, given, 8)
    assert found.ids.tolist() == [list(range(7))]
    assert np.isnan(found.log_probs).all()


def test_the_largest_logits_do_not_overflow(interpreter: Interpreter) -> None:
    largest = np.finfo(np.float16).max
    given = Rows(np.full((1, 16), largest), np.full((144, 16), -largest), np.zeros(144, np.float16))
    given.weight[[3, 140]] = largest
    found = choose(interpreter, given, 8)
    assert found.ids[0, :3].tolist() == [3, 140, 0]
    assert found.log_probs[0, :2] == pytest.approx(np.log(0.5))
    assert np.isfinite(found.log_probs).all()


@tops
@pytest.mark.parametrize("blocks", [1, 256, 257, 600])
def test_candidates_of_many_blocks_are_merged_in_chunks(interpreter: Interpreter, top: int, blocks: int) -> None:
    random = np.random.default_rng(blocks)
    logits = random.integers(-40, 41, (2, blocks, BLOCK)).astype(np.float32) / 8
    logits[0] += np.arange(blocks, dtype=np.float32)[:, None] / 64  # every chunk has a larger one than those before
    logits[1, : blocks // 257 * 256] = -np.inf  # the first chunk
    order = np.argsort(-logits, axis=2, kind="stable")[:, :, :top]
    values = np.take_along_axis(logits, order, axis=2)
    bits = values.view(np.int32).astype(np.int64)
    bits = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    bits[values == 0] = 0
    largest = logits.max(axis=2)
    totals = np.exp(logits - np.where(np.isinf(largest), 0, largest)[:, :, None]).sum(axis=2)
    best = (bits << 32) | (0x7FFFFFFF - (order + np.arange(blocks)[:, None] * BLOCK))
    found = merge(interpreter, best, largest, totals, TOPS[top])
    ids, log_probs = candidates(logits.reshape(2, -1), TOPS[top])
    assert (found.ids == ids).all()
    assert found.log_probs == pytest.approx(log_probs, abs=2e-5)


@tops
def test_a_row_has_the_same_candidates_among_any_number_of_rows(interpreter: Interpreter, top: int) -> None:
    given = drawn(ROWS[-1], 272)
    whole = choose(interpreter, given, top, 32)
    for rows in ROWS:
        for chosen in (np.arange(rows), moved(rows)):
            found = choose(interpreter, given._replace(x=given.x[chosen]), top, 16 if rows <= 16 else 32)
            assert same_bits(found.ids, whole.ids[chosen]), f"{rows} rows"
            assert same_bits(found.log_probs, whole.log_probs[chosen]), f"{rows} rows"
