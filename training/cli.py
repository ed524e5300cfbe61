"""The verbs prepare, train and average. A verb imports PyTorch only when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.engine import EngineChoice, EngineOptions
from lingon.cli.options import with_option_groups

if TYPE_CHECKING:
    from contextlib import ExitStack

    from lingon.training.config import Config, Corpus
    from lingon.training.prepare import TaskEngine

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
    from lingon.training.config import CORPUS, load_config

    settings = load_config(config, overrides or ())
    if print_config:
        print(settings.model_dump_json(indent=2))
        return
    settings.model.check_export()  # before days of training
    run = output or Path("runs") / config.stem
    _check_prepared(settings)
    _check_corpora(settings, settings.data.prepared or run / CORPUS, settings.data.valid)
    from lingon.training.interrupt import Interrupt
    from lingon.training.setup import open_run
    from lingon.training.trainer import outcome

    interrupt = Interrupt()
    interrupt.install_handlers()
    with open_run(settings, run, interrupt, init_from) as trainer:
        trainer.run()
        trainer.report.message(outcome(trainer))


@with_option_groups
def prepare(
    *,
    config: ConfigArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the corpus, which may be in an object store. Default: data.prepared of CONFIG, else "
            "runs/NAME/corpus."
        ),
    ] = None,
    overrides: SetOption = None,
    init_from: Annotated[
        Path | None,
        typer.Option(help="Checkpoint, or run, whose tokenizer the corpus gets (fine-tuning). Default: none."),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Also write report.html into the folder of the corpus: what stays, what goes and why. A complete "
            "corpus is not prepared again. Default: off.",
        ),
    ] = False,
    engine: EngineOptions,
) -> None:
    """Read, filter and tokenise the training text of a config, for `lingon train` and any number of runs.

    If it is ended at any time, the same command goes on where it was, and the corpus has the same bytes. Runs with
    data.prepared set to its folder share it, and a config with tokenizer.path set to it has the tokenizer.
    """
    from contextlib import ExitStack, closing

    from lingon.errors import SettingsError
    from lingon.object_stores import is_url, url_of
    from lingon.training.config import CORPUS, load_config

    bounds, on_ray = engine.bounds(), engine.engine is EngineChoice.RAY
    settings = load_config(config, overrides or ())
    folder = output or settings.data.prepared or Path("runs") / config.stem / CORPUS
    if on_ray and not is_url(folder):
        folder = folder.absolute()  # workers have another current folder
    if report and is_url(folder):
        raise SettingsError(
            f"--report needs a corpus in a folder of this machine, got {url_of(folder)}; copy it to one"
        )
    _check_corpora(settings, folder)
    from rich.console import Console

    from lingon.text import Tokenizer
    from lingon.training.interrupt import Interrupt
    from lingon.training.prepare import prepare as prepare_corpus
    from lingon.training.prepare_progress import PrepareProgress

    given = settings.tokenizer.path
    if init_from:
        from lingon.training.checkpoint import resolve_checkpoint

        given = resolve_checkpoint(init_from)
    tokenizer, interrupt = Tokenizer.read(given) if given else None, Interrupt(after="the blocks in hand")
    interrupt.install_handlers()
    with ExitStack() as stack:
        watch = stack.enter_context(closing(PrepareProgress(Console(stderr=True))))
        found = prepare_corpus(
            settings,
            folder,
            tokenizer,
            workers=bounds and bounds[1],
            engine=_ray_tasks(engine, stack) if on_ray else None,
            watch=watch,
            stopped=interrupt.stop_signal,
        )
    print(f"{url_of(folder)}: {found.counts}")
    if report:
        from lingon.training.prepare_report import write_report

        print(f"report: {write_report(found)}")


def _ray_tasks(options: EngineOptions, stack: ExitStack) -> TaskEngine:
    """Connect to a Ray cluster until the stack is closed."""
    from lingon.extras import name_missing_extra

    with name_missing_extra("lingon prepare --engine ray", ["ray"]):
        from lingon.ray_workers import ray_cluster
        from lingon.training.ray_tasks import RayTasks
    bounds = options.bounds()
    assert bounds is not None
    stack.enter_context(ray_cluster(options.address))
    return RayTasks(bounds)


def _check_corpora(config: Config, folder: Path, always: Sequence[Corpus] = ()) -> None:
    """Raise CorpusError for a corpus that cannot be read, before PyTorch is imported, which takes seconds.

    folder: of the prepared corpus. If that is complete, the text that it was made of need not be there
    always: corpora that are read even then
    """
    from lingon.errors import SettingsError
    from lingon.files import check_files
    from lingon.object_stores import exists
    from lingon.training.config import MANIFEST

    if not (config.data.train and config.data.valid):
        raise SettingsError(
            "these are the settings of an imported model, without text: write a config with [data], and name the "
            "checkpoint with --init-from"
        )
    corpora = always if exists(folder / MANIFEST) else config.data.corpora
    check_files(path for corpus in corpora for path in corpus.files())


def _check_prepared(config: Config) -> None:
    """Raise SettingsError for a corpus in an object store: training maps the files of a corpus."""
    from lingon.errors import SettingsError
    from lingon.object_stores import is_url, url_of

    folder = config.data.prepared
    if folder is not None and is_url(folder):
        raise SettingsError(
            f"data.prepared must be a folder of this machine to train from, got {url_of(folder)}; copy it to one"
        )


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
