"""What follows the choice of candidates: one step of greedy search or of beam search, in place."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.card.choice import NONE, index_of, sortable


@triton.jit
def greedy_step(
    ids, log_probs, token_ids, positions, history, step, new_token_ids, new_positions, new_step,
    rows, candidates, steps, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take the likeliest token of each row.

    ids: (R, candidates) l, log_probs likewise f, likeliest first; token_ids, which are not read, and positions: (R) l
    history: (steps, R, 2) f, of which step (1) l is the entry to write: token and log-probability of each row
    new_token_ids, new_positions, new_step: what the next step reads, maybe in the memory of those of this step
    Grid: (1), because the step may change in place, after all rows.
    """
    now = tl.load(step)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        here = row < rows
        token = tl.load(ids + row * candidates, mask=here, other=0)
        log_prob = tl.load(log_probs + row * candidates, mask=here, other=0)
        position = tl.load(positions + row, mask=here, other=0)
        entry = history + (now * rows + row) * 2
        tl.store(new_token_ids + row, token, mask=here)
        tl.store(new_positions + row, position + 1, mask=here)
        tl.store(entry, token.to(tl.float32), mask=here)
        tl.store(entry + 1, log_prob, mask=here)
    tl.debug_barrier()  # all warps have read the step
    tl.store(new_step, (now + 1) % steps)


@triton.jit
def advance_step(step, new_step, steps):
    """Write the index of the next step (1) l, 0 after the last. It follows beam_step, whose programs all read step."""
    tl.store(new_step, (tl.load(step) + 1) % steps)


