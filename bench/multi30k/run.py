"""Trains a run or takes it as it is, averages its checkpoints and translates the test sets; each part resumes."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lingon.bench.multi30k.plan import LENGTH_PENALTY, System
from lingon.errors import CheckpointError
from lingon.files import make_folders, write_text
from lingon.lines import read_lines
from lingon.training import checkpoint as checkpoints
from lingon.training.averaging import average_checkpoints
from lingon.training.config import Config
from lingon.training.evaluation import translate_lines
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.setup import open_run
from lingon.training.run.trainer import outcome


def train(config: Config, run: Path) -> None:
    """Train a run from its last checkpoint to its end. Raises Interrupted if a signal stops it."""
    interrupt = Interrupt()
    with _signals_of(interrupt), open_run(config, run, interrupt) as trainer:
        trainer.run()
        trainer.report.message(outcome(trainer))


@contextmanager
def _signals_of(interrupt: Interrupt) -> Iterator[None]:
    """Let signals stop the training inside the block; afterwards they end the command again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupt.install_handlers()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_checkpoints(run: Path, count: int) -> list[Path]:
    """The last checkpoints of a run, at most `count`, the oldest first; those that a signal saved do not count.

    Such a checkpoint has no validation, and lies anywhere between two others. Raises CheckpointError without any.
    """
    saved = checkpoints.saved_steps(run)
    regular = [folder for folder in saved if checkpoints.load_progress(folder).validated == _step(folder)]
    if not regular:
        raise CheckpointError(f"{run}: has {len(saved)} checkpoints and none with a validation; train it for longer")
    return regular[-count:]


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def averaged(folders: Sequence[Path], work: Path) -> Path:
    """The checkpoint with the mean of the weights of folders, below work; computed once."""
    if len(folders) == 1:
        return folders[0]
    path = work / f"average-{_digest(folders)}"
    if not path.is_dir():
        mean = average_checkpoints(list(folders))
        checkpoints.save_checkpoint(path, mean.config, mean.tokenizer, mean.model, mean.progress)
    return path


def translated(checkpoint: Path, sources: Sequence[str], system: System, work: Path, device: str) -> list[str]:
    """The translation of each source; kept in a file below work, so that the same one is not made twice."""
    name = f"{_digest([checkpoint], *sources)}-beam-{system.beam_size}.txt"
    path = work / "translations" / name
    if not path.is_file():
        make_folders(path.parent)
        found = translate_lines(
            checkpoint, list(sources), beam_size=system.beam_size, length_penalty=LENGTH_PENALTY, device=device
        )
        write_text(path, "".join(f"{line}\n" for line in found))
    return list(read_lines(path))


def _digest(folders: Sequence[Path], *lines: str) -> str:
    """The first digits of the SHA-256 of the weights of checkpoints and of lines."""
    digest = hashlib.sha256()
    for folder in folders:
        digest.update(hashlib.sha256((folder / checkpoints.MODEL).read_bytes()).digest())
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]
