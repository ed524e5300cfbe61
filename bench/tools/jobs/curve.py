"""Draw loss and validation BLEU of a training run: `python -m lingon.bench.tools.jobs.curve RUN curve.svg`."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
import typer

matplotlib.use("Agg")  # This backend draws to files and needs no display.

from matplotlib import pyplot

from lingon.bench.run_log import read_log

LOSS_COLOUR, BLEU_COLOUR = "#1f4e79", "#b3541e"


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
