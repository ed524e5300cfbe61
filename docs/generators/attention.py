"""The comparison of the attention systems: tables and chart of the newest results of `lingon bench attention`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generators.markdown import code, table
from lingon.bench.attention.report import HEAD, buckets_of, cells, curves

RESULTS = Path(__file__).parents[2] / "bench" / "results"
NONE_YET = "No figures yet: `lingon bench attention` has run as a trial only."


def systems(results: Path = RESULTS) -> str:
    """A table of the systems for each corpus; a sentence without results."""
    found = _newest(results)
    if found is None:
        return NONE_YET
    parts = [f"`bench/results/{found['file']}`, measured on {found['machine']}:"]
    for corpus in dict.fromkeys(row["corpus"] for row in found["rows"]):
        own = [row for row in found["rows"] if row["corpus"] == corpus]
        steps, tokens = own[0]["training_steps"], own[0]["training_target_tokens"]
        parts.append(f"{code(corpus)}, {own[0]['set']}, after {steps:,} updates on {tokens:,} target tokens:")
        parts.append(table(("system", *HEAD), [(row["system"], *cells(row)) for row in own]))
    return "\n\n".join([*parts, *(f"- {line}" for line in found["left_out"])])


def lengths(results: Path = RESULTS) -> str:
    """The chart of BLEU by the length of the source, and its table; nothing without results."""
    found = _newest(results)
    if found is None or not found["lengths"]:
        return ""
    rows = found["lengths"]
    buckets = buckets_of(rows)
    chart = found["file"].replace("attention.json", "bleu-by-length.svg")
    head = ("system", "trained up to", *(f"{first}-{last} words" for first, last in buckets))
    lines = [
        (system, f"{words} words", *(f"{curve[each]:.1f}" if each in curve else "-" for each in buckets))
        for (system, words), curve in curves(rows).items()
    ]
    return f"![BLEU by the length of the source](../../bench/results/{chart})\n\n{table(head, lines)}"


def _newest(results: Path) -> dict[str, Any] | None:
    """The newest results with the name of their file."""
    path = max(results.glob("*-attention.json"), default=None)
    return None if path is None else {**json.loads(path.read_text(encoding="utf-8")), "file": path.name}
