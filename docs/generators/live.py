"""Tables about live translation: quality and lag of the policies, many speakers, and a talk as it was translated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.generators.reference import plain, table
from docs.generators.results import RESULTS
from lingon.bench.live.lagging import erased
from lingon.bench.live.quality import MOST_BLEU_LOST, MOST_LAG_MS, best_within_lag
from lingon.bench.live.run import MOST_P99_MS
from scripts.live_talk import Record, read_record

NAMES = {"local_agreement": "local agreement", "wait_k": "wait-k", "alignment": "alignment", "sentences": "sentences"}
WITHOUT_STATES = "without-states"


def quality(results: Path = RESULTS) -> str:
    """Return the newest picture, and the table of the policies: for each set BLEU, seconds behind and flicker."""
    found = _newest(results, "live-quality")
    sets = [each["set"] for each in found["sets"]]
    picture = found["file"].replace(".json", ".svg")
    head = ["policy", "lag", *(f"{name}: {what}" for name in sets for what in ("BLEU", "seconds", "erased"))]
    own = [row for row in found["rows"] if row["set"] == sets[0]]
    lines = [[_name(row), str(row.get("lag_words") or ""), *_cells(found["rows"], sets, row)] for row in own]
    return "\n\n".join(
        [
            f"![BLEU and erased words against seconds behind the speaker](../../bench/results/{picture})",
            f"`bench/results/{found['file']}`, {plain(found['model'])}: {_spoken(found)}.",
            table(head, lines),
            "\n".join(f"- {_best(found['rows'], name)}" for name in sets),
        ]
    )


def states(results: Path = RESULTS) -> str:
    """Return a table of policies with the states of the decoder kept, and decoded again for each update."""
    kept, again = (_newest(results, name) for name in ("live-quality", f"live-quality-{WITHOUT_STATES}"))
    rows = {(row["set"], row["policy"], row.get("lag_words")): row for row in kept["rows"]}
    head = ["set", "policy", "lag", *(f"{what}, {how}" for what in ("BLEU", "seconds") for how in ("kept", "again"))]
    lines = []
    for row in again["rows"]:
        same = rows.get((row["set"], row["policy"], row.get("lag_words")))
        if same is not None and "laal_ms" in row:
            figures = [f"{each['bleu']:.1f}" for each in (same, row)] + [_seconds(each) for each in (same, row)]
            lines.append([row["set"], _name(row), str(row["lag_words"]), *figures])
    return f"`bench/results/{again['file']}`:\n\n{table(head, lines)}"


def load(results: Path = RESULTS) -> str:
    """Return a table of many speakers at once."""
    found = _newest(results, "live-load")
    head = ["set", "speakers", "words/s", "p50", "p95", f"p99, bar {MOST_P99_MS:.0f} ms", "cores of the server"]
    lines = [
        [
            row["set"],
            str(row["speakers"]),
            f"{row['words_per_s']:.0f}",
            *(f"{row[name]:.0f} ms" for name in ("p50_ms", "p95_ms", "p99_ms")),
            f"{row['server_cores']:.1f}",
        ]
        for row in found["rows"]
    ]
    return f"`bench/results/{found['file']}`, {plain(found['machine'])}:\n\n{table(head, lines)}"


def talk() -> str:
    """Return the talk that was recorded: a line for each answer."""
    record = read_record()
    lines = [
        [
            _clock(each.ms),
            plain(each.words),
            plain(each.agreed.strip()),
            f"*{plain(each.tentative.strip())}*" if each.tentative.strip() else "",
        ]
        for each in record.answers
    ]
    return f"{_summary(record)}\n\n{table(['time', 'said', 'agreed', 'tentative'], lines)}"


def _summary(record: Record) -> str:
    """Return a sentence about a talk: its length, and how much of what was shown was replaced."""
    agreed, shown = "", list[Sequence[str]]()
    for each in record.answers:
        agreed += each.agreed
        shown.append((agreed + each.tentative).split())
    said = " ".join(each.words for each in record.answers).split()
    written, replaced = len(agreed.split()), erased(shown)
    policy = f"policy {NAMES[record.policy]} with a lag of {record.lag}"
    return (
        f"{len(said)} words in {_clock(record.answers[-1].ms)} minutes, {plain(record.model)}, {policy}: {written} "
        f"words of translation, for which {replaced} tentative words were replaced, and no agreed one."
    )


def _newest(results: Path, name: str) -> dict[str, Any]:
    """Return the newest results of a name with that of their file."""
    path = max(results.glob(f"????-??-??-{name}.json"))
    return {**json.loads(path.read_text(encoding="utf-8")), "file": path.name}


def _cells(rows: Sequence[dict[str, Any]], sets: Sequence[str], like: dict[str, Any]) -> list[str]:
    """Return the figures of a policy with a lag for each set."""
    cells = []
    for name in sets:
        row = next(
            row
            for row in rows
            if (row["set"], row["policy"], row.get("lag_words")) == (name, like["policy"], like.get("lag_words"))
        )
        is_live = "laal_ms" in row
        cells += [f"{row['bleu']:.1f}", _seconds(row), f"{row['erasure']:.1f}" if is_live else ""]
    return cells


def _name(row: dict[str, Any]) -> str:
    return NAMES.get(row["policy"], row["policy"])


def _seconds(row: dict[str, Any]) -> str:
    return f"{row['laal_ms'] / 1000:.2f}" if "laal_ms" in row else ""


def _spoken(found: dict[str, Any]) -> str:
    """Return what was spoken."""
    sets = [f"{each['set']} with {each['words'] / each['texts']:.0f} words a text" for each in found["sets"]]
    return f"{found['sets'][0]['texts']:,} texts of a set, {found['words_a_second']} words a second, {', '.join(sets)}"


def _best(rows: Sequence[dict[str, Any]], name: str) -> str:
    """Return a line about the best policy of a set within the bar."""
    best = best_within_lag(rows, name)
    if best is None:
        return f"{name}: no policy is within {MOST_LAG_MS / 1000:g} seconds."
    (lost,) = (value for key, value in best.items() if key.startswith("lost") and key.endswith("beam 4"))
    met = "meets" if lost <= MOST_BLEU_LOST else "misses"
    return (
        f"{name}: within {MOST_LAG_MS / 1000:g} seconds, {_name(best)} with a lag of {best['lag_words']} is best: "
        f"{lost:.1f} BLEU below whole texts with beam 4, at {_seconds(best)} seconds, which {met} the bar of "
        f"{MOST_BLEU_LOST:g}."
    )


def _clock(milliseconds: int) -> str:
    return f"{milliseconds // 60_000}:{milliseconds // 1000 % 60:02}"
