"""Products: Linear and FloatLinear, and those of gathered columns, beside what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.export.graphs.native import GROUP, PANEL
from tests.support import native_operators as native
from tests.support.native_operators import run, same_bits

pytestmark = pytest.mark.native
SHAPES = [
    (1, 1, 1),
    (1, 3, 5),
    (2, 8, 16),
    (5, 7, 17),
    (6, 9, 31),
    (7, 16, 33),
    (13, 65, 8),
    (1, 130, 250),
    (4, 64, 70),
    (17, 128, 100),
    (40, 64, 64),
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
NORMS = st.integers(0, 2)


def weights_of(draw: np.random.Generator, inputs: int, outputs: int, most: int = 63) -> list[np.ndarray]:
    """Columns, scales and biases."""
    columns = draw.integers(-most, most + 1, (inputs, outputs)).astype(np.int8)
    return [columns, draw.random(outputs, np.float32) / 64, draw.normal(size=outputs).astype(np.float32)]


def rows_of(draw: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    return draw.normal(size=(rows, inputs)).astype(np.float32)


def norm_of(draw: np.random.Generator, inputs: int) -> list[np.ndarray]:
    return [draw.normal(size=inputs).astype(np.float32) for _ in range(2)]


@shapes
@pytest.mark.parametrize("norm", [0, 1, 2])
@pytest.mark.parametrize("relu", [0, 1])
def test_linear_computes_what_numpy_computes(shape: tuple[int, int, int], norm: int, relu: int) -> None:
    rows, inputs, outputs = shape
    draw = np.random.default_rng(rows + outputs)
    given = [rows_of(draw, rows, inputs), *weights_of(draw, inputs, outputs), *norm_of(draw, inputs)]
    given.append(rows_of(draw, rows, outputs))
    if norm != 1:
        given[5] = None  # type: ignore[call-overload]
    found = run("Linear", *given, norm=norm, epsilon=1e-5, relu=relu)[0]
    assert same_bits(found, native.linear(given, norm=norm, relu=relu))


@shapes
@pytest.mark.parametrize("norm", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_product_of_floats_is_what_numpy_computes(
    shape: tuple[int, int, int], norm: int, dtype: type[np.floating]
) -> None:
    rows, inputs, outputs = shape
    draw = np.random.default_rng(rows + outputs)
    weights = draw.normal(size=(outputs, inputs)).astype(dtype)
    given = [rows_of(draw, rows, inputs), weights, rows_of(draw, 1, outputs)[0], *norm_of(draw, inputs)]
    given.append(rows_of(draw, rows, outputs))
    if norm != 1:
        given[4] = None  # type: ignore[call-overload]
    for relu, count in ((0, 6), (1, 5)):
        found = run("FloatLinear", *given[:count], norm=norm, epsilon=1e-5, relu=relu)[0]
        assert same_bits(found, native.float_linear(given[:count], norm=norm, relu=relu))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_row_of_a_product_of_floats_has_its_bits_alone_and_with_any_number_of_threads(
    dtype: type[np.floating],
) -> None:
    draw = np.random.default_rng(6)
    given = rows_of(draw, 37, 300)
    rest = [draw.normal(size=(900, 300)).astype(dtype), rows_of(draw, 1, 900)[0], *norm_of(draw, 300)]
    attributes = {"norm": 1, "epsilon": 1e-5, "relu": 0}
    together = run("FloatLinear", given, *rest, threads=2, **attributes)[0]
    for count in range(1, 37):
        assert same_bits(run("FloatLinear", given[:count], *rest, **attributes)[0], together[:count])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", [0, 1])
def test_a_row_of_a_product_of_floats_that_is_not_finite_fails_alone(bad: float, norm: int) -> None:
    draw = np.random.default_rng(1)
    rows, weights = rows_of(draw, 9, 24), rows_of(draw, 40, 24)
    rest = [weights, rows_of(draw, 1, 40)[0], *norm_of(draw, 24)]
    expected = run("FloatLinear", rows, *rest, norm=norm, epsilon=1e-5, relu=0)[0]
    broken = rows.copy()
    broken[4, 13] = bad
    found = run("FloatLinear", broken, *rest, norm=norm, epsilon=1e-5, relu=0)[0]
    assert not np.isfinite(found[4]).any()
    assert same_bits(np.delete(found, 4, axis=0), np.delete(expected, 4, axis=0))


EXTREMES = {
    "zeros": np.zeros(20),
    "negative zeros": np.full(20, -0.0),
    "equal": np.full(20, 3.7),
    "all at the highest level": np.full(20, 1.0),
    "all at the lowest level": np.full(20, -1.0),
    "huge": np.linspace(-1e38, 1e38, 20),
    "a range beyond float32": np.linspace(-3e38, 3e38, 20),
    "tiny": np.linspace(-1e-30, 1e-30, 20),
    "denormal": np.linspace(-1e-40, 1e-40, 20),
    "one outlier": np.eye(1, 20, 7)[0] * 1e30,
    "NaN": np.where(np.arange(20) == 11, np.nan, 1),
    "infinity": np.where(np.arange(20) == 19, np.inf, 1),
    "negative infinity": np.where(np.arange(20) == 0, -np.inf, 1),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("norm", [0, 1, 2])
def test_a_row_of_extreme_values_is_computed_as_numpy_does(name: str, norm: int) -> None:
    draw = np.random.default_rng(0)
    row = EXTREMES[name].astype(np.float32)[None]
    given = [row, *weights_of(draw, 20, 18), *norm_of(draw, 20)][: 6 if norm == 1 else 5]
    assert same_bits(run("Linear", *given, norm=norm, epsilon=1e-5, relu=0)[0], native.linear(given, norm=norm))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", [0, 1])
def test_a_row_that_is_not_finite_fails_alone(bad: float, norm: int) -> None:
    draw = np.random.default_rng(1)
    rows, rest = rows_of(draw, 9, 24), [*weights_of(draw, 24, 40), *norm_of(draw, 24)]
    expected = run("Linear", rows, *rest, norm=norm, epsilon=1e-5, relu=1)[0]
    broken = rows.copy()
    broken[4, 13] = bad
    found = run("Linear", broken, *rest, norm=norm, epsilon=1e-5, relu=1)[0]
    assert np.isnan(found[4]).all()
    assert same_bits(np.delete(found, 4, axis=0), np.delete(expected, 4, axis=0))


@pytest.mark.parametrize("weight", [63, -63])
@pytest.mark.parametrize("inputs", [8, 1024, 65536])
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_sums_of_extreme_products_are_exact(weight: int, inputs: int, value: float) -> None:
    columns = np.full((inputs, 3), weight, np.int8)
    rows = np.full((2, inputs), value, np.float32)
    given = [rows, columns, np.ones(3, np.float32), np.zeros(3, np.float32)]
    found = run("Linear", *given, norm=0, epsilon=0.0, relu=0)[0]
    assert same_bits(found, native.linear(given))
    assert found == pytest.approx(value * weight * inputs, rel=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("last", [1, 2])
def test_sums_of_four_products_do_not_overflow(sign: int, last: int) -> None:
    """AVX2 adds four products in 16 bits where these hold them: 255 * (63 + 63 + 1 + 1), but not 255 more.

    The weights of the four are those of the inputs 0, 1, 4 and 5 of eight; every other block has small weights.
    """
    columns = np.zeros((64, 40), np.int8)
    columns[::16], columns[1::16], columns[4::16], columns[5::16] = sign * 63, sign * 63, sign, sign * last
    columns[8::16] = 3
    rows = np.ones((3, 64), np.float32)
    given = [rows, columns, np.ones(40, np.float32), np.zeros(40, np.float32)]
    found = run("Linear", *given, norm=0, epsilon=0.0, relu=0)[0]
    assert same_bits(found, native.linear(given))
    assert found == pytest.approx(4 * sign * (127 + last) + 4 * 3, rel=1e-6)


@shapes
def test_a_row_is_computed_alone_as_among_others(shape: tuple[int, int, int]) -> None:
    rows, inputs, outputs = shape
    draw = np.random.default_rng(2)
    given, rest = rows_of(draw, rows, inputs), [*weights_of(draw, inputs, outputs), *norm_of(draw, inputs)]
    together = run("Linear", given, *rest, norm=1, epsilon=1e-5, relu=0)[0]
    alone = [run("Linear", row[None], *rest, norm=1, epsilon=1e-5, relu=0)[0] for row in given]
    assert same_bits(together, np.concatenate(alone))


@pytest.mark.parametrize("shape", [(1, 512, 3000), (64, 512, 512), (300, 64, 40)], ids=str)
def test_any_number_of_threads_computes_the_same_bits(shape: tuple[int, int, int]) -> None:
    draw = np.random.default_rng(3)
    given = [rows_of(draw, *shape[:2]), *weights_of(draw, *shape[1:])]
    one, two = (run("Linear", *given, norm=0, epsilon=0.0, relu=0, threads=threads)[0] for threads in (1, 2))
    assert same_bits(one, two)


def test_rows_may_have_any_number_of_dimensions() -> None:
    draw = np.random.default_rng(4)
    rows, rest = rows_of(draw, 6, 10), weights_of(draw, 10, 7)
    flat = run("Linear", rows, *rest, norm=0, epsilon=0.0, relu=0)[0]
    assert same_bits(run("Linear", rows.reshape(2, 3, 10), *rest, norm=0, epsilon=0.0, relu=0)[0].reshape(6, 7), flat)
    assert run("Linear", rows[:0], *rest, norm=0, epsilon=0.0, relu=0)[0].shape == (0, 7)


@given(seed=st.integers(0, 1 << 32), inputs=st.integers(1, 40), outputs=st.integers(1, 60), norm=NORMS, data=st.data())
def test_a_product_of_gathered_columns_is_that_of_all_columns_at_these_places(
    seed: int, inputs: int, outputs: int, norm: int, data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    weights, rows = weights_of(draw, inputs, outputs), rows_of(draw, 3, inputs)
    normed = norm_of(draw, inputs)[: norm and 3 - norm]
    ids = np.array(data.draw(st.lists(st.integers(0, outputs - 1), max_size=40)), np.int64)
    chosen = run("GatherColumns", ids, *weights)
    every = run("Linear", rows, *weights, *normed, norm=norm, epsilon=1e-5, relu=0)[0]
    assert chosen[0].shape == (-(-len(ids) // PANEL), -(-inputs // GROUP) * GROUP * PANEL)
    found = run("PackedLinear", rows, *chosen, *normed, norm=norm, epsilon=1e-5)[0]
    assert same_bits(found, every[:, ids])


@given(
    seed=st.integers(0, 1 << 32),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 60),
    norm=NORMS,
    dtype=st.sampled_from([np.float32, np.float16]),
    data=st.data(),
)
def test_a_product_of_gathered_columns_of_floats_is_that_of_all_columns_at_these_places(
    seed: int, inputs: int, outputs: int, norm: int, dtype: type[np.floating], data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    weights = draw.normal(size=(outputs, inputs)).astype(dtype), rows_of(draw, 1, outputs)[0]
    rows, normed = rows_of(draw, 3, inputs), norm_of(draw, inputs)[: norm and 3 - norm]
    ids = np.array(data.draw(st.lists(st.integers(0, outputs - 1), max_size=40)), np.int64)
    panels, bias = run("FloatGatherColumns", ids, *weights)
    every = run("FloatLinear", rows, *weights, *normed, norm=norm, epsilon=1e-5, relu=0)[0]
    assert panels.shape == (-(-len(ids) // PANEL), inputs * PANEL)
    found = run("FloatPackedLinear", rows, panels, bias, *normed, norm=norm, epsilon=1e-5)[0]
    assert same_bits(found, every[:, ids])


@pytest.mark.parametrize("columns", [1, 60, 5000])
def test_a_product_of_gathered_columns_of_floats_has_its_bits_alone_and_with_any_number_of_threads(
    columns: int,
) -> None:
    draw = np.random.default_rng(7)
    weights, rows = [draw.normal(size=(6000, 64)).astype(np.float32), rows_of(draw, 1, 6000)[0]], rows_of(draw, 9, 64)
    ids = draw.integers(0, 6000, columns)
    one, two = (run("FloatGatherColumns", ids, *weights, threads=threads) for threads in (1, 2))
    assert all(map(same_bits, one, two))
    attributes = {"norm": 0, "epsilon": 0.0}
    together = run("FloatPackedLinear", rows, *two, threads=2, **attributes)[0]
    for place, row in enumerate(rows):
        assert same_bits(run("FloatPackedLinear", row[None], *one, **attributes)[0], together[place : place + 1])


def test_gathered_columns_are_the_same_on_every_run() -> None:
    draw = np.random.default_rng(5)
    given = [np.array([3, 0, 3]), *weights_of(draw, 5, 9)]
    of_floats = [given[0], draw.normal(size=(9, 5)).astype(np.float32), rows_of(draw, 1, 9)[0]]
    for op, inputs in (("GatherColumns", given), ("FloatGatherColumns", of_floats)):
        first, second = run(op, *inputs), run(op, *inputs)
        assert [each.tobytes() for each in first] == [each.tobytes() for each in second], "also what fills up the panel"
