"""The verbs of `training`: train, tokenizer, evaluate, average. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigArgument = Annotated[Path, typer.Argument(help="TOML file with the settings of the run.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Overrule one setting: block.key=value. May be repeated.")
]


def train(
    config: ConfigArgument,
    output: Annotated[Path, typer.Option(help="Folder of the run; where it has a checkpoint, the run goes on.")],
    overrides: SetOption = None,
    init_from: Annotated[Path | None, typer.Option(help="Begin with the weights of this checkpoint.")] = None,
) -> None:
    """Train a model on a parallel corpus."""
    from training.config import load_config
    from training.distributed import processes
    from training.loop import Interrupt, fast_kernels, prepare, start_folder
    from training.report import Report

    settings = load_config(config, overrides or ())
    with processes(settings.training.device) as group:
        start_folder(settings, output, group)
        interrupt = Interrupt()
        interrupt.listen()
        with Report(output, settings.training.max_steps, speaks=group.leads) as report:
            trainer = prepare(settings, output, group, report, interrupt, init_from)
            with fast_kernels(group.device):
                progress = trainer.run()
            report.say(f"ended after step {progress.step}; best BLEU {progress.best_bleu:.2f} at {progress.best_step}")
