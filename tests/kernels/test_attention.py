"""StepAttention, StepAttention32, CrossAttention and SelfAttention, beside attention in float64."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from tests.support import native_operators as native
from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native
SIZES = [(1, 8, 1), (2, 16, 7), (3, 24, 8), (1, 64, 9), (2, 72, 33)]
sizes = pytest.mark.parametrize(("heads", "size", "width"), SIZES)
SCALE = 0.3
STEPS = {"StepAttention": np.float16, "StepAttention32": np.float32}
"""The types of caches, by operator."""

kinds_of_step = pytest.mark.parametrize("step", STEPS)
types = pytest.mark.parametrize("dtype", [np.float16, np.float32])


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def steps(rows: int, heads: int, size: int, width: int, step: str = "StepAttention") -> list[np.ndarray]:
    """The inputs of a step; every cache of a row ends at another position."""
    caches = [drawn(rows, heads, width, size, seed=seed).astype(STEPS[step]) for seed in (1, 2)]
    return [drawn(rows, 3 * heads * size), *caches, np.arange(rows, dtype=np.int64) * 5 % width]


def memories(
    sentences: int, beam: int, heads: int, size: int, width: int, dtype: type[np.floating] = np.float16
) -> list[np.ndarray]:
    """The inputs of CrossAttention."""
    lengths = np.arange(sentences, dtype=np.int64) * 3 % width + 1
    keys, values = drawn(sentences, heads, size, width, seed=1), drawn(sentences, heads, width, size, seed=2)
    return [drawn(sentences * beam, heads * size), keys.astype(dtype), values.astype(dtype), lengths]


@sizes
@kinds_of_step
def test_a_step_attends_to_the_cache_up_to_its_own_position(heads: int, size: int, width: int, step: str) -> None:
    packed, keys, values, positions = steps(5, heads, size, width, step)
    found = run(step, packed, keys, values, positions, heads=heads, scale=SCALE)[0]
    new = packed.reshape(5, 3, heads, size)
    for row, position in enumerate(positions):
        for head in range(heads):
            own_keys = np.concatenate([keys[row, head, :position], new[row, 1, head][None].astype(STEPS[step])])
            own_values = np.concatenate([values[row, head, :position], new[row, 2, head][None].astype(STEPS[step])])
            expected = native.attention(new[row, 0, head], own_keys, own_values, SCALE)
            assert found[row, head * size : (head + 1) * size] == pytest.approx(expected, abs=2e-6)


@sizes
@kinds_of_step
def test_a_step_adds_its_key_and_value_to_the_caches_and_changes_nothing_else(
    heads: int, size: int, width: int, step: str
) -> None:
    packed, keys, values, positions = steps(5, heads, size, width, step)
    before = keys.copy(), values.copy()
    found = run(step, packed, keys, values, positions, heads=heads, scale=SCALE)
    new = packed.reshape(5, 3, heads, size)
    for place, (present, past) in enumerate(zip(found[1:], before, strict=True), 1):
        expected = past.copy()
        expected[np.arange(5), :, positions] = new[:, place]
        assert same_bits(present, expected)
    assert same_bits(keys, before[0]), "the inputs are not changed"
    assert same_bits(values, before[1])


@sizes
@kinds_of_step
def test_a_step_in_the_memory_of_its_caches_computes_the_same(heads: int, size: int, width: int, step: str) -> None:
    given = steps(5, heads, size, width, step)
    expected = run(step, *given, heads=heads, scale=SCALE)
    session = native.session_of(step, given, heads=heads, scale=SCALE)
    values = [ort.OrtValue.ortvalue_from_numpy(each) for each in given]
    binding = session.io_binding()
    for place, value in enumerate(values):
        binding.bind_ortvalue_input(str(place), value)
    binding.bind_output("out.0")
    for place in (1, 2):
        binding.bind_ortvalue_output(f"out.{place}", values[place])
    session.run_with_iobinding(binding)
    assert same_bits(binding.get_outputs()[0].numpy(), expected[0])
    assert same_bits(values[1].numpy(), expected[1])
    assert same_bits(values[2].numpy(), expected[2])


@sizes
@kinds_of_step
def test_a_step_reads_each_position_of_its_past_from_the_row_that_a_table_names(
    heads: int, size: int, width: int, step: str
) -> None:
    packed, keys, values, positions = steps(5, heads, size, width, step)
    rows, places = np.random.default_rng(3).integers(0, 5, (5, width)), np.arange(width)
    rows[np.arange(5), positions] = np.arange(5)
    # The caches as they are after the step: a row may read what another row adds.
    added = run(step, packed, keys, values, positions, heads=heads, scale=SCALE)[1:]
    gathered = [each[rows, :, places].swapaxes(1, 2) for each in added]
    expected = run(step, packed, *gathered, positions, heads=heads, scale=SCALE)[0]
    table = (rows - np.arange(5)[:, None]).astype(np.int32)
    assert same_bits(run(step, packed, keys, values, positions, table, heads=heads, scale=SCALE)[0], expected)


@sizes
@types
@pytest.mark.parametrize("beam", [1, 3])
def test_rows_attend_to_the_memory_of_their_sentence(
    heads: int, size: int, width: int, beam: int, dtype: type[np.floating]
) -> None:
    query, keys, values, lengths = memories(4, beam, heads, size, width, dtype)
    found = run("CrossAttention", query, keys, values, lengths, heads=heads, scale=SCALE)[0]
    for row in range(4 * beam):
        for head in range(heads):
            sentence, place = row // beam, slice(head * size, (head + 1) * size)
            length = lengths[sentence]
            own = keys[sentence, head, :, :length].T, values[sentence, head, :length]
            # The scores are up to 8: their rounding is an error of the weights.
            assert found[row, place] == pytest.approx(native.attention(query[row, place], *own, SCALE), abs=4e-6)


@sizes
@types
def test_what_lies_beyond_the_length_of_a_sentence_changes_nothing(
    heads: int, size: int, width: int, dtype: type[np.floating]
) -> None:
    query, keys, values, lengths = memories(4, 2, heads, size, width, dtype)
    expected = run("CrossAttention", query, keys, values, lengths, heads=heads, scale=SCALE)[0]
    beyond = np.arange(width) >= lengths[:, None]
    keys = np.where(beyond[:, None, None, :], dtype(np.nan), keys)
    values = np.where(beyond[:, None, :, None], dtype(np.inf), values)
    assert same_bits(run("CrossAttention", query, keys, values, lengths, heads=heads, scale=SCALE)[0], expected)


@sizes
@types
@pytest.mark.parametrize("beam", [1, 3, 9])
@pytest.mark.parametrize("chosen", [[0], [2, 0], [1, 1, 2]], ids=str)
def test_rows_say_the_mean_of_the_weights_of_some_heads(
    heads: int, size: int, width: int, beam: int, dtype: type[np.floating], chosen: list[int]
) -> None:
    query, keys, values, lengths = memories(4, beam, heads, size, width, dtype)
    some = [min(head, heads - 1) for head in chosen]
    inputs = query, keys, values, lengths, np.array(some)
    mixed, found = run("CrossAttention", *inputs, optional=True, heads=heads, scale=SCALE)
    assert same_bits(mixed, run("CrossAttention", query, keys, values, lengths, heads=heads, scale=SCALE)[0])
    assert found.shape == (4 * beam, width)
    for row in range(4 * beam):
        length, by_head = lengths[row // beam], query[row].reshape(heads, size)
        weights = [
            native.attention_weights(by_head[head], keys[row // beam, head, :, :length].T, SCALE) for head in some
        ]
        assert found[row, :length] == pytest.approx(np.mean(weights, axis=0), abs=4e-6)
        assert not found[row, length:].any()


def test_the_width_of_the_memory_changes_nothing() -> None:
    query, keys, values, lengths = memories(3, 2, 2, 16, 13)
    expected = run("CrossAttention", query, keys, values, lengths, heads=2, scale=SCALE)[0]
    for more in (1, 3, 8, 20):
        wide = np.pad(keys, ((0, 0), (0, 0), (0, 0), (0, more))), np.pad(values, ((0, 0), (0, 0), (0, more), (0, 0)))
        assert same_bits(run("CrossAttention", query, *wide, lengths, heads=2, scale=SCALE)[0], expected)


def test_the_capacity_of_the_caches_changes_nothing() -> None:
    packed, keys, values, positions = steps(5, 2, 16, 13)
    expected = run("StepAttention", packed, keys, values, positions, heads=2, scale=SCALE)[0]
    wide = [np.pad(each, ((0, 0), (0, 0), (0, 7), (0, 0)), constant_values=np.nan) for each in (keys, values)]
    assert same_bits(run("StepAttention", packed, *wide, positions, heads=2, scale=SCALE)[0], expected)


@sizes
def test_tokens_attend_to_all_tokens_of_their_sentence(heads: int, size: int, width: int) -> None:
    lengths = np.array([width, 1, 9, 8], np.int64)
    packed = drawn(int(lengths.sum()), 3 * heads * size)
    found = run("SelfAttention", packed, lengths, heads=heads, scale=SCALE)[0]
    begin = 0
    for length in lengths:
        own = packed[begin : begin + length].reshape(length, 3, heads, size)
        for token in range(length):
            for head in range(heads):
                expected = native.attention(own[token, 0, head], own[:, 1, head], own[:, 2, head], SCALE)
                place = slice(head * size, (head + 1) * size)
                assert found[begin + token, place] == pytest.approx(expected, abs=2e-6)
        begin += length


def test_a_sentence_is_attended_alone_as_among_others() -> None:
    lengths = np.array([5, 17, 1, 8, 30], np.int64)
    packed, ends = drawn(61, 3 * 2 * 24), np.cumsum(lengths)
    together = run("SelfAttention", packed, lengths, heads=2, scale=SCALE)[0]
    for end, length in zip(ends, lengths, strict=True):
        own = run("SelfAttention", packed[end - length : end], np.array([length]), heads=2, scale=SCALE)[0]
        assert same_bits(together[end - length : end], own)


def test_padding_changes_nothing() -> None:
    lengths = np.array([5, 17, 1], np.int64)
    packed, ends = drawn(23, 3 * 2 * 24), np.cumsum(lengths)
    padded = np.full((3, 17, 3 * 2 * 24), np.nan, np.float32)
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        padded[row, :length] = packed[end - length : end]
    expected = run("SelfAttention", packed, lengths, heads=2, scale=SCALE)[0]
    found = run("SelfAttention", padded.reshape(51, -1), lengths, heads=2, scale=SCALE)[0].reshape(3, 17, -1)
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        assert same_bits(found[row, :length], expected[end - length : end])
        assert not found[row, length:].any()


@kinds_of_step
def test_causal_attention_has_the_bits_of_steps(step: str) -> None:
    packed, capacity, narrow = drawn(11, 3 * 2 * 24), 13, int(step == "StepAttention")
    whole = run("SelfAttention", packed, np.array([11]), heads=2, scale=SCALE, causal=1, narrow=narrow)[0]
    keys = values = np.zeros((1, 2, capacity, 24), STEPS[step])
    for position in range(11):
        row = packed[position : position + 1]
        found, keys, values = run(step, row, keys, values, np.array([position]), heads=2, scale=SCALE)
        assert same_bits(found[0], whole[position])


def test_a_table_says_which_row_has_a_position() -> None:
    packed, keys, values, positions = steps(3, 2, 16, 13)
    positions[:] = 6
    table = np.zeros((3, 13), np.int32)
    table[2, :4], table[1, 2] = -2, 1
    chosen = np.arange(3)[:, None] + table
    gathered = [each[chosen[:, None, :], np.arange(2)[:, None], np.arange(13)] for each in (keys, values)]
    found = run("StepAttention", packed, keys, values, positions, table, heads=2, scale=SCALE)[0]
    assert same_bits(found, run("StepAttention", packed, *gathered, positions, heads=2, scale=SCALE)[0])


@kinds_of_step
def test_a_row_steps_alone_as_among_others(step: str) -> None:
    given = steps(7, 2, 24, 40, step)
    together = run(step, *given, heads=2, scale=SCALE)[0]
    alone = [run(step, *(each[row : row + 1] for each in given), heads=2, scale=SCALE)[0] for row in range(7)]
    assert same_bits(together, np.concatenate(alone))


@pytest.mark.parametrize("op", ["StepAttention", "CrossAttention", "SelfAttention"])
def test_any_number_of_threads_attends_with_the_same_bits(op: str) -> None:
    given = {
        "StepAttention": lambda: steps(48, 8, 64, 100),
        "CrossAttention": lambda: memories(16, 4, 8, 64, 70),
        "SelfAttention": lambda: [drawn(300, 3 * 8 * 64), np.array([100, 60, 140])],
    }[op]()
    one, two = (run(op, *given, threads=threads, heads=8, scale=0.125) for threads in (1, 2))
    assert all(map(same_bits, one, two))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_whose_query_is_not_finite_fails_alone(bad: float) -> None:
    packed, *rest = steps(5, 2, 16, 9)
    expected = run("StepAttention", packed, *rest, heads=2, scale=SCALE)[0]
    packed[2, 3] = bad
    found = run("StepAttention", packed, *rest, heads=2, scale=SCALE)[0]
    assert np.isnan(found[2, :16]).all()
    assert same_bits(np.delete(found, 2, 0), np.delete(expected, 2, 0))


@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0, 87.0, 200.0, 1e30])
def test_weights_of_attention_are_as_exact_as_float32(spread: float) -> None:
    keys = np.linspace(-1, 0, 50).astype(np.float16)
    scores = keys.astype(np.float32) * np.float32(spread)
    values = np.zeros((1, 1, 50, 56), np.float16)
    values[0, 0, range(50), range(50)] = 1  # the results are the weights
    query = np.zeros((1, 56), np.float32)
    query[0, 0] = spread
    wide = np.zeros((1, 1, 56, 50), np.float16)
    wide[0, 0, 0] = keys
    found = run("CrossAttention", query, wide, values, np.array([50]), heads=1, scale=1.0)[0][0, :50]
    exact = np.exp(scores.astype(np.float64))
    assert np.abs(found - exact / exact.sum()).max() < 2e-7
    near = exact > 1e-30
    assert np.abs(found[near] / (exact / exact.sum())[near] - 1).max() < 1e-5
