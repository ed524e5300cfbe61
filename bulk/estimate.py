"""What a run would take: its rows, and its tokens and time by translating a sample."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from lingon.bulk.planning import Plan
from lingon.bulk.shards import Readers
from lingon.bulk.translating import Translate

SAMPLES = 8  # shards that rows are taken from, spread over the plan
SAMPLE_ROWS = 250  # of each of them


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would take; tokens and seconds are estimates from `sampled` rows, of which some had `errors`."""

    rows: int
    files: int
    shards: int
    sampled: int
    errors: int
    source_tokens: float
    target_tokens: float
    seconds: float


def estimate(plan: Plan, translate: Translate) -> Estimate:
    """Translate a sample of a plan, after a first part of it that warms up; nothing is written."""
    step = max(1, -(-len(plan.shards) // SAMPLES))
    sampled = errors = source_tokens = target_tokens = 0
    seconds = 0.0
    with Readers(plan) as readers:
        for shard in plan.shards[::step]:
            piece = replace(shard.piece, rows=min(shard.piece.rows, SAMPLE_ROWS))
            rows = readers.rows(replace(shard, piece=piece))
            values = rows.values(translate.columns.text)
            languages = rows.values(translate.columns.language) if translate.columns.language else None
            if not sampled:
                translate.cells(values[:50], languages and languages[:50])
            begin = time.perf_counter()
            cells, counts = translate.cells(values, languages)
            seconds += time.perf_counter() - begin
            sampled, errors = sampled + len(cells), errors + sum(cell.error is not None for cell in cells)
            source_tokens += counts.source_tokens
            target_tokens += counts.target_tokens
    scale = plan.rows / max(1, sampled)
    return Estimate(
        rows=plan.rows,
        files=len(plan.files),
        shards=len(plan.shards),
        sampled=sampled,
        errors=errors,
        source_tokens=source_tokens * scale,
        target_tokens=target_tokens * scale,
        seconds=seconds * scale,
    )
