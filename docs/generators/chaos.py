"""The results of the reliability tests."""

from __future__ import annotations

from pathlib import Path

from chaos.report import for_people, read, summary, table
from chaos.selection import all_cases

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def chaos() -> str:
    """The summary and the table of the newest results, as `python -m chaos table FILE` prints them."""
    rows = for_people(read(max(RESULTS.glob("*-chaos.json"))), all_cases())
    return f"{summary(rows)}\n\n{table(rows)}"
