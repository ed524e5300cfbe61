"""The results for the reader: a table of the systems, and the chart of BLEU against the length of the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from lingon.bench.charts import load_pyplot

Row = dict[str, Any]
WIDTH = 120
"""Characters of the widest table."""

HEAD = ("BLEU", "chrF", "weights", "training tokens/s", "decoding tokens/s", "AER")

_STYLES = {"rnnenc": ("#b3541e", "s"), "rnnsearch": ("#1f4e79", "o"), "transformer": ("#3f9b8f", "^")}
"""Colour and marker by system."""


def cells(row: Row) -> tuple[str, ...]:
    """The figures of a row under HEAD."""
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
    """A line for each corpus and system."""
    shown = Table("corpus", "system")
    for name in HEAD:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(row["corpus"], row["system"], *cells(row))
    return shown


def signatures(rows: Sequence[Row]) -> list[str]:
    """A line for each score: what stands behind the figures."""
    return sorted({f"{name}: {text}" for row in rows for name, text in row["signatures"].items()})


def length_table(rows: Sequence[Row]) -> Table:
    """A line for each system and length of training texts; a column for each bucket of source words."""
    buckets = sorted({tuple(row["words"]) for row in rows})
    shown = Table("system", "trained up to")
    for first, last in buckets:
        shown.add_column(f"{first}-{last}", justify="right")
    for system, words in dict.fromkeys((row["system"], row["trained_up_to"]) for row in rows):
        found = _curve(rows, system, words)
        shown.add_row(system, f"{words} words", *(f"{found[each]:.1f}" if each in found else "-" for each in buckets))
    return shown


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write the chart of BLEU against the source words of a text; the suffix of output selects SVG, PNG or PDF."""
    pyplot = load_pyplot()
    figure, panel = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    limits = sorted({row["trained_up_to"] for row in rows})
    for system, (colour, marker) in _STYLES.items():
        for words, line in zip(limits, ("--", "-"), strict=False):
            if found := _curve(rows, system, words):
                middles = [(first + last) / 2 for first, last in found]
                label = f"{system}, trained up to {words} words"
                panel.plot(middles, list(found.values()), line, color=colour, marker=marker, markersize=5, label=label)
    for words in limits:
        panel.axvline(words, color="#777777", linewidth=0.8, linestyle=":")
    buckets = sorted({tuple(row["words"]) for row in rows})
    panel.set_xticks([(first + last) / 2 for first, last in buckets], [f"{first}-{last}" for first, last in buckets])
    panel.set(xlabel="words of the source", ylabel="BLEU", ylim=(0, None))
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


def _curve(rows: Sequence[Row], system: str, words: int) -> dict[tuple[int, int], float]:
    """BLEU by bucket of source words."""
    own = [row for row in rows if (row["system"], row["trained_up_to"]) == (system, words)]
    return {(row["words"][0], row["words"][1]): row["bleu"] for row in own}
