"""Draw the learning curve of a run, loss and validation BLEU: `python -m lingon.bench.tools.curve RUN curve.svg`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import matplotlib
import typer

matplotlib.use("Agg")  # This backend draws to files and needs no display.

from matplotlib import pyplot

from lingon.errors import SettingsError

LOSS_COLOUR, BLEU_COLOUR = "#1f4e79", "#b3541e"


def read_log(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind in the log of a run, by step; the last line of a step that was repeated after a kill."""
    path = run / "log.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    complete = text[: text.rfind("\n") + 1]  # A kill may have left half a line at the end.
    lines = [json.loads(line) for line in complete.splitlines()]
    latest = {line["step"]: line for line in lines if line["kind"] == kind}
    return [latest[step] for step in sorted(latest)]


def draw(run: Path, output: Path) -> None:
    """Draw the curve of a run; the suffix of output selects SVG, PNG or PDF."""
    figure, loss_axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    bleu_axes = loss_axes.twinx()
    updates, validations = read_log(run, "train"), read_log(run, "valid")
    steps, bleu = [line["step"] for line in validations], [line["bleu"] for line in validations]
    held_out = [math.log(line["perplexity"]) for line in validations]
    losses = [line["loss"] for line in updates]
    loss_axes.plot(
        [line["step"] for line in updates], losses, color=LOSS_COLOUR, label="training loss (smoothed labels)"
    )
    loss_axes.plot(
        steps, held_out, color=LOSS_COLOUR, linestyle="--", marker="o", markersize=3, label="validation loss"
    )
    bleu_axes.plot(steps, bleu, color=BLEU_COLOUR, marker="o", markersize=3, label="validation BLEU")
    for place in [index for index, value in enumerate(bleu) if value == max(bleu)][:1]:
        position = (steps[place], bleu[place])
        bleu_axes.annotate(
            f"{bleu[place]:.1f}", position, (0, 6), textcoords="offset points", color=BLEU_COLOUR, ha="center"
        )
    loss_axes.set(xlabel="updates", ylabel="nats a token", title=f"Learning curve of {run.resolve().name}")
    loss_axes.set(xlim=(0, None), ylim=(0, None))
    loss_axes.grid(alpha=0.3)
    bleu_axes.set(ylabel="BLEU", ylim=(0, 1.15 * max(bleu, default=1)))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


if __name__ == "__main__":
    typer.run(draw)
