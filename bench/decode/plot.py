"""The picture of a result: per cell, how many times as fast as CTranslate2's fastest setting everybody is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # draws to files, needs no display

from matplotlib import pyplot

from lingon.bench.decode.plan import OURS, RIVAL
from lingon.bench.decode.results import Row, best_settings, cells, together

COLOURS = {
    (OURS, "int8"): "#b3541e",
    (OURS, "fp32"): "#e5a877",
    (RIVAL, "int8"): "#1f4e79",
    (RIVAL, "fp32"): "#7fa8cc",
    ("transformers", "fp32"): "#777777",
    ("optimum", "fp32"): "#b5b5b5",
}


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write the picture; the ending of output says whether as SVG, PNG or PDF."""
    works = list(dict.fromkeys(row["work"] for row in rows))
    size = (10, 3.4 * len(works) + 0.6)
    figure, panels = pyplot.subplots(len(works), figsize=size, layout="constrained", squeeze=False)
    for panel, work in zip(panels[:, 0], works, strict=True):
        _draw_work(panel, work, best_settings(together([row for row in rows if row["work"] == work])))
    known = [panel.get_legend_handles_labels() for panel in panels[:, 0]]
    legend = {label: handle for handles, labels in known for handle, label in zip(handles, labels, strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


def _draw_work(panel: Any, work: str, rows: Sequence[Row]) -> None:
    """Grouped bars, one group a cell; above each bar of ours a line where the floor of its precision is."""
    groups = sorted(cells(rows).items())
    series = [key for key in COLOURS if any((row["engine"], row["precision"]) == key for row in rows)]
    width = 0.8 / max(len(series), 1)
    for number, key in enumerate(series):
        for place, (_, own) in enumerate(groups):
            for row in (row for row in own if (row["engine"], row["precision"]) == key):
                left = place - 0.4 + width * (number + 0.5)
                _draw_bar(panel, left, width, row, " ".join(key))
    panel.axhline(1, color="#1f4e79", linewidth=0.8, linestyle=":", zorder=0)
    panel.set_xticks(range(len(groups)), [_name(cell) for cell, _ in groups], fontsize=8)
    panel.set_xlim(-0.6, len(groups) - 0.4)
    # Floors far above every bar, as of a single sentence, are left out of the picture: they would flatten the bars.
    panel.set_ylim(0, 1.8 * max(row["ratio_to_ctranslate2"] or 0 for row in rows))
    panel.set_title(work, loc="left", fontsize=10)
    panel.set_ylabel(f"times as fast as\n{RIVAL} at its best", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_bar(panel: Any, place: float, width: float, row: Row, label: str) -> None:
    ratio = row["ratio_to_ctranslate2"]
    if ratio is None:
        return
    panel.bar(place, ratio, 0.92 * width, color=COLOURS[row["engine"], row["precision"]], label=label)
    if row["engine"] == OURS:
        panel.annotate(f"{ratio:.1f}", (place, ratio), (0, 2), textcoords="offset points", ha="center", fontsize=7)
        floor = ratio / row["fraction_of_floor"]
        panel.hlines(
            floor, place - width / 2, place + width / 2, color="black", linewidth=1.2, label="floor, where it is near"
        )


def _name(cell: tuple[Any, ...]) -> str:
    _, shortlist, beam_size, batch = cell
    search = "greedy" if beam_size == 1 else f"beam {beam_size}"
    return f"{search}\nbatch {batch}{chr(10) + 'shortlist' if shortlist else ''}"