@triton.jit
def beam_step(
    ids, log_probs, token_ids, positions, rows, totals, table, log_ids, log_values, step, new_token_ids, new_positions,
    sentences, beams, candidates, capacity, steps, end, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take one step of beam search in each sentence: that of kernels/beams.cpp, to the last bit.

    ids: (S * beams, candidates) l, log_probs likewise f, by row; candidates: at least 2, at most 2 * B
    token_ids, positions: (S * beams) l, by row; the positions of a sentence are equal
    rows: (S, beams) l, the row of each rank within its sentence; totals: (S, beams) f, by rank
    table: (S * beams, capacity) i, how many rows further each position of the past is
    log_ids, log_values: (steps, S * beams, candidates) l and f, of which step (1) l is the entry to write
    new_token_ids, new_positions: what the next step reads, maybe in the memory of those of this step
    end: the token that ends a hypothesis; B: a power of two, beams at least. Grid: (S).

    There is no sort: the place of a continuation is the number of those that come before it. A sentence with NaN among
    its candidates is copied to the logs and stays as it is.
    """
    C: tl.constexpr = 2 * B  # candidates of a row, and continuations that are ranked
    sentence = tl.program_id(0)
    ids += sentence * beams * candidates
    log_probs += sentence * beams * candidates
    token_ids += sentence * beams
    positions += sentence * beams
    new_token_ids += sentence * beams
    new_positions += sentence * beams
    rows += sentence * beams
    totals += sentence * beams
    table += sentence.to(tl.int64) * beams * capacity
    now = tl.load(step)
    past = tl.load(positions)

    cell, size = tl.arange(0, B * C), beams * candidates
    inside = cell < size
    logged = (now * sentences + sentence) * size + cell
    log_prob = tl.load(log_probs + cell, mask=inside, other=0)
    tl.store(log_ids + logged, tl.load(ids + cell, mask=inside, other=0), mask=inside)
    tl.store(log_values + logged, log_prob, mask=inside)
    rank = tl.arange(0, B)
    live = rank < beams
    if tl.sum((log_prob != log_prob).to(tl.int32), 0) > 0:
        tl.store(new_token_ids + rank, tl.load(token_ids + rank, mask=live), mask=live)
        tl.store(new_positions + rank, tl.load(positions + rank, mask=live), mask=live)
        return

    key = _continuations(log_probs, rows, totals, cell, size, candidates)
    before = tl.zeros([B * C], tl.int32)
    CHUNK: tl.constexpr = 32 if B * C > 32 else B * C
    for start in range(0, size, CHUNK):  # computed again, because a vector has no parts
        other = _continuations(log_probs, rows, totals, start + tl.arange(0, CHUNK), size, candidates)
        before += tl.sum((other[None, :] > key[:, None]).to(tl.int32), 1)
    place = tl.arange(0, C)
    ranked = tl.max(tl.where(before[:, None] == place[None, :], key[:, None], NONE), 0)

    # The best that do not end survive, then those that end.
    index = index_of(ranked).to(tl.int32)
    ends = (_token(ids, rows, index, candidates) == end).to(tl.int32)
    order = place + C * ends + 2 * C * (place >= 2 * beams).to(tl.int32)
    survives_as = tl.sum((order[None, :] < order[:, None]).to(tl.int32), 1)
    chosen = tl.max(tl.where(survives_as[:, None] == rank[None, :], index[:, None], 0), 0)
    parent = tl.where(live, chosen // candidates, -1)
    token = _token(ids, rows, chosen, candidates)
    parent_row = tl.load(rows + parent, mask=live, other=0)
    own = log_probs + parent_row * candidates + chosen % candidates
    total = tl.load(totals + parent, mask=live, other=0) + tl.load(own, mask=live, other=0)

    # The first child of a parent has its row, the others those of hypotheses without children, in order of rank.
    same = (parent[:, None] == parent[None, :]) & live[:, None]
    earlier = rank[None, :] < rank[:, None]
    is_first = tl.sum((same & earlier).to(tl.int32), 1) == 0
    moves = (live & (is_first == 0)).to(tl.int32)
    moved_before = tl.sum(tl.where(earlier, moves[None, :], 0), 1)
    childless = (live & (tl.sum((parent[None, :] == rank[:, None]).to(tl.int32), 1) == 0)).to(tl.int32)
    childless_before = tl.sum(tl.where(earlier, childless[None, :], 0), 1)
    is_taken = (moved_before[:, None] == childless_before[None, :]) & (childless[None, :] > 0)
    old_row = tl.load(rows + rank, mask=live, other=0)
    taken = tl.sum(tl.where(is_taken, old_row[None, :], 0), 1)
    row = tl.where(moves > 0, taken, parent_row)

    tl.debug_barrier()  # all warps have read what changes below
    for start in range(0, past.to(tl.int32) + 1, BLOCK):  # the position of this step too
        at = start + tl.arange(0, BLOCK)
        copied = (moves > 0)[:, None] & (at <= past)[None, :]
        further = tl.load(table + (parent_row * capacity)[:, None] + at[None, :], mask=copied, other=0)
        further += (parent_row - row).to(tl.int32)[:, None]
        tl.store(table + (row * capacity)[:, None] + at[None, :], further, mask=copied)
    tl.store(rows + rank, row, mask=live)
    tl.store(totals + rank, total, mask=live)
    tl.store(new_token_ids + row, token, mask=live)
    tl.store(new_positions + rank, past + 1 + tl.zeros([B], tl.int64), mask=live)


@triton.jit
def _continuations(log_probs, rows, totals, cell, size, candidates):
    """Return the keys of continuations `cell` = rank * candidates + candidate; NONE beyond size."""
    inside = cell < size
    rank = cell // candidates
    row = tl.load(rows + rank, mask=inside, other=0)
    log_prob = tl.load(log_probs + row * candidates + cell % candidates, mask=inside, other=0)
    total = tl.load(totals + rank, mask=inside, other=0) + log_prob
    return tl.where(inside, sortable(total, cell), NONE)


@triton.jit
def _token(ids, rows, index, candidates):
    """Return the tokens l of continuations."""
    return tl.load(ids + tl.load(rows + index // candidates) * candidates + index % candidates)
