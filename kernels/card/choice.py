"""The likeliest next tokens of each row, of which the logits need not reach memory."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.card.products import _place, _row_tile

NONE: tl.constexpr = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below the key of every value


@triton.jit
def choose(
    x, weight, bias, best, top, total, logits, rows, n16, k16, blocks,
    TOP: tl.constexpr, LOGITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Write the TOP best keys, the largest logit and the sum of exp(logit - largest) of a block of BN columns.

    x: (rows, k16) h; weight: (n16, k16) h; bias: (n16) h; best: (rows, blocks, TOP) l; top, total: (rows, blocks) f
    logits: (rows, n16) f, only written if LOGITS
    Grid: (blocks, rows / BM), rounded up.

    NaN is never among the best, but makes the sum NaN, and with it all log-probabilities of the row.
    """
    block, tile = _place(BM)
    x, logits = _row_tile(x, tile, BM, k16), _row_tile(logits, tile, BM, n16)
    i, j, c = tl.arange(0, BM), block * BN + tl.arange(0, BN), tl.arange(0, BK)
    here, there = i < rows - tile * BM, j < n16
    added = tl.load(bias + j, mask=there, other=0)
    sums = tl.zeros([BM, BN], tl.float32)
    for k in range(0, k16, BK):
        inner = k + c < k16
        a = tl.load(x + i[:, None] * k16 + (k + c)[None, :], mask=here[:, None] & inner[None, :], other=0)
        b = tl.load(weight + j[:, None] * k16 + (k + c)[None, :], mask=there[:, None] & inner[None, :], other=0)
        sums = tl.dot(a, tl.trans(b), sums)
    sums += added.to(tl.float32)[None, :]
    if LOGITS:
        tl.store(logits + i[:, None] * n16 + j[None, :], sums, mask=here[:, None] & there[None, :])
    sums = tl.where(there[None, :], sums, float("-inf"))
    is_number = sums == sums
    largest = tl.max(tl.where(is_number, sums, float("-inf")), 1)
    finite = tl.where(largest == float("-inf"), 0.0, largest)  # a block may have no logit above -inf
    at = (i + tile.to(tl.int64) * BM) * blocks + block
    tl.store(top + at, largest, mask=here)
    tl.store(total + at, tl.sum(tl.exp(sums - finite[:, None]), 1), mask=here)
    key = tl.where(is_number & there[None, :], sortable(sums, j[None, :]), NONE)
    for place in tl.static_range(TOP):
        first = tl.max(key, 1)
        tl.store(best + at * TOP + place, first, mask=here)
        if place + 1 < TOP:
            key = tl.where(key == first[:, None], NONE, key)


@triton.jit
def merge(best, top, total, log_probs, ids, blocks, count, TOP: tl.constexpr, CHUNK: tl.constexpr):
    """Write the likeliest tokens of a row and their log-probabilities, from what choose found in each block.

    best: (R, blocks, TOP) l; top, total: (R, blocks) f; log_probs: (R, count) f; ids: (R, count) l
    count: TOP at most. Grid: (R).

    Blocks are read in chunks, in order. The next TOP of a chunk are the largest of those that remain.
    """
    row = tl.program_id(0).to(tl.int64)
    best += row * blocks * TOP
    top += row * blocks
    total += row * blocks
    block, cell, place = tl.arange(0, CHUNK), tl.arange(0, CHUNK * TOP), tl.arange(0, TOP)
    largest, sum_of_exps = float("-inf"), 0.0
    kept = tl.full([TOP], NONE, tl.int64)
    for start in range(0, blocks, CHUNK):
        there = start + block < blocks
        tops = tl.load(top + start + block, mask=there, other=float("-inf"))
        totals = tl.load(total + start + block, mask=there, other=0)
        key = tl.load(best + start * TOP + cell, mask=start * TOP + cell < blocks * TOP, other=NONE)
        above = tl.maximum(largest, tl.max(tops, 0))
        finite = tl.where(above == float("-inf"), 0.0, above)
        sum_of_exps = sum_of_exps * tl.exp(largest - finite) + tl.sum(totals * tl.exp(tops - finite), 0)
        largest = above
        found = tl.full([TOP], NONE, tl.int64)
        for number in tl.static_range(TOP):
            first = tl.maximum(tl.max(key, 0), tl.max(kept, 0))
            found = tl.where(place == number, first, found)
            key = tl.where(key == first, NONE, key)
            kept = tl.where(kept == first, NONE, kept)
        kept = found
    values = value_of(kept) - largest - tl.log(sum_of_exps)
    tl.store(log_probs + row * count + place, values, mask=place < count)
    tl.store(ids + row * count + place, index_of(kept), mask=place < count)


@triton.jit
def sortable(value, index):
    """Return keys l that order by value f, then by the smaller index i. A value may not be NaN; -0 equals 0."""
    bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def value_of(key):
    """Return the values f of keys, see sortable."""
    bits = (key >> 32).to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def index_of(key):
    """Return the indices l of keys, see sortable; 0 for NONE."""
    return tl.where(key == NONE, 0, 0x7FFFFFFF - (key & 0xFFFFFFFF))
