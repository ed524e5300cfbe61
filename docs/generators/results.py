"""Tables of recorded results: the comparison of attention systems, and the engines that confirm imported models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

from docs.generators.reference import code, plain, table
from lingon.bench.attention_report import HEAD, buckets_of, cells, curves

RESULTS = Path(__file__).parents[2] / "bench" / "results"
NONE_YET = "No figures yet: `lingon bench attention` has run as a trial only."


def systems(results: Path = RESULTS) -> str:
    """Return a table of the systems for each corpus, or a sentence if there are no results."""
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
    """Return the chart of BLEU by the length of the source, and its table; nothing without results."""
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
    """Return the newest results with the name of their file."""
    path = max(results.glob("*-attention.json"), default=None)
    return None if path is None else {**json.loads(path.read_text(encoding="utf-8")), "file": path.name}


CONFIRMED = Path(__file__).parent / "reference_engines"


class Row(TypedDict):
    """The number of translations that an engine and an imported model of one form have in common.

    reference_engine: name and version; empty where none computes the form, then form says why
    """

    family: str
    form: str
    reference_engine: str
    search: str
    equal: int
    of: int


def reference_engines() -> str:
    """Return a table of the forms, a line for all with the same results. Forms that no engine confirms are last."""
    rows: list[Row] = [row for path in sorted(CONFIRMED.glob("*.json")) for row in json.loads(path.read_text("utf-8"))]
    results: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        found = results.setdefault((row["family"], row["form"], row["reference_engine"]), [])
        if row["reference_engine"]:
            found.append(f"{row['search']}: {row['equal']} of {row['of']}")
    forms: dict[tuple[str, str, str], list[str]] = {}
    for (family, form, engine), found in results.items():
        forms.setdefault((family, engine, "; ".join(found)), []).append(form)
    lines = [
        [plain(family), plain("; ".join(names)), plain(engine) or "not confirmed", plain(found)]
        for (family, engine, found), names in sorted(forms.items(), key=lambda each: (not each[0][1], each[0][0]))
    ]
    return table(["files of", "forms", "engine", "same translations"], lines)
