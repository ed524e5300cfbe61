"""The results of the reliability tests."""

from __future__ import annotations

from pathlib import Path

from tests.reliability.checks import read_rows, summary, table

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def chaos() -> str:
    """The summary and the table of the newest results."""
    rows = read_rows(max(RESULTS.glob("*-reliability.json")))
    return f"{summary(rows)}\n\n{table(rows)}"
