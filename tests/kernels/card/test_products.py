"""linear and norm in Triton's interpreter, beside NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.support.card_kernels import Argument, Interpreter, grid_of, halves, normalised
from tests.support.card_launcher import ROWS, moved
from tests.support.native_operators import same_bits

pytestmark = pytest.mark.triton
TILES = {"m16": (16, 16), "m32n32": (32, 32), "m32": (32, 64)}
"""By the suffix of a kernel: rows and columns of a tile."""

KERNELS = [("none", 0), ("layer", 256), ("rms", 256), ("layer", 512), ("rms", 512), ("layer", 1024), ("rms", 1024)]
SHAPES = [(1, 16, 0), (13, 80, 16), (35, 144, 48)]
"""Rows, columns, and by how much the rows are shorter than the width of the kernel."""

kernels = pytest.mark.parametrize(("norm", "width"), KERNELS)
tiles = pytest.mark.parametrize("tile", TILES)
PAIRED = [(*kernel, list(TILES)[number % len(TILES)]) for number, kernel in enumerate(KERNELS)]
"""Every kernel with one of the tiles, and so both ways to compute a norm: at once and in blocks of K."""

EPSILON = 1e-5


@dataclass(frozen=True)
class Product:
    """The inputs of a product; residual: None without one."""

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    gain: np.ndarray
    shift: np.ndarray
    residual: np.ndarray | None
    relu: int = 0

    def rows(self, chosen: Sequence[int]) -> Product:
        """The same product of some rows."""
        residual = None if self.residual is None else self.residual[chosen]
        return replace(self, x=self.x[chosen], residual=residual)


def drawn(rows: int, columns: int, inner: int, *, relu: int = 0, residual: bool = True) -> Product:
    return Product(
        halves(rows, inner, seed=1) + np.float16(2),  # a mean that is not 0 shows in the deviation
        halves(columns, inner, seed=2, scale=inner**-0.5),
        halves(columns, seed=3),
        halves(inner, seed=4),
        halves(inner, seed=5),
        halves(rows, columns, seed=6) if residual else None,
        relu,
    )


def compute(
    interpreter: Interpreter,
    norm: str,
    width: int,
    tile: str,
    given: Product,
    kept: np.ndarray | None = None,
    *,
    keeps: bool = False,
) -> list[np.ndarray]:
    """Return the product, and `kept` if there is one; keeps: whether the kernel writes it."""
    (rows, inner), columns = given.x.shape, len(given.weight)
    found = np.full((rows, columns), np.nan, np.float16)
    arrays: list[Argument] = [
        *(given.x, given.weight, given.bias),
        given.gain if norm != "none" else None,
        given.shift if norm == "layer" else None,
        given.residual,
        found,
        kept,
    ]
    name = f"linear_{norm}" + (f"_k{width}" if width else "") + f"_{tile}"
    scalars = rows, columns, inner, EPSILON, given.relu, int(given.residual is not None), int(keeps)
    after = interpreter.run(name, grid_of(rows, columns, *TILES[tile]), *arrays, *scalars)
    return after[-1:] if kept is None else after[-2:]


def norm_of(interpreter: Interpreter, norm: str, x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return what the kernel of a norm alone writes."""
    given = gain, shift if norm == "layer" else None
    return interpreter.run(f"norm_{norm}", (len(x),), x, *given, np.zeros_like(x), *x.shape, EPSILON)[-1]


def expected(norm: str, given: Product) -> np.ndarray:
    """The product in float64, of rows that a norm rounds to float16."""
    with np.errstate(all="ignore"):
        x = normalised(given.x, norm, given.gain, given.shift, EPSILON).astype(np.float16)
        sums = x.astype(np.float64) @ given.weight.T.astype(np.float64) + given.bias
        sums = np.where((sums < 0) & (given.relu == 1), 0, sums)
        return sums if given.residual is None else sums + given.residual


@kernels
@tiles
def test_a_product_is_that_in_float64(interpreter: Interpreter, norm: str, width: int, tile: str) -> None:
    """Every kernel, and every tile, has each of the shapes once."""
    rows, columns, short = SHAPES[(KERNELS.index((norm, width)) + list(TILES).index(tile)) % len(SHAPES)]
    relu, residual = rows % 3 == 1, rows > 1
    given = drawn(rows, columns, (width or 528) - short, relu=int(relu), residual=residual)
    (found,), sums = compute(interpreter, norm, width, tile, given), expected(norm, given)
    # A value of the norm that lies between two float16 may be rounded to the other one.
    assert np.abs(found - sums).max() < (4e-3 if norm == "none" else 1e-2) * max(1, np.abs(sums).max() / 4)


