"""step_attention, cross_attention and self_attention in Triton's interpreter, beside attention in float64."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.card_kernels import Interpreter, attention, halves
from tests.support.native_operators import same_bits

pytestmark = pytest.mark.triton
sizes = pytest.mark.parametrize("size", [32, 64, 128])
HEADS, SCALE = 2, 0.2
NEAR = 2e-3  # of values near 1: float16 rounds by 5e-4, and the weights of a softmax are float16 too


class Step(NamedTuple):
    """The inputs of step_attention; cells that no row may read are NaN."""

    packed: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    table: np.ndarray
    positions: np.ndarray

    def gathered(self, row: int) -> Step:
        """A row alone, whose past is in its own caches."""
        own, capacity = row + self.table[row], self.table.shape[1]
        keys, values = (
            np.stack([each[own[at], :, at] for at in range(capacity)], axis=1)[None]
            for each in (self.keys, self.values)
        )
        return Step(self.packed[[row]], keys, values, np.zeros((1, capacity), np.int32), self.positions[[row]])


def drawn_step(size: int, lengths: list[int], capacity: int) -> Step:
    rows, random = len(lengths), np.random.default_rng(size)
    keys, values = (halves(rows, HEADS, capacity, size, seed=seed) for seed in (1, 2))
    table = np.zeros((rows, capacity), np.int32)
    read = np.zeros((rows, capacity), bool)
    for row, length in enumerate(lengths):
        for at in range(length):  # no cell that another row writes in this step
            holder = random.choice([each for each in range(rows) if lengths[each] != at])
            table[row, at], read[holder, at] = holder - row, True
    for each in (keys, values):
        each.transpose(0, 2, 1, 3)[~read] = np.nan
    return Step(halves(rows, 3 * HEADS * size, seed=3), keys, values, table, np.array(lengths))


def step(interpreter: Interpreter, given: Step) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what step_attention mixes, and the caches after it."""
    rows, capacity = given.table.shape
    size = given.keys.shape[-1]
    _, keys, values, *_, mixed = interpreter.run(
        f"step_attention_d{size}",
        (rows, HEADS),
        *given,
        np.zeros((rows, HEADS * size), np.float16),
        *(HEADS, capacity, SCALE),
    )
    return mixed, keys, values


LENGTHS = [0, 1, 15, 16, 17, 31, 32, 33, 69]


@sizes
def test_a_step_attends_to_its_past_through_the_table_and_to_itself(interpreter: Interpreter, size: int) -> None:
    given = drawn_step(size, LENGTHS, 70)
    mixed, *_ = step(interpreter, given)
    new = given.packed.reshape(-1, 3, HEADS, size)
    for row, length in enumerate(LENGTHS):
        own, at = row + given.table[row, :length], np.arange(length)
        for head in range(HEADS):
            keys, values = (
                np.concatenate([past[own, head, at], new[[row], place, head]])
                for place, past in ((1, given.keys), (2, given.values))
            )
            expected = attention(new[[row], 0, head], keys, values, SCALE)
            found = mixed[row, head * size : (head + 1) * size]
            assert found == pytest.approx(expected[0], abs=NEAR)


@sizes
def test_a_step_writes_its_key_and_value_at_its_position_and_nothing_else(interpreter: Interpreter, size: int) -> None:
    given = drawn_step(size, LENGTHS, 70)
    _, keys, values = step(interpreter, given)
    new = given.packed.reshape(-1, 3, HEADS, size)
    for found, before, place in ((keys, given.keys, 1), (values, given.values, 2)):
        expected = before.copy()
        expected[np.arange(len(LENGTHS)), :, LENGTHS] = new[:, place]
        assert same_bits(found, expected)


@sizes
def test_a_step_has_the_bits_of_a_row_alone_whose_past_is_its_own(interpreter: Interpreter, size: int) -> None:
    given = drawn_step(size, LENGTHS, 70)
    mixed, *_ = step(interpreter, given)
    for row in range(len(LENGTHS)):
        assert same_bits(step(interpreter, given.gathered(row))[0], mixed[[row]])


def test_the_past_of_a_table_with_other_entries_behind_it_is_the_same(interpreter: Interpreter) -> None:
    given = drawn_step(32, [3, 5], 40)
    changed = given.table.copy()
    changed[0, 3:], changed[1, 5:] = 2**30, -(2**30)
    assert same_bits(step(interpreter, given)[0], step(interpreter, given._replace(table=changed))[0])


@sizes
def test_a_step_of_the_largest_values_is_finite(interpreter: Interpreter, size: int) -> None:
    largest = np.finfo(np.float16).max
    given = drawn_step(size, [0, 20], 32)
    for each in (given.packed, given.keys, given.values):
        each[...] = np.where(np.isnan(each), each, largest)
    mixed, *_ = step(interpreter, given)
    assert (mixed == largest).all()


@sizes
@pytest.mark.parametrize("past", [0, 3])
def test_a_row_with_nan_changes_no_other_row(interpreter: Interpreter, size: int, past: int) -> None:
    given = drawn_step(size, [4, past, 9], 16)._replace(table=np.zeros((3, 16), np.int32))
    for each in (given.keys, given.values):
        each[...] = halves(*each.shape, seed=8)
    before, *_ = step(interpreter, given)
    given.packed[1, 0] = np.nan
    after, *_ = step(interpreter, given)
    assert same_bits(after[[0, 2]], before[[0, 2]])
    assert np.isnan(after[1, :size]).all()


