"""Products with weights, and the norms before them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def linear(
    x, weight, bias, gain, shift, residual, y, kept, rows, n16, k16, epsilon, relu, residual_given, kept_given,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Write y = relu?(x @ weight.T + bias) + residual.

    x: (rows, k16) h; weight: (n16, k16) h; bias: (n16) h; residual and y: (rows, n16) h; gain, shift and kept are
    not used. relu, residual_given, kept_given: 0 or 1
    Grid: (n16 / BN, rows / BM), rounded up.
    """
    column, tile = _place(BM)
    x, y, residual = _row_tile(x, tile, BM, k16), _row_tile(y, tile, BM, n16), _row_tile(residual, tile, BM, n16)
    i, j, c = tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    here, there = i < rows - tile * BM, j < n16
    bias, residual = _ends(bias, residual, i, j, here, there, n16, residual_given)
    sums = tl.zeros([BM, BN], tl.float32)
    for k in range(0, k16, BK):
        inner = k + c < k16
        a = tl.load(x + i[:, None] * k16 + (k + c)[None, :], mask=here[:, None] & inner[None, :], other=0)
        b = tl.load(weight + j[:, None] * k16 + (k + c)[None, :], mask=there[:, None] & inner[None, :], other=0)
        sums = tl.dot(a, tl.trans(b), sums)
    _write(y, sums, bias, residual, i, j, here, there, n16, relu)


@triton.jit
def linear_of_norm(
    x, weight, bias, gain, shift, residual, y, kept, rows, n16, k16, epsilon, relu, residual_given, kept_given,
    LAYER: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write y = relu?(norm(x) @ weight.T + bias) + residual for few rows, and norm(x) to kept if kept_given.

    See linear; gain: (k16) h; shift: (k16) h, only read by the layer norm; kept: (rows, k16) h, which the programs of
    the first columns write; KP: a power of two, k16 at least.
    The time is that of one read of memory: everything is requested before the norm begins, and there is no loop. The
    weights come last, because the compiler waits for them as soon as they are requested. The order of K is still that
    of linear: the products of 16 columns each are added in order.
    """
    column, tile = _place(BM)
    x, y, residual = _row_tile(x, tile, BM, k16), _row_tile(y, tile, BM, n16), _row_tile(residual, tile, BM, n16)
    kept, keeps = _row_tile(kept, tile, BM, k16), (column == 0).to(tl.int32) * kept_given
    i, j, c = tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, KP)
    here, there, inner = i < rows - tile * BM, j < n16, c < k16
    v = tl.load(x + i[:, None] * k16 + c[None, :], mask=here[:, None] & inner[None, :], other=0)
    scale, offset = _gain_and_shift(gain, shift, c, inner, LAYER)
    bias, residual = _ends(bias, residual, i, j, here, there, n16, residual_given)
    b = tl.load(weight + j[:, None] * k16 + c[None, :], mask=there[:, None] & inner[None, :], other=0)
    v = v.to(tl.float32)
    mean, inverse = _statistics(v, inner, k16, epsilon, LAYER)
    a = _normalised(v, mean[:, None], inverse[:, None], scale[None, :], offset[None, :])
    tl.store(kept + i[:, None] * k16 + c[None, :], a, mask=here[:, None] & (c < k16 * keeps)[None, :])
    sums = tl.dot(a, tl.trans(b), tl.zeros([BM, BN], tl.float32))
    _write(y, sums, bias, residual, i, j, here, there, n16, relu)


@triton.jit
def linear_of_norm_in_blocks(
    x, weight, bias, gain, shift, residual, y, kept, rows, n16, k16, epsilon, relu, residual_given, kept_given,
    LAYER: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Write what linear_of_norm does, for many rows: the norm is computed again for each block of K.

    A tile of 32 rows and all its weights exceed the shared memory of most cards.
    """
    column, tile = _place(BM)
    x, y, residual = _row_tile(x, tile, BM, k16), _row_tile(y, tile, BM, n16), _row_tile(residual, tile, BM, n16)
    kept, keeps = _row_tile(kept, tile, BM, k16), (column == 0).to(tl.int32) * kept_given
    i, j, whole = tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, KP)
    here, there = i < rows - tile * BM, j < n16
    v = tl.load(x + i[:, None] * k16 + whole[None, :], mask=here[:, None] & (whole < k16)[None, :], other=0)
    bias, residual = _ends(bias, residual, i, j, here, there, n16, residual_given)
    mean, inverse = _statistics(v.to(tl.float32), whole < k16, k16, epsilon, LAYER)
    sums = tl.zeros([BM, BN], tl.float32)
    for k in range(0, k16, BK):
        c = k + tl.arange(0, BK)
        inner = c < k16
        part = tl.load(x + i[:, None] * k16 + c[None, :], mask=here[:, None] & inner[None, :], other=0)
        b = tl.load(weight + j[:, None] * k16 + c[None, :], mask=there[:, None] & inner[None, :], other=0)
        scale, offset = _gain_and_shift(gain, shift, c, inner, LAYER)
        a = _normalised(part.to(tl.float32), mean[:, None], inverse[:, None], scale[None, :], offset[None, :])
        tl.store(kept + i[:, None] * k16 + c[None, :], a, mask=here[:, None] & (c < k16 * keeps)[None, :])
        sums = tl.dot(a, tl.trans(b), sums)
    _write(y, sums, bias, residual, i, j, here, there, n16, relu)