@pytest.mark.parametrize(("norm", "width", "tile"), [*PAIRED, ("none", 0, "m32n32"), ("none", 0, "m32")])
def test_a_row_of_nan_or_infinity_changes_no_other_row(
    interpreter: Interpreter, norm: str, width: int, tile: str
) -> None:
    given = drawn(9, 32, width or 64, relu=1, residual=False)
    (before,) = compute(interpreter, norm, width, tile, given)
    given.x[3, 5], given.x[7, 6] = np.nan, np.inf
    (after,) = compute(interpreter, norm, width, tile, given)
    others = [0, 1, 2, 4, 5, 6, 8]
    assert same_bits(after[others], before[others])
    assert np.isnan(after[3]).all(), "a ReLU keeps NaN"
    assert not np.isfinite(after[7]).all()


@tiles
def test_sums_beyond_float16_are_infinite_and_those_within_are_exact(interpreter: Interpreter, tile: str) -> None:
    largest = np.finfo(np.float16).max
    x, weight = np.full((2, 32), largest), np.zeros((48, 32), np.float16)
    weight[0], weight[1, ::2], weight[1, 1::2], weight[2, 0] = 1, 1, -1, 1
    zeros = np.zeros(48, np.float16)
    given = Product(x, weight, zeros, zeros, zeros, None)
    (found,) = compute(interpreter, "none", 0, tile, given)
    assert found[:, :3].tolist() == [[np.inf, 0, largest]] * 2


@pytest.mark.parametrize(("norm", "width", "tile"), PAIRED[1:])
def test_a_product_keeps_the_rows_that_the_norm_alone_would_write(
    interpreter: Interpreter, norm: str, width: int, tile: str
) -> None:
    given = drawn(2 * TILES[tile][0] + 3, 80, width - 16)
    product, kept = compute(interpreter, norm, width, tile, given, np.full_like(given.x, np.nan), keeps=True)
    assert same_bits(kept, norm_of(interpreter, norm, given.x, given.gain, given.shift))
    assert same_bits(product, *compute(interpreter, norm, width, tile, given))
    read_again = replace(given, x=kept)
    assert same_bits(product, *compute(interpreter, "none", 0, tile, read_again))


@pytest.mark.parametrize(("norm", "width", "tile"), PAIRED[3:])
def test_a_product_that_keeps_no_rows_writes_none(interpreter: Interpreter, norm: str, width: int, tile: str) -> None:
    given = drawn(3, 32, width)
    _, kept = compute(interpreter, norm, width, tile, given, np.full_like(given.x, np.nan))
    assert np.isnan(kept).all()


@pytest.mark.parametrize("norm", ["layer", "rms"])
@tiles
def test_a_norm_of_the_largest_values_is_finite(interpreter: Interpreter, norm: str, tile: str) -> None:
    given = drawn(3, 16, 512, residual=False)
    largest = np.finfo(np.float16).max
    given.x[0], given.x[1] = largest, np.where(np.arange(512) % 2, largest, -largest)
    (found,) = compute(interpreter, norm, 512, tile, given)
    assert np.isfinite(found).all()
    assert found == pytest.approx(expected(norm, given), abs=2e-2)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("inner", [16, 1008, 1024, 1040, 3088])
def test_the_norm_of_rows_of_any_length(interpreter: Interpreter, norm: str, inner: int) -> None:
    x, gain, shift = halves(5, inner, seed=1, scale=3) + np.float16(2), halves(inner, seed=2), halves(inner, seed=3)
    x[2], x[3, 7] = 0, np.nan
    found, others = norm_of(interpreter, norm, x, gain, shift), [0, 1, 2, 4]
    values = normalised(x[others], norm, gain, shift, EPSILON)
    assert found[others] == pytest.approx(values, abs=4e-3 * np.abs(values).max())
    assert np.isnan(found[3]).all()
    assert same_bits(norm_of(interpreter, norm, x[4:], gain, shift), found[4:])


@kernels
def test_a_row_has_the_same_bits_among_any_number_of_rows(interpreter: Interpreter, norm: str, width: int) -> None:
    """The host takes m16 for up to 16 rows. For more it depends on the columns which other tile it takes."""
    given = drawn(ROWS[-1], 48, (width or 272) - 16)
    (whole,) = compute(interpreter, norm, width, "m32", given)
    for rows in ROWS:
        for tile in ("m16",) if rows <= 16 else ("m32n32", "m32"):
            for chosen in (np.arange(rows), moved(rows)):
                (found,) = compute(interpreter, norm, width, tile, given.rows(chosen))
                assert same_bits(found, whole[chosen]), f"{rows} rows, {tile}"
