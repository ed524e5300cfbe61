"""The results of `lingon bench attention`: a table of the systems, and a chart of BLEU by the length of the source.

It needs no torch, because the documentation shows the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lingon.bench.results_file import Row, load_pyplot, new_table, save_chart

Bucket = tuple[int, int]  # the fewest and the most source words
HEAD = ("BLEU", "chrF", "weights", "training tokens/s", "decoding tokens/s", "AER")

_STYLES = {"rnnenc": ("#b3541e", "s"), "rnnsearch": ("#1f4e79", "o"), "transformer": ("#3f9b8f", "^")}
"""Colour and marker by system."""


def cells(row: Row) -> tuple[str, ...]:
    """Return the figures of a row under HEAD."""
    training = row["fastest_tokens_per_second"]
    return (
        f"{row['bleu']:.1f}",
        f"{row['chrf']:.1f}",
        f"{row['parameters']:,}",
        "-" if training is None else f"{training:,}",
        f"{row['decoding_tokens_per_second']:,.0f}",
        "-" if row["aer"] is None else f"{row['aer']:.3f}",
    )


def table(rows: Sequence[Row]) -> Table:
    """Return a table with a line for each corpus and system."""
    shown = new_table(("corpus", "system"), HEAD)
    for row in rows:
        shown.add_row(row["corpus"], row["system"], *cells(row))
    return shown


def length_table(rows: Sequence[Row]) -> Table:
    """Return a table: a line for each system and longest training text, a column for each bucket of source words."""
    buckets = buckets_of(rows)
    shown = new_table(("system", "trained up to"), [f"{first}-{last}" for first, last in buckets])
    for (system, words), curve in curves(rows).items():
        shown.add_row(system, f"{words} words", *(f"{curve[each]:.1f}" if each in curve else "-" for each in buckets))
    return shown


def buckets_of(rows: Sequence[Row]) -> list[Bucket]:
    """Return all buckets, the shortest texts first."""
    return sorted({(row["words"][0], row["words"][1]) for row in rows})


def curves(rows: Sequence[Row]) -> dict[tuple[str, int], dict[Bucket, float]]:
    """Return BLEU by bucket, for each system and longest training text."""
    found: dict[tuple[str, int], dict[Bucket, float]] = {}
    for row in rows:
        curve = found.setdefault((row["system"], row["trained_up_to"]), {})
        curve[row["words"][0], row["words"][1]] = row["bleu"]
    return found


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write the chart of BLEU against the source words of a text."""
    pyplot = load_pyplot()
    figure, panel = pyplot.subplots(figsize=(8, 5), layout="constrained")
    limits = sorted({row["trained_up_to"] for row in rows})
    for (system, words), curve in sorted(curves(rows).items()):
        colour, marker = _STYLES[system]
        middles = [(first + last) / 2 for first, last in curve]
        line = "-" if words == limits[-1] else "--"
        label = f"{system}, up to {words}"
        panel.plot(middles, list(curve.values()), line, color=colour, marker=marker, markersize=5, label=label)
    for words in limits:
        panel.axvline(words + 0.5, color="#777777", linewidth=0.8, linestyle=":")
    ticks = {(first + last) / 2: f"{first}-{last}" for first, last in buckets_of(rows)}
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.set(xlabel="words of the source", ylabel="BLEU")
    panel.set_ylim(0, 1.08 * max(row["bleu"] for row in rows) or 1)
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    title = "system, and words of its longest training text"
    figure.legend(loc="outside lower center", ncols=len(_STYLES), frameon=False, title=title)
    save_chart(figure, output)
