"""The table of the results, next to the figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from lingon.bench.multi30k.measure import Row

WIDTH = 120  # columns


def table(rows: Sequence[Row]) -> Table:
    """A line for each row: tokenised BLEU as in the paper, that of the paper, and the scores of sacreBLEU."""
    found = Table("pair", "set", "system")
    for column in ("tokenised BLEU", "published", "cased", "BLEU", "chrF"):
        found.add_column(column, justify="right")
    for row in rows:
        published = "" if row["published"] is None else f"{row['published']:.1f}"
        scores = (row["bleu_tokenised_cased"], row["bleu"], row["chrf"])
        shown = (f"{row['bleu_tokenised']:.1f}", published, *(f"{value:.1f}" for value in scores))
        found.add_row(row["pair"], row["set"], row["system"], *shown)
    return found


def training_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each pair: what its training took."""
    first = {row["pair"]: row for row in reversed(rows)}
    return [
        f"{pair}: {row['training_steps']:,} updates in {row['training_seconds']:,} s, "
        f"{row['training_tokens_per_second'] or 0:,} target tokens/s (median)"
        for pair, row in reversed(first.items())
    ]
