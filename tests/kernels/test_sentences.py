"""Tokens and Memory: between padded sentences and the rows of all their tokens."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native
LENGTHS = [[1], [5], [5, 1, 3], [2, 7, 7, 1]]
lengths = pytest.mark.parametrize("lengths", LENGTHS, ids=str)


@lengths
def test_tokens_are_those_within_the_lengths(lengths: list[int]) -> None:
    ids = np.arange(len(lengths) * 7).reshape(len(lengths), 7) - 9
    found, positions = run("Tokens", ids, np.array(lengths))
    assert found.tolist() == [ids[row, place] for row, length in enumerate(lengths) for place in range(length)]
    assert positions.tolist() == [place for length in lengths for place in range(length)]


@lengths
@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize(("op", "dtype"), [("Memory", np.float16), ("Memory32", np.float32)])
def test_memory_has_the_heads_of_its_layer_in_its_type_and_zeros_as_padding(
    lengths: list[int], layer: int, op: str, dtype: type[np.floating]
) -> None:
    heads, size, layers, width = 2, 5, 3, 7
    rows = np.random.default_rng(0).normal(size=(sum(lengths), layers * 2 * heads * size)).astype(np.float32)
    ids = np.zeros((len(lengths), width), np.int64)
    found = run(op, rows, ids, np.array(lengths), heads=heads, layer=layer, layers=layers)
    keys = np.zeros((len(lengths), heads, size, width), dtype)
    values = np.zeros((len(lengths), heads, width, size), dtype)
    packed, begin = rows.reshape(-1, layers, 2, heads, size), 0
    for sentence, length in enumerate(lengths):
        own = packed[begin : begin + length, layer]
        keys[sentence, :, :, :length] = own[:, 0].transpose(1, 2, 0)
        values[sentence, :, :length] = own[:, 1].transpose(1, 0, 2)
        begin += length
    assert same_bits(found[0], keys)
    assert same_bits(found[1], values)


def test_no_sentences_have_no_tokens_and_no_memory() -> None:
    none, ids = np.zeros(0, np.int64), np.zeros((0, 4), np.int64)
    assert [each.shape for each in run("Tokens", ids, none)] == [(0,), (0,)]
    rows = np.zeros((0, 16), np.float32)
    found = run("Memory", rows, ids, none, heads=2, layer=0, layers=1)
    assert [each.shape for each in found] == [(0, 2, 4, 4), (0, 2, 4, 4)]


def test_memory_is_as_wide_as_that_of_a_running_batch() -> None:
    lengths, ids = np.array([3, 5]), np.zeros((2, 5), np.int64)
    rows = np.random.default_rng(1).normal(size=(8, 2 * 2 * 8)).astype(np.float32)
    sizes = {"heads": 2, "layer": 0, "layers": 1}
    keys, values = run("Memory", rows, ids, lengths, **sizes)
    for narrowest, width in ((1, 8), (4, 8), (5, 5), (32, 32)):
        wide_keys, wide_values = run("Memory", rows, ids, lengths, **sizes, narrowest=narrowest)
        assert wide_keys.shape[3] == wide_values.shape[2] == width
        assert same_bits(wide_keys[..., :5], keys)
        assert not wide_keys[..., 5:].any()
        assert same_bits(wide_values[:, :, :5], values)
        assert not wide_values[:, :, 5:].any()


def test_memory_rounds_to_the_nearest_float16() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    up = np.nextafter(halves, np.float32(np.inf))
    ends = np.array([65519.9, 65520, 1e30, np.inf, -np.inf, np.nan, 1e-45, 3e-8], np.float32)
    between = np.concatenate([(halves[1:] + halves[:-1]) / 2, ends])
    values = np.concatenate([halves, up, np.nextafter(between, np.float32(0)), between])
    rows = np.resize(values, (len(values) // 48 + 1, 48))
    ids, lengths = np.zeros((1, len(rows)), np.int64), np.array([len(rows)])
    keys, found = run("Memory", rows, ids, lengths, heads=3, layer=0, layers=1)
    with np.errstate(over="ignore"):
        expected = rows.astype(np.float16).reshape(-1, 2, 3, 8)
    assert same_bits(keys[0], expected[:, 0].transpose(1, 2, 0))
    assert same_bits(found[0], expected[:, 1].swapaxes(0, 1))
