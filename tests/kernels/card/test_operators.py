"""Each operator for cards computes its formula: host code and kernels together.

The kernels run in Triton's interpreter, and those of the archive on a card if there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.card_emulation import (
    PARAMETERS,
    Card,
    aligned,
    emulated_card,
    kernel_table,
    node_graph,
)
from tests.support.native_operators import attention, run, same_bits

HALF, LONG, SMALL, FLOAT = np.float16, np.int64, np.int32, np.float32


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def halves(draw: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return aligned((draw.normal(size=shape) * scale).astype(HALF))


def compute(
    card: Card, op: str, inputs: Sequence[np.ndarray | None], outputs: Sequence[Any], **attributes: Any
) -> list[np.ndarray]:
    """Run a node. Inputs that it writes are changed."""
    session = card.session(node_graph(op, inputs, outputs, **attributes))
    feed = {f"in.{place}": array for place, array in enumerate(inputs) if array is not None}
    return card.run(session, feed, {}, host=["in.3"] if op.startswith("Choose") else [])


def normed(x: np.ndarray, norm: int, gain: np.ndarray, shift: np.ndarray | None) -> np.ndarray:
    """The norm of rows in float64, rounded to float16 as what a product reads."""
    rows = x.astype(np.float64)
    apart = rows - rows.mean(1, keepdims=True) if norm == 1 else rows
    found = apart / np.sqrt((apart * apart).mean(1, keepdims=True) + 1e-5) * gain
    return (found if shift is None else found + shift).astype(HALF)


@pytest.mark.native
@pytest.mark.triton
def test_the_host_code_passes_the_arguments_of_the_kernels():
    assert {name: kernel.parameters for name, kernel in kernel_table().items()} == PARAMETERS


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "norm", "relu", "residual"),
    [
        (3, 64, 96, 0, 0, False),
        (17, 64, 80, 0, 1, True),
        (3, 240, 32, 1, 0, False),
        (40, 272, 80, 1, 1, False),
        (2, 528, 48, 2, 0, True),
        (18, 1040, 32, 1, 0, True),
        (1, 1040, 32, 2, 1, False),
    ],
)
def test_a_product_has_a_norm_before_it_and_a_relu_and_a_residual_after_it(
    card: Card,
    draw: np.random.Generator,
    rows: int,
    inputs: int,
    outputs: int,
    norm: int,
    relu: int,
    residual: bool,
):
    x, weight = halves(draw, rows, inputs), halves(draw, outputs, inputs, scale=inputs**-0.5)
    bias, gain, shift = halves(draw, outputs), halves(draw, inputs), halves(draw, inputs)
    added = halves(draw, rows, outputs) if residual else None
    given = [x, weight, bias, gain if norm else None, shift if norm == 1 else None, added]
    (found,) = compute(card, "FloatLinear", given, [HALF], norm=norm, relu=relu, epsilon=1e-5)
    read = normed(x, norm, gain, shift if norm == 1 else None) if norm else x
    expected = read.astype(np.float64) @ weight.T.astype(np.float64) + bias
    expected = np.maximum(expected, 0) if relu else expected
    expected = expected if added is None else expected + added
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize(("rows", "inputs", "norm"), [(3, 240, 1), (40, 272, 2), (18, 528, 1), (17, 1040, 1)])
def test_a_product_also_returns_its_normed_rows_from_which_another_one_has_the_same_bits(
    card: Card, draw: np.random.Generator, rows: int, inputs: int, norm: int
):
    x, weight, bias = halves(draw, rows, inputs), halves(draw, 48, inputs, scale=inputs**-0.5), halves(draw, 48)
    gain, shift = halves(draw, inputs), halves(draw, inputs) if norm == 1 else None
    attributes = dict(norm=norm, relu=0, epsilon=1e-5)
    alone = compute(card, "FloatLinear", [x, weight, bias, gain, shift], [HALF], **attributes)
    found, kept = compute(card, "FloatLinear", [x, weight, bias, gain, shift], [HALF, HALF], **attributes)
    np.testing.assert_allclose(kept, normed(x, norm, gain, shift), rtol=2e-3, atol=2e-3)
    attributes["norm"] = 0
    again = compute(card, "FloatLinear", [aligned(kept), weight, bias], [HALF], **attributes)
    assert same_bits(found, *alone)
    assert same_bits(found, *again)


@pytest.mark.parametrize("placed", [False, True])
def test_an_embedding_is_the_scaled_piece_and_its_position(card: Card, draw: np.random.Generator, placed: bool):
    ids, positions = aligned(np.array([3, 0, 8, 3])), aligned(np.array([0, 4, 1, 2]))
    pieces, table = halves(draw, 9, 1040), halves(draw, 5, 1040)
    given = [ids, pieces, *([positions, table] if placed else [])]
    (found,) = compute(card, "Embed", given, [HALF], scale=8.0)
    expected = 8 * pieces[ids].astype(FLOAT) + (table[positions] if placed else 0)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_step_attention_reads_the_rows_of_its_table_and_writes_the_new_position(
    card: Card, draw: np.random.Generator, size: int
):
    rows, heads, capacity, dim = 3, 2, 37, 2 * size
    packed = halves(draw, rows, 3 * dim)
    caches = [halves(draw, rows, heads, capacity, size) for _ in range(2)]
    before = [cache.copy() for cache in caches]
    positions = aligned(np.array([0, 36, 20]))
    source = draw.integers(0, rows, (rows, capacity))
    source[1:, 0], source[1, 20] = 1, 0  # no row reads what another one writes in this step
    table = aligned((source - np.arange(rows)[:, None]).astype(SMALL))
    given = [packed, *caches, positions, table]
    (mixed,) = compute(card, "StepAttention", given, [HALF], heads=heads, scale=0.25)
    query, *added = packed.reshape(rows, 3, heads, size).transpose(1, 0, 2, 3)
    for row, position in enumerate(positions):
        for cache, old, new in zip(caches, before, added, strict=True):
            assert same_bits(cache[row, :, position], new[row])
            others = np.arange(capacity) != position
            assert same_bits(cache[row][:, others], old[row][:, others])
        for head in range(heads):
            keys, values = (
                np.concatenate([old[source[row, :position], head, np.arange(position)], new[row, head][None]])
                for old, new in zip(before, added, strict=True)
            )
            expected = attention(query[row, head], keys, values, 0.25)
            place = slice(head * size, (head + 1) * size)
            np.testing.assert_allclose(mixed[row, place], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("beams", [1, 3, 17])
def test_cross_attention_reads_the_memory_of_its_sentence_as_far_as_its_length(
    card: Card, draw: np.random.Generator, beams: int
):
    sentences, heads, size, width = 2, 2, 32, 48
    query = halves(draw, sentences * beams, heads * size)
    keys, values = halves(draw, sentences, heads, size, width), halves(draw, sentences, heads, width, size)
    lengths = aligned(np.array([48, 5]))
    keys[1, :, :, 5:] = values[1, :, 5:] = np.nan
    (found,) = compute(card, "CrossAttention", [query, keys, values, lengths], [HALF], heads=heads, scale=0.3)
    for row in range(sentences * beams):
        sentence = row // beams
        for head in range(heads):
            place, length = slice(head * size, (head + 1) * size), lengths[sentence]
            read = keys[sentence, head, :, :length].T, values[sentence, head, :length]
            expected = attention(query[row, place], *read, 0.3)
            np.testing.assert_allclose(found[row, place], expected, rtol=2e-3, atol=2e-3)


def tiles_of(lengths: Sequence[int]) -> np.ndarray:
    """The tiles of self-attention: up to 16 queries of a sentence each."""
    found, begin = [], 0
    for length in lengths:
        found += [(begin + first, min(16, length - first), begin, length) for first in range(0, length, 16)]
        begin += length
    return aligned(np.array(found, SMALL))


def test_self_attention_reads_its_own_sentence(card: Card, draw: np.random.Generator):
    lengths, heads, size = (1, 40, 16, 7), 2, 32
    packed = halves(draw, sum(lengths), 3 * heads * size)
    (found,) = compute(card, "SelfAttention", [packed, tiles_of(lengths)], [HALF], heads=heads, scale=0.2)
    query, keys, values = packed.reshape(-1, 3, heads, size).transpose(1, 2, 0, 3)
    begins = np.cumsum([0, *lengths])
    for first, last in itertools.pairwise(begins):
        for row in range(first, last):
            for head in range(heads):
                expected = attention(query[head, row], keys[head, first:last], values[head, first:last], 0.2)
                place = slice(head * size, (head + 1) * size)
                np.testing.assert_allclose(found[row, place], expected, rtol=2e-3, atol=2e-3)


def test_memory_is_placed_where_the_targets_say_and_nowhere_else(card: Card, draw: np.random.Generator):
    heads, size, width, layers, layer = 2, 32, 9, 3, 1
    rows = halves(draw, 4, layers * 2 * heads * size)
    keys, values = halves(draw, 3, heads, size, width), halves(draw, 3, heads, width, size)
    expected_keys, expected_values = keys.copy(), values.copy()
    targets = [(0, 2, 0, 0), (1, 2, 1, 0), (2, 0, 8, 0), (3, 1, 3, 0)]
    for row, slot, position, _ in targets:
        key, value = rows[row].reshape(layers, 2, heads, size)[layer]
        expected_keys[slot, :, :, position], expected_values[slot, :, position] = key, value
    given = [rows, aligned(np.array(targets, SMALL)), keys, values]
    (done,) = compute(card, "PlaceMemory", given, [SMALL], heads=heads, layer=layer, layers=layers)
    assert done.shape == (1,)
    assert same_bits(keys, expected_keys)
    assert same_bits(values, expected_values)


@pytest.mark.parametrize(("rows", "count", "norm"), [(3, 1, 0), (17, 8, 1), (2, 16, 2)])
def test_a_choice_has_the_likeliest_columns_and_their_log_probabilities(
    card: Card, draw: np.random.Generator, rows: int, count: int, norm: int
):
    x, weight = halves(draw, rows, 64), halves(draw, 272, 64, scale=0.2)
    bias, gain, shift = halves(draw, 272), halves(draw, 64), halves(draw, 64)
    weight[130], bias[130] = weight[7], bias[7]  # equal logits, in different blocks
    norms = [gain if norm else None, shift if norm == 1 else None]
    given = [x, weight, bias, aligned(np.array([count])), *norms]
    attributes = dict(norm=norm, epsilon=1e-5)
    ids, log_probs, logits = compute(card, "ChooseWithLogits", given, [LONG, FLOAT, FLOAT], **attributes)
    read = normed(x, norm, gain, norms[1]) if norm else x
    np.testing.assert_allclose(logits, read.astype(FLOAT) @ weight.T.astype(FLOAT) + bias, rtol=2e-3, atol=2e-3)
    assert (ids == np.argsort(-logits, axis=1, kind="stable")[:, :count]).all()
    exact = logits.astype(np.float64)
    expected = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    np.testing.assert_allclose(log_probs, np.take_along_axis(expected, ids, 1), rtol=1e-5, atol=1e-5)
    alone = compute(card, "Choose", given, [LONG, FLOAT], **attributes)
    assert all(same_bits(first, second) for first, second in zip(alone, (ids, log_probs), strict=True))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_greedy_step_writes_the_next_tokens_and_the_history(card: Card, draw: np.random.Generator, in_place: bool):
    ids, log_probs = aligned(draw.integers(0, 99, (5, 2))), aligned(draw.normal(size=(5, 2)).astype(FLOAT))
    tokens, positions = aligned(np.zeros(5, LONG)), aligned(np.arange(5))
    history, step = aligned(draw.normal(size=(3, 5, 2)).astype(FLOAT)), aligned(np.array([2]))
    expected = history.copy()
    expected[2] = np.stack([ids[:, 0], log_probs[:, 0]], axis=1)
    given = [ids, log_probs, tokens, positions, history, step]
    session = card.session(node_graph("GreedyStep", given, [LONG, LONG, LONG]))
    places = {"out.0": "in.2", "out.1": "in.3", "out.2": "in.5"} if in_place else {}
    changed = card.run(session, {f"in.{place}": array for place, array in enumerate(given)}, places)
    for found, wanted in zip(changed, (ids[:, 0], np.arange(1, 6), np.array([0])), strict=True):
        assert same_bits(found, wanted)
    assert same_bits(history, expected)
    assert same_bits(tokens, ids[:, 0] if in_place else np.zeros(5, LONG))


@pytest.mark.parametrize(("sentences", "beams"), [(1, 1), (3, 2), (2, 3), (2, 4), (1, 8)])
def test_a_beam_step_is_that_of_the_cpu_to_the_last_bit(
    card: Card, draw: np.random.Generator, sentences: int, beams: int
):
    """Several steps from the beginning on, with ends, equal totals and a sentence with NaN."""
    rows, candidates, capacity, end, steps = sentences * beams, 2 * beams, 6, 2, 4
    tokens, positions = np.zeros(rows, LONG), np.zeros(rows, LONG)
    order = np.tile(np.arange(beams), (sentences, 1))
    totals = np.full((sentences, beams), -np.inf, FLOAT)
    totals[:, 0] = 0
    table, past = np.zeros((rows, capacity), SMALL), (sentences, beams, capacity)
    state = [tokens, positions, order, totals, np.zeros(past, LONG), np.zeros(past, FLOAT), table]
    card_state = [aligned(each) for each in (tokens, positions, order, totals, table)]
    log_ids = aligned(np.zeros((steps, rows, candidates), LONG))
    log_values, step = aligned(np.zeros((steps, rows, candidates), FLOAT)), aligned(np.array([0]))
    for number in range(steps):
        ids = np.stack([draw.permutation(max(12, candidates))[:candidates] for _ in range(rows)])
        log_probs = -np.sort(draw.integers(1, 8, (rows, candidates))).astype(FLOAT) / 4
        if number == 2:
            log_probs[0, 1] = np.nan
        *state, _, _, _, _, failed = run("BeamStep", ids, log_probs, *state, end=end)
        given = [aligned(ids), aligned(log_probs), *card_state, log_ids, log_values, step]
        outputs = compute(card, "BeamStep", given, [LONG, LONG, LONG], end=end)
        card_state[:2], step = [aligned(each) for each in outputs[:2]], aligned(outputs[2])
        assert failed[0] == (number == 2)
        expected = *state[:4], state[6]
        names = "tokens", "positions", "rows", "totals", "table"
        for name, found, wanted in zip(names, card_state, expected, strict=True):
            assert same_bits(found, wanted), (name, number)
        assert step == (number + 1) % steps
        assert same_bits(log_ids[number], ids)
        assert same_bits(log_values[number], log_probs)


@pytest.mark.native
@pytest.mark.triton
def test_an_error_of_a_kernel_in_the_interpreter_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    rows = [aligned(np.zeros(1, LONG)), aligned(np.ones((1, 32), HALF))]
    with emulated_card() as card:
        monkeypatch.setitem(PARAMETERS, "embed", "pp")
        with pytest.raises(Exception, match=r"lingon\.Embed: the driver said 700 \(CUDA_ERROR_ILLEGAL_ADDRESS\)"):
            compute(card, "Embed", rows, [HALF], scale=1.0)
        assert card.failure is not None
