"""The results: one JSON file a day, into which later runs of single cases are merged, and a Markdown table of it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.verdict.checks import FAIL, PARTIAL, PASS, SKIP, Row
from lingon.bench.results_file import commit, machine
from lingon.errors import LingonError
from lingon.files import write_json


def save(rows: Sequence[Row], folder: Path, command: Sequence[str], now: datetime | None = None) -> Path:
    """Merge the rows into folder/DATE-chaos.json, by the names of their cases; return the file.

    Each row holds its own commit, command and date, because the rows of a day can come from several runs.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}-chaos.json"
    origin = {"date": now.isoformat(timespec="seconds"), "commit": commit(), "command": shlex.join(command)}
    merged = {row["case"]: row for row in _rows(path)}
    merged |= {row.case: {**asdict(row), **origin} for row in rows}
    write_json(path, {"machine": machine(), **origin, "rows": list(merged.values())})
    return path


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a result file."""
    return [Row(**{name: row[name] for name in Row.__dataclass_fields__}) for row in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError):
        raise LingonError(f"{path}: not a file of results; move it away") from None
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| case | found | bound | verdict |", "|---|---|---|---|"]
    for row in rows:
        cells = (row.case.replace("_", " "), row.found, row.bound, row.verdict)
        lines.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def summary(rows: Sequence[Row]) -> str:
    """Return the number of rows of each verdict."""
    counts = Counter(row.verdict for row in rows)
    shown = [f"{counts[verdict]} {verdict}" for verdict in (PASS, PARTIAL, SKIP, FAIL) if counts[verdict]]
    return f"{len(rows)} run: {', '.join(shown)}"
