"""The results of the reliability tests."""

from __future__ import annotations

from pathlib import Path

from chaos.report import read_rows, summary, table

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def chaos() -> str:
    """The summary and the table of the newest results, as `python -m chaos table FILE` prints them."""
    rows = read_rows(max(RESULTS.glob("*-chaos.json")))
    return f"{summary(rows)}\n\n{table(rows)}"
