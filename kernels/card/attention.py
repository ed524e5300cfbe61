"""Attention of steps, of queries to a memory, and of encoders, with a softmax over blocks of positions."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def step_attention(
    packed, keys, values, table, positions, y, heads, capacity, scale, D: tl.constexpr, BP: tl.constexpr
):
    """Attend from each row to its past and to itself, and write the new key and value of the row.

    packed: (R, 3 * heads * D) h, query, key and value; keys, values: (R, heads, capacity, D) h
    table: (R, capacity) i; position p of row r is in the caches of row r + table[r, p]
    positions: (R) l, the length of each past; y: (R, heads * D) h
    Grid: (R, heads).

    The new key and value are read from packed. So no program reads what another one writes, as long as tables name no
    cell at the position of this step.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, p = tl.arange(0, D), tl.arange(0, BP)
    dim = heads * D
    own = packed + row * 3 * dim + head * D + d
    query, new_key, new_value = tl.load(own), tl.load(own + dim), tl.load(own + 2 * dim)
    table += row * capacity
    further = tl.load(table + p, mask=p < capacity, other=0)  # does not wait for the position, unlike the past
    past = tl.load(positions + row).to(tl.int32)
    query = query.to(tl.float32) * (scale * LOG2_E)
    top, total, mixed = float("-inf"), 0.0, tl.zeros([D], tl.float32)
    for start in range(0, past, BP):
        at = start + p
        seen = at < past
        cells = ((((row + further) * heads + head) * capacity + at) * D)[:, None] + d[None, :]
        key = tl.load(keys + cells, mask=seen[:, None], other=0)
        value = tl.load(values + cells, mask=seen[:, None], other=0)
        further = tl.load(table + at + BP, mask=at + BP < capacity, other=0)
        scores = tl.where(seen, tl.sum(key.to(tl.float32) * query[None, :], 1), float("-inf"))
        above = tl.maximum(top, tl.max(scores, 0))
        weights, fade = tl.exp2(scores - above), tl.exp2(top - above)
        total = total * fade + tl.sum(weights, 0)
        mixed = mixed * fade + tl.sum(weights[:, None] * value.to(tl.float32), 0)
        top = above
    # Its own key comes last, because the past does not have to wait for it.
    score = tl.sum(query * new_key.to(tl.float32), 0)
    above = tl.maximum(top, score)
    weight, fade = tl.exp2(score - above), tl.exp2(top - above)
    total = total * fade + weight
    mixed = mixed * fade + weight * new_value.to(tl.float32)
    cell = ((row * heads + head) * capacity + past) * D + d
    tl.store(keys + cell, new_key)
    tl.store(values + cell, new_value)
    tl.store(y + row * dim + head * D + d, (mixed / total).to(tl.float16))


@triton.jit
def cross_attention(query, keys, values, lengths, y, heads, beams, width16, scale, D: tl.constexpr, BP: tl.constexpr):
    """Attend from all rows of a sentence to its memory.

    query, y: (S * beams, heads * D) h; keys: (S, heads, D, width16) h; values: (S, heads, width16, D) h
    lengths: (S) l. Grid: (S, heads, beams / 16), rounded up.

    The first block is read before the length is known, because most sources have no other one. Cells after the length
    hold anything: their values are replaced by 0, and the scores of their keys by -inf. Keys are read up to the width,
    of which 16 is a divisor, because a length would divide them into reads of 16 bits.
    """
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beam, d, p = tl.program_id(2) * 16 + tl.arange(0, 16), tl.arange(0, D), tl.arange(0, BP)
    dim = heads * D
    keys += (sentence * heads + head) * D * width16
    values += (sentence * heads + head) * D * width16
    inside = p < width16
    key = tl.load(keys + d[:, None] * width16 + p[None, :], mask=inside[None, :], other=0)
    value = tl.load(values + p[:, None] * D + d[None, :], mask=inside[:, None], other=0)
    place = sentence * beams * dim + head * D + beam[:, None] * dim + d[None, :]
    own = tl.load(query + place, mask=(beam < beams)[:, None], other=0)
    length = tl.load(lengths + sentence).to(tl.int32)
    seen = p < length
    value = tl.where(seen[:, None], value, 0)
    top, total, mixed = _begin(16, D)
    top, total, mixed = _attend(own, key, value, seen, scale, top, total, mixed)
    for start in range(BP, length, BP):
        at = start + p
        seen = at < length
        key = tl.load(keys + d[:, None] * width16 + at[None, :], mask=(at < width16)[None, :], other=0)
        value = tl.load(values + at[:, None] * D + d[None, :], mask=seen[:, None], other=0)
        top, total, mixed = _attend(own, key, value, seen, scale, top, total, mixed)
    tl.store(y + place, (mixed / total[:, None]).to(tl.float16), mask=(beam < beams)[:, None])


@triton.jit
def self_attention(packed, tiles, y, heads, scale, D: tl.constexpr, BP: tl.constexpr):
    """Attend from the tokens of sentences to all tokens of the same sentence.

    packed: (T, 3 * heads * D) h, query, key and value; y: (T, heads * D) h
    tiles: (n, 4) i: the first row of up to 16 queries, their number, the first row of the sentence, its length
    Grid: (n, heads).
    """
    tile, head = tiles + tl.program_id(0) * 4, tl.program_id(1)
    first, count = tl.load(tile).to(tl.int64), tl.load(tile + 1)
    begin, length = tl.load(tile + 2).to(tl.int64), tl.load(tile + 3)
    i, d, p = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, BP)
    dim = heads * D
    real = (i < count)[:, None]
    own = tl.load(packed + first * 3 * dim + head * D + i[:, None] * 3 * dim + d[None, :], mask=real, other=0)
    keys = packed + begin * 3 * dim + dim + head * D
    top, total, mixed = _begin(16, D)
    for start in range(0, length, BP):
        at = start + p
        seen = at < length
        cells = at[:, None] * 3 * dim + d[None, :]
        key = tl.load(keys + cells, mask=seen[:, None], other=0)
        value = tl.load(keys + dim + cells, mask=seen[:, None], other=0)
        top, total, mixed = _attend(own, tl.trans(key), value, seen, scale, top, total, mixed)
    place = first * dim + head * D + i[:, None] * dim + d[None, :]
    tl.store(y + place, (mixed / total[:, None]).to(tl.float16), mask=real)


@triton.jit
def _begin(QUERIES: tl.constexpr, D: tl.constexpr):
    """Return the state of a softmax that has seen nothing: largest score, sum of weights, mixed values."""
    top = tl.full([QUERIES], float("-inf"), tl.float32)
    return top, tl.zeros([QUERIES], tl.float32), tl.zeros([QUERIES, D], tl.float32)


@triton.jit
def _attend(query, key, value, seen, scale, top, total, mixed):
    """Return the state of a softmax after a block of positions.

    query: (16, D) h; key: (D, BP) h; value: (BP, D) h; seen: (BP); top, total: (16) f; mixed: (16, D) f
    """
    scores = tl.where(seen[None, :], tl.dot(query, key) * (scale * LOG2_E), float("-inf"))
    above = tl.maximum(top, tl.max(scores, 1))
    weights, fade = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
    total = total * fade + tl.sum(weights, 1)
    return above, total, tl.dot(weights.to(tl.float16), value, mixed * fade[:, None])
