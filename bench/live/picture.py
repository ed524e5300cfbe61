"""The picture of quality, lag and flicker: `python -m lingon.bench.live.picture DATE-live-quality.json` draws it again.

`lingon bench live --part quality` writes it beside its results.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lingon.bench.live.quality import MOST_BLEU_LOST, MOST_LAG_MS
from lingon.bench.results_file import Row, load_pyplot, save_chart

INK, BAR = "#333333", "#dfeee2"


class Line(NamedTuple):
    """How a policy is drawn; label: of the lag at a point, its offset in points of the figure."""

    name: str
    colour: str
    label: tuple[int, int]


LINES = {
    "local_agreement": Line("local agreement, of updates", "#1b6ca8", (4, -11)),
    "alignment": Line("alignment", "#2f8f5b", (-5, 5)),
    "wait_k": Line("wait-k", "#d9772b", (5, -10)),
    "sentences": Line("whole sentences", "#b23a48", (0, 0)),
}
STYLES = ("--", "-")  # of whole texts, greedily and with beam search
TICKS = (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12)  # seconds


def draw(rows: Sequence[Row], path: Path, sets: Sequence[Mapping[str, Any]] = ()) -> None:
    """Draw BLEU and normalised erasure over LAAL: a column for each set, a line for each policy.

    rows: of `lingon.bench.live.quality.measure`; sets: of `SpokenSet.facts`, for the titles
    """
    pyplot = load_pyplot()
    pyplot.rcParams["svg.hashsalt"] = "lingon"  # so that the same numbers give the same file
    words = {each["set"]: each["words"] / each["texts"] for each in sets}
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure, axes = pyplot.subplots(
        2,
        len(names),
        figsize=(5 * len(names), 6.4),
        layout="constrained",
        squeeze=False,
        sharex="col",
        height_ratios=(2, 1),
    )
    for (quality, flicker), name in zip(axes.T, names, strict=True):
        own = [row for row in rows if row["set"] == name]
        _draw_quality(quality, own)
        _draw_lines(flicker, own, "erasure")
        quality.set(title=f"{name}, {words[name]:.0f} words a text" if name in words else name, ylabel="BLEU")
        flicker.set(xlabel="LAAL, seconds behind the speaker", ylabel="words erased for each\nword of the translation")
        flicker.set_ylim(bottom=0)
        _scale(flicker, [row["laal_ms"] / 1000 for row in own if "laal_ms" in row])
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save_chart(figure, path)


def _draw_quality(axis: Any, rows: Sequence[Row]) -> None:
    """Draw BLEU, that of whole texts, and the area in which the bar is met against the better one of them."""
    whole = [row for row in rows if "laal_ms" not in row]
    _draw_lines(axis, rows, "bleu")
    low, high = axis.get_ylim()
    for row, style in zip(whole, STYLES, strict=True):
        axis.axhline(row["bleu"], color=INK, linestyle=style, linewidth=1, label=row["policy"])
    least = max(row["bleu"] for row in whole) - MOST_BLEU_LOST
    axis.fill_between(
        [0.01, MOST_LAG_MS / 1000],
        least,
        high + 10,
        color=BAR,
        zorder=0,
        label=f"at most {MOST_LAG_MS / 1000:g} s, {MOST_BLEU_LOST:g} BLEU below beam 4",
    )
    axis.set_ylim(min(low, least) - 0.04 * (high - low), high + 0.04 * (high - low))


def _draw_lines(axis: Any, rows: Sequence[Row], name: str) -> None:
    """Draw a column of the results for each policy; that of BLEU with the lag at each point."""
    for policy, line in LINES.items():
        points = [(row["laal_ms"] / 1000, row[name], row["lag_words"]) for row in rows if row["policy"] == policy]
        if not points:
            continue
        axis.plot([x for x, _, _ in points], [y for _, y, _ in points], "o-", color=line.colour, label=line.name, ms=4)
        for x, y, lag in points:
            if lag and name == "bleu":  # the points of the other column are at the same seconds
                axis.annotate(
                    str(lag), (x, y), line.label, textcoords="offset points", color=line.colour, ha="center", fontsize=8
                )
    axis.grid(alpha=0.3)


def _scale(axis: Any, seconds: Sequence[float]) -> None:
    """Make the seconds logarithmic: those of whole sentences are many times those of the other policies."""
    axis.set_xscale("log")
    low, high = 0.9 * min(seconds), 1.12 * max(seconds)
    axis.set_xticks([each for each in TICKS if low <= each <= high], minor=False)
    axis.set_xticks([], minor=True)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlim(low, high)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures of result files beside them."""
    parser = argparse.ArgumentParser(prog="python -m lingon.bench.live.picture", description=main.__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="DATE-live-quality.json, of lingon bench live")
    for path in parser.parse_args(arguments).results:
        found = json.loads(path.read_text(encoding="utf-8"))
        draw(found["rows"], path.with_suffix(".svg"), found["sets"])


if __name__ == "__main__":
    main()
