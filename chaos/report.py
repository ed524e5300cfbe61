"""Rows of results: one JSON file a day, into which later runs of single cases are merged, and a table for people."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.checks import FAIL, PARTIAL, PASS, SKIP
from lingon.bench.results_file import commit, machine
from lingon.errors import LingonError
from lingon.files import write_json


@dataclass(frozen=True, slots=True)
class Row:
    """A case and what was found; checks: one by one."""

    number: int
    test: str
    figure: str
    bound: str
    verdict: str
    checks: list[dict[str, Any]] = field(default_factory=list)


def save(rows: Sequence[Row], folder: Path, arguments: Sequence[str], now: datetime | None = None) -> Path:
    """Write the rows to folder/DATE-chaos.json, in the place of those of the same number; returns the file.

    Each row tells of which commit, by which command and when it was made, as rows of a day may differ in that.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}-chaos.json"
    head = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["python", "-m", "chaos", *arguments]),
    }
    origin = {name: head[name] for name in ("date", "commit", "command")}
    merged = {row["number"]: row for row in _rows(path)}
    merged |= {row.number: {**asdict(row), **origin} for row in rows}
    write_json(path, {**head, "rows": [merged[number] for number in sorted(merged)]})
    return path


def read(path: Path) -> list[Row]:
    """The rows of a file of results."""
    fields = Row.__dataclass_fields__
    return [Row(**{name: value for name, value in row.items() if name in fields}) for row in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError):
        raise LingonError(f"{path}: not a file of results; move it away") from None
    return rows


def table(rows: Sequence[Row], most: int | None = None) -> str:
    """The rows as a Markdown table; most: characters of a figure, cut where a finding ends."""
    lines = ["| test | found | bound | verdict |", "|---|---|---|---|"]
    for row in rows:
        figure = row.figure if most is None else _short(row.figure, most)
        lines.append(f"| {_cell(row.test)} | {_cell(figure)} | {_cell(row.bound)} | {row.verdict} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """How many rows there are of each verdict."""
    counts = Counter(row.verdict for row in rows)
    told = [f"{counts[verdict]} {verdict}" for verdict in (PASS, PARTIAL, SKIP, FAIL) if counts[verdict]]
    return f"{len(rows)} run: {', '.join(told)}"


def _short(figure: str, most: int) -> str:
    first, *others = figure.split("; ")
    for finding in others:
        if len(first) + len(finding) > most:
            break
        first += f"; {finding}"
    return first


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