@triton.jit
def norm(x, gain, shift, y, rows, k16, epsilon, LAYER: tl.constexpr, BLOCK: tl.constexpr):
    """Write the norm of rows of any length.

    x, y: (rows, k16) h; gain, shift: (k16) h, shift only read by the layer norm. Grid: (rows).
    The first block stays in registers, so that a row of up to BLOCK values is read once.
    """
    first = tl.program_id(0).to(tl.int64) * k16
    c = tl.arange(0, BLOCK)
    inner = c < k16
    v = tl.load(x + first + c, mask=inner, other=0).to(tl.float32)
    scale, offset = _gain_and_shift(gain, shift, c, inner, LAYER)
    mean = 0.0
    if LAYER:
        lanes = v
        for start in range(BLOCK, k16, BLOCK):
            lanes += tl.load(x + first + start + c, mask=start + c < k16, other=0).to(tl.float32)
        mean = tl.sum(lanes, 0) / k16
    apart = tl.where(inner, v - mean, 0)
    lanes = apart * apart
    for start in range(BLOCK, k16, BLOCK):
        part = tl.load(x + first + start + c, mask=start + c < k16, other=0).to(tl.float32)
        part = tl.where(start + c < k16, part - mean, 0)
        lanes += part * part
    inverse = tl.rsqrt(tl.sum(lanes, 0) / k16 + epsilon)
    tl.store(y + first + c, _normalised(v, mean, inverse, scale, offset), mask=inner)
    for start in range(BLOCK, k16, BLOCK):
        at = start + c
        scale, offset = _gain_and_shift(gain, shift, at, at < k16, LAYER)
        part = tl.load(x + first + at, mask=at < k16, other=0).to(tl.float32)
        tl.store(y + first + at, _normalised(part, mean, inverse, scale, offset), mask=at < k16)


@triton.jit
def _place(BM: tl.constexpr):
    """Return the block of columns and the tile of rows of a program.

    With several tiles, those of the same columns follow each other: they read the same weights from the L2 cache.
    """
    column, tile = tl.program_id(0), tl.program_id(1)
    if BM > 16:
        number, tiles = column + tile * tl.num_programs(0), tl.num_programs(1)
        column, tile = number // tiles, number % tiles
    return column, tile


@triton.jit
def _row_tile(pointer, tile, BM: tl.constexpr, width):
    """Return where the rows of a tile begin, which may be beyond 2^31 values."""
    return pointer + tile.to(tl.int64) * BM * width


@triton.jit
def _ends(bias, residual, i, j, here, there, n16, residual_given):
    """Return the bias (BN) h and the residual (BM, BN) h, 0 without one.

    They are read before the product, to arrive with the weights, and widened where they are used: the compiler waits
    for a value where it is widened.
    """
    wanted = here[:, None] & (j < n16 * residual_given)[None, :]
    bias = tl.load(bias + j, mask=there, other=0)
    return bias, tl.load(residual + i[:, None] * n16 + j[None, :], mask=wanted, other=0)


@triton.jit
def _write(y, sums, bias, residual, i, j, here, there, n16, relu):
    """Write sums (BM, BN) with bias, ReLU, which keeps NaN, and residual."""
    sums += bias.to(tl.float32)[None, :]
    least = tl.where(relu != 0, 0.0, float("-inf"))
    sums = tl.where(sums < least, least, sums)
    sums += residual.to(tl.float32)
    tl.store(y + i[:, None] * n16 + j[None, :], sums.to(tl.float16), mask=here[:, None] & there[None, :])


@triton.jit
def _statistics(v, inner, k16, epsilon, LAYER: tl.constexpr):
    """Return the mean, 0 for the RMS norm, and the inverse deviation of rows v (BM, KP) f, where inner (KP)."""
    mean = tl.zeros([v.shape[0]], tl.float32)
    if LAYER:
        mean = tl.sum(v, 1) / k16
        v = tl.where(inner[None, :], v - mean[:, None], 0)
    return mean, tl.rsqrt(tl.sum(v * v, 1) / k16 + epsilon)


@triton.jit
def _gain_and_shift(gain, shift, c, inner, LAYER: tl.constexpr):
    """Return gain and shift h at columns c; a shift of 0 for the RMS norm."""
    scale = tl.load(gain + c, mask=inner, other=0)
    if LAYER:
        return scale, tl.load(shift + c, mask=inner, other=0)
    return scale, tl.zeros_like(scale)


@triton.jit
def _normalised(v, mean, inverse, scale, offset):
    """Return the norm of values f as h; scale and offset: h."""
    return ((v - mean) * inverse * scale.to(tl.float32) + offset.to(tl.float32)).to(tl.float16)
