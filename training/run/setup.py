"""Making a run open_run: its text, tokenizer, model and optimizer, from the beginning or from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import nn

from lingon.errors import CheckpointError, CorpusError, SettingsError
from lingon.files import lock_path, make_folders, write_bytes, write_text
from lingon.text import Tokenizer
from lingon.training import checkpoint as checkpoints
from lingon.training.config import Config, TrainingSettings, model_differences, setting_differences
from lingon.training.data.batches import drop_long, filter_by_length
from lingon.training.data.corpus import Pair, TrainingText, read_pairs, read_training_text
from lingon.training.data.tokenizer import train_tokenizer
from lingon.training.models.transformer import Transformer
from lingon.training.run.cpu import fast_kernels
from lingon.training.run.distributed import Processes, processes
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.report import Report
from lingon.training.run.trainer import Trainer


@contextmanager
def open_run(
    config: Config,
    folder: Path,
    interrupt: Interrupt,
    start: Path | None = None,
    report: Callable[..., Report] = Report,
) -> Iterator[Trainer]:
    """A run among its processes, with its folder, report and kernels; `run` of it trains.

    start: a checkpoint whose weights and tokenizer a new run begins with (fine-tuning)
    report: makes what tells of the run, as `Report` does
    """
    with processes(config.training.device) as group, ExitStack() as stack:
        check_accumulation(config.training.accumulate, group.world_size)
        if group.is_leader:
            stack.enter_context(run_folder(folder))
        told = stack.enter_context(report(folder, config.training.max_steps, enabled=group.is_leader))
        trainer = build_trainer(config, folder, group, told, interrupt, start)
        stack.enter_context(fast_kernels(group.device))  # not before: they keep memory, of which text takes much
        yield trainer


def check_accumulation(accumulate: int, world: int) -> None:
    """Refuse batches that do not divide among the processes."""
    if accumulate % world:
        raise SettingsError(f"training.accumulate must be a multiple of the {world} processes, got {accumulate}")


@contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """The folder of a run, made where it is not there, kept from other runs, without what a killed one left half."""
    with ExitStack() as stack:
        try:
            make_folders(folder)
            stack.enter_context(lock_path(folder))
        except BlockingIOError:
            raise SettingsError(f"--output {folder}: another run is at work there") from None
        except OSError as error:
            raise SettingsError(f"--output {folder}: {error.strerror}") from None
        checkpoints.remove_leftovers(folder)
        yield


def build_trainer(
    config: Config, folder: Path, processes: Processes, report: Report, interrupt: Interrupt, start: Path | None = None
) -> Trainer:
    """A run open_run to go on: from its last checkpoint where it has one, else from its beginning."""
    last = next(reversed(checkpoints.saved_steps(folder)), None)
    if last is None and start is not None:
        start = checkpoints.resolve_checkpoint(start)  # before text is read for minutes
    elif start is not None:
        report.message(f"--init-from {start} is passed over: the run goes on from {last}")
    text, valid = read_training_text(config.data), list(read_pairs(config.data.valid))
    tokenizer = _tokenizer(config, text, last or start, folder, processes)
    text = drop_long(text, tokenizer, config.data.max_tokens)
    report.message(f"training text: {text.counts}")
    valid = _scorable(valid, config, tokenizer, report)
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).to(processes.device)
    weights = sum(parameter.numel() for parameter in model.parameters())
    report.message(f"model: {weights:,} weights on {processes.device}, {processes.world_size} process(es)")
    optimizer = _optimizer(model, config.training)
    trainer = Trainer(config, folder, processes, report, tokenizer, text.epoch(), valid, model, optimizer, interrupt)
    digest = text.digest()
    if last is not None:
        _resume(trainer, last, digest)
    elif start is not None:
        checkpoints.load_weights(model, start)
        report.message(f"starts from the weights of {start}")
    trainer.progress.text = digest
    if processes.is_leader:
        write_text(folder / checkpoints.CONFIG, config.model_dump_json(indent=2) + "\n")
    model.train()
    return trainer


def _tokenizer(config: Config, text: TrainingText, origin: Path | None, run: Path, processes: Processes) -> Tokenizer:
    """The tokenizer of a checkpoint, of the settings' folder, or one trained now and kept in the run's folder."""
    folder = checkpoints.resolve_checkpoint(origin) if origin is not None else config.tokenizer.path
    if folder is None:
        folder = run
        if processes.is_leader:
            _write_tokenizer(train_tokenizer(text.epoch(), config.tokenizer), run)
        processes.barrier()
    tokenizer = Tokenizer.read(folder)
    if config.tokenizer.joint != tokenizer.joint:
        has = "one vocabulary for both languages" if tokenizer.joint else "one for each language"
        raise SettingsError(f"tokenizer.joint = {str(config.tokenizer.joint).lower()}, but {folder} has {has}")
    return tokenizer


def _write_tokenizer(tokenizer: Tokenizer, run: Path) -> None:
    """Write the tokenizer into the run's folder, in the place of one that was trained there before."""
    for name in (*Tokenizer.JOINT, *Tokenizer.SEPARATE):
        (run / name).unlink(missing_ok=True)
    for name, content in tokenizer.files().items():
        write_bytes(run / name, content)


def _scorable(pairs: list[Pair], config: Config, tokenizer: Tokenizer, report: Report) -> list[Pair]:
    """The validation pairs that can be scored: both sides there, and no longer than the model reads."""
    usable = [pair for pair in pairs if pair.source and pair.target]
    usable = filter_by_length(usable, tokenizer, config.model.max_positions) if usable else []
    if not usable:
        raise CorpusError(f"{config.data.valid.files()[0]}: none of {len(pairs)} validation pairs can be scored")
    if left := len(pairs) - len(usable):
        limit = f"model.max_positions = {config.model.max_positions}"
        report.message(f"validation text: {len(usable):,} pairs; left out {left:,} empty or longer than {limit}")
    return usable


def _resume(trainer: Trainer, folder: Path, digest: str) -> None:
    """Put a trainer where the run stood; what the settings or the text say otherwise now is told, or refused.

    digest: of the training text
    """
    saved = checkpoints.load_checkpoint(folder)
    if other := model_differences(saved.config.model, trainer.config.model):
        raise CheckpointError(f"{folder} was trained with another model ({other[0]}); choose another --output")
    changed = list(setting_differences(saved.config, trainer.config))
    if saved.progress.text not in ("", digest):
        changed.append("the pairs of the training text")
    trainer.model.load_state_dict(saved.model.state_dict())
    checkpoints.load_optimizer(trainer.model, trainer.optimizer, folder)
    trainer.progress = saved.progress
    _mark_best_again(trainer)
    trainer.report.message(f"resumes after step {saved.progress.step}")
    if changed:
        trainer.report.message(f"changed since then: {'; '.join(changed)}")


def _mark_best_again(trainer: Trainer) -> None:
    """Name the best checkpoint that the run knows of, where the one that was named is gone: it would be forgotten."""
    best = checkpoints.step_folder(trainer.folder, trainer.progress.best_step)
    if trainer.processes.is_leader and best.is_dir() and not (trainer.folder / checkpoints.BEST).is_file():
        checkpoints.mark_best(trainer.folder, best, {"bleu": trainer.progress.best_bleu})


def _optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam with the paper's constants (section 5.3); decoupled weight decay where it is asked for."""
    kind = torch.optim.AdamW if settings.weight_decay else torch.optim.Adam
    return kind(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=True,
    )
