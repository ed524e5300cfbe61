"""The results of the reliability tests, and the figures of the hostile cases before and after."""

from __future__ import annotations

from pathlib import Path

from chaos.hostile import comparison
from chaos.report import for_people, read, summary, table
from chaos.selection import all_cases

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def chaos() -> str:
    """The summary and the table of the newest results, as `python -m chaos table FILE` prints them."""
    rows = for_people(read(max(RESULTS.glob("*-chaos.json"))), all_cases())
    return f"{summary(rows)}\n\n{table(rows)}"


def hostile() -> str:
    """The newest figures of the hostile cases, as `python -m chaos hostile-table FILE` prints them.

    Lines may break in the long names of statuses, so that the table is no wider than the page.
    """
    return comparison.table(max(RESULTS.glob("*-hostile.json")), all_cases()).replace("_", "_<wbr>")
