"""Rows of embeddings, and the memory of a running batch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def embed(ids, pieces, positions, table, y, dim16, scale, positions_given, BLOCK: tl.constexpr):
    """Write y = scale * piece + position.

    ids: (R) l; pieces: (vocab, dim16) h; positions: (R) l; table: (length, dim16) h; y: (R, dim16) h
    positions_given: 0 if positions and table are not there. Grid: (R, dim16 / BLOCK), rounded up.
    """
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = d < dim16
    position = tl.load(positions + row, mask=positions_given != 0, other=0)
    piece = tl.load(pieces + tl.load(ids + row) * dim16 + d, mask=inner, other=0).to(tl.float32)
    added = tl.load(table + position * dim16 + d, mask=d < dim16 * positions_given, other=0).to(tl.float32)
    tl.store(y + row * dim16 + d, (piece * scale + added).to(tl.float16), mask=inner)


@triton.jit
def place_memory(rows, targets, keys, values, heads, size, width, stride, offset, BLOCK: tl.constexpr):
    """Write one head of the key and the value of a token to the memory of its slot.

    rows: (T, stride) h, the keys of the layer at offset, its values heads * size further
    targets: (n, 4) i: row of T, slot, position, 0
    keys: (S, heads, size, width) h; values: (S, heads, width, size) h; size is at most BLOCK. Grid: (n, heads).
    """
    target, head = targets + tl.program_id(0) * 4, tl.program_id(1)
    row, slot, position = tl.load(target).to(tl.int64), tl.load(target + 1).to(tl.int64), tl.load(target + 2)
    d = tl.arange(0, BLOCK)
    inner = d < size
    own = rows + row * stride + offset + head * size + d
    first = (slot * heads + head) * size * width
    key = tl.load(own, mask=inner, other=0)
    value = tl.load(own + heads * size, mask=inner, other=0)
    tl.store(keys + first + d * width + position, key, mask=inner)
    tl.store(values + first + position * size + d, value, mask=inner)