class Memory(NamedTuple):
    """The inputs of cross_attention; cells behind the lengths are NaN."""

    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    lengths: np.ndarray

    def sentence(self, number: int, beams: list[int]) -> Memory:
        """Some beams of one sentence."""
        query = self.query.reshape(len(self.lengths), -1, self.query.shape[1])[number, beams]
        return Memory(query, *(each[[number]] for each in self[1:]))


def drawn_memory(size: int, beams: int, lengths: list[int], width: int) -> Memory:
    sentences = len(lengths)
    keys = halves(sentences, HEADS, size, width, seed=1)
    values = halves(sentences, HEADS, width, size, seed=2)
    for number, length in enumerate(lengths):
        keys[number, :, :, length:] = np.nan
        values[number, :, length:] = np.nan
    return Memory(halves(sentences * beams, HEADS * size, seed=3), keys, values, np.array(lengths))


def cross(interpreter: Interpreter, given: Memory) -> np.ndarray:
    sentences, _, size, width = given.keys.shape
    beams = len(given.query) // sentences
    found = np.zeros_like(given.query)
    grid = sentences, HEADS, -(-beams // 16)
    name = f"cross_attention_d{size}"
    return interpreter.run(name, grid, *given, found, HEADS, beams, width, SCALE)[-1]


SOURCES = [1, 15, 33, 16, 48]


@sizes
@pytest.mark.parametrize("beams", [1, 4, 18])
def test_rows_attend_to_the_memory_of_their_sentence_up_to_its_length(
    interpreter: Interpreter, size: int, beams: int
) -> None:
    given = drawn_memory(size, beams, SOURCES, 48)
    found = cross(interpreter, given).reshape(len(SOURCES), beams, HEADS, size)
    query = given.query.reshape(found.shape)
    for (number, length), head in itertools.product(enumerate(SOURCES), range(HEADS)):
        keys, values = given.keys[number, head, :, :length].T, given.values[number, head, :length]
        expected = attention(query[number, :, head], keys, values, SCALE)
        assert found[number, :, head] == pytest.approx(expected, abs=NEAR)


@sizes
def test_a_beam_has_the_bits_that_it_has_alone_and_at_another_place(interpreter: Interpreter, size: int) -> None:
    given = drawn_memory(size, 18, SOURCES, 48)
    found = cross(interpreter, given).reshape(len(SOURCES), 18, -1)
    for number in range(len(SOURCES)):
        for beams in ([0], [17], [9, 3], list(range(17, -1, -1))):
            assert same_bits(cross(interpreter, given.sentence(number, beams)), found[number, beams])


@sizes
def test_a_beam_with_nan_changes_no_other(interpreter: Interpreter, size: int) -> None:
    given = drawn_memory(size, 3, [40], 48)
    before = cross(interpreter, given)
    given.query[1] = np.nan
    after = cross(interpreter, given)
    assert same_bits(after[[0, 2]], before[[0, 2]])
    assert np.isnan(after[1]).all()


def packed_tiles(lengths: list[int]) -> np.ndarray:
    begins = [0, *itertools.accumulate(lengths)]
    return np.array(
        [
            (begin + first, min(16, length - first), begin, length)
            for begin, length in zip(begins, lengths, strict=False)
            for first in range(0, length, 16)
        ],
        np.int32,
    )


def self_attention(interpreter: Interpreter, packed: np.ndarray, lengths: list[int]) -> np.ndarray:
    tiles, size = packed_tiles(lengths), packed.shape[1] // (3 * HEADS)
    found = np.full((len(packed), HEADS * size), np.inf, np.float16)
    name = f"self_attention_d{size}"
    return interpreter.run(name, (len(tiles), HEADS), packed, tiles, found, HEADS, SCALE)[-1]


@sizes
def test_tokens_attend_to_all_tokens_of_their_sentence(interpreter: Interpreter, size: int) -> None:
    lengths = [1, 16, 35, 2, 32]
    packed = halves(sum(lengths), 3 * HEADS * size)
    found, begin = self_attention(interpreter, packed, lengths), 0
    for length in lengths:
        query, keys, values = packed[begin : begin + length].reshape(length, 3, HEADS, size).transpose(1, 2, 0, 3)
        for head in range(HEADS):
            expected = attention(query[head], keys[head], values[head], SCALE)
            own = found[begin : begin + length, head * size : (head + 1) * size]
            assert own == pytest.approx(expected, abs=NEAR)
        begin += length


@sizes
def test_a_sentence_has_the_bits_that_it_has_alone_whatever_the_others_are(interpreter: Interpreter, size: int) -> None:
    lengths = [3, 35, 17]
    packed = halves(sum(lengths), 3 * HEADS * size)
    packed[38:] = np.nan
    found = self_attention(interpreter, packed, lengths)
    assert same_bits(found[3:38], self_attention(interpreter, packed[3:38], [35]))
    assert same_bits(found[:3], self_attention(interpreter, packed[:3], [3]))
    assert np.isnan(found[38:]).all()
