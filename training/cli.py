"""The verbs train, tokenizer and average. A verb imports PyTorch only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lingon.training.config import Config

ConfigArgument = Annotated[
    Path, typer.Argument(help="TOML file with the settings of the run, such as configs/en-de.toml.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a setting of CONFIG: block.key=value. Paths are relative to the current folder. May be "
        "repeated. Default: none.",
    ),
]


def train(
    config: ConfigArgument,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/NAME, for the config NAME.toml.")
    ] = None,
    overrides: SetOption = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint, or run, whose weights and tokenizer a new run starts with (fine-tuning). "
            "Default: random weights."
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as JSON and exit; train nothing.")
    ] = False,
) -> None:
    """Train a model on a parallel corpus. If the folder of the run has a checkpoint, the run resumes from it.

    Ctrl-C saves a checkpoint and exits with code 130.

    On several GPUs: torchrun --no-python --nproc-per-node N lingon train CONFIG ...
    """
    from lingon.training.config import load_config

    settings = load_config(config, overrides or ())
    if print_config:
        print(settings.model_dump_json(indent=2))
        return
    settings.model.check_export()  # before days of training
    _check_corpora(settings)
    from lingon.training.processes import Interrupt
    from lingon.training.setup import open_run
    from lingon.training.trainer import outcome

    run = output or Path("runs") / config.stem
    interrupt = Interrupt()
    interrupt.install_handlers()
    with open_run(settings, run, interrupt, init_from) as trainer:
        trainer.run()
        trainer.report.message(outcome(trainer))


def tokenizer(
    config: ConfigArgument,
    output: Annotated[
        Path, typer.Option(help="New folder for the tokenizer. Set tokenizer.path to it to train with it.")
    ],
    overrides: SetOption = None,
) -> None:
    """Train the tokenizer of a config on the training text of the config."""
    from lingon.errors import SettingsError
    from lingon.files import publish_folder
    from lingon.training.config import load_config

    settings = load_config(config, overrides or ()).with_languages()
    if output.exists():
        raise SettingsError(f"--output {output} exists already; choose a new folder")
    _check_corpora(settings)
    from lingon.training.corpus import read_training_text
    from lingon.training.tokenizer import tokenizer_of_run

    text = read_training_text(settings.data)
    print(f"training text: {text.counts}")
    trained = tokenizer_of_run(text, settings)
    with publish_folder(output) as part:
        for name, content in trained.files().items():
            (part / name).write_bytes(content)
    print(f"pieces: {trained.source_vocab:,} source, {trained.target_vocab:,} target ({', '.join(trained.files())})")
    sample = next(pair for pairs in text.corpora for pair in pairs)
    print("source:", *trained.source_pieces(trained.unframed(trained.encode_source(sample.source))))
    print("target:", *trained.target_pieces(trained.encode_target(sample.target)))


def _check_corpora(config: Config) -> None:
    """Raise CorpusError for a corpus that cannot be read, before PyTorch is imported, which takes seconds."""
    from lingon.errors import SettingsError
    from lingon.files import check_files

    if not (config.data.train and config.data.valid):
        raise SettingsError(
            "these are the settings of an imported model, without text: write a config with [data], and name the "
            "checkpoint with --init-from"
        )
    check_files(path for corpus in config.data.corpora for path in corpus.files())


def average(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(help="Checkpoints, or folders of runs for all their checkpoints that have a validation."),
    ],
    output: Annotated[Path, typer.Option(help="New folder for the averaged checkpoint.")],
    last: Annotated[
        int | None, typer.Option(min=1, help="Number of checkpoints of each run, the last ones. Default: all.")
    ] = None,
    half: Annotated[
        bool,
        typer.Option(
            "--half",
            help="Round every weight to the nearest fp16 value, so that a bundle stores it in 2 bytes without loss.",
        ),
    ] = False,
) -> None:
    """Average the weights of checkpoints of one model into a new checkpoint, which often translates better."""
    from lingon.errors import SettingsError
    from lingon.training import checkpoint as files
    from lingon.training.checkpoint import average_checkpoints, round_to_half

    if output.exists():
        raise SettingsError(f"--output {output} exists already; choose a new folder")
    saved = {path: files.validated_steps(path) for path in checkpoints}
    for path, steps in saved.items():
        if last is not None and 0 < len(steps) < last:
            print(f"{path}: has {len(steps)} checkpoints, not the last {last}; all of them are averaged")
    chosen = [folder for path in checkpoints for folder in saved[path][-(last or 0) :] or [path]]
    averaged = average_checkpoints(chosen)
    if half:
        round_to_half(averaged.model)
    files.save_checkpoint(output, averaged.config, averaged.tokenizer, averaged.model, averaged.progress)
    print(f"{output}: average of {', '.join(folder.name for folder in chosen)}{', in fp16 values' if half else ''}")
