"""A training run of a benchmark: trained from its last checkpoint to its end, its last checkpoints, what it took."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lingon.bench.run_log import read_log
from lingon.errors import CheckpointError
from lingon.training import checkpoint as checkpoints
from lingon.training.config import Config
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
    """The last checkpoints of a run that have a validation, at most `count`, the oldest first.

    Raises CheckpointError without any.
    """
    validated = checkpoints.validated_steps(run)
    if not validated:
        saved = len(checkpoints.saved_steps(run))
        raise CheckpointError(f"{run}: has {saved} checkpoints and none with a validation; train it for longer")
    return validated[-count:]


def training_figures(run: Path) -> dict[str, Any]:
    """What the training of a run took.

    The speed is the median of its log, because a run may have been suspended. The fastest line of the log is what the
    machine reaches without other work.
    """
    progress = checkpoints.load_progress(last_checkpoints(run, 1)[0])
    speeds = [line["tokens_per_second"] for line in read_log(run, "train")]
    return {
        "training_steps": progress.step,
        "training_seconds": round(progress.seconds),
        "training_target_tokens": progress.target_tokens,
        "training_tokens_per_second": round(statistics.median(speeds)) if speeds else None,
        "fastest_tokens_per_second": round(max(speeds)) if speeds else None,
    }
