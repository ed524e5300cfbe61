"""Training runs of a benchmark: the corpus, training from the last checkpoint to the end, and its cost."""

from __future__ import annotations

import gzip
import itertools
import json
import signal
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lingon.bench.workloads import sample_file
from lingon.errors import CheckpointError, SettingsError
from lingon.files import make_folders, read_lines, write_bytes
from lingon.training import checkpoint as checkpoints
from lingon.training.config import Config
from lingon.training.interrupt import Interrupt
from lingon.training.setup import open_run
from lingon.training.trainer import outcome


def read_log(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return the lines of one kind in the log of a run by step, of a repeated step the last line."""
    path = run / "log.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    complete = text[: text.rfind("\n") + 1]  # A killed run may have written a part of its last line.
    lines = [json.loads(line) for line in complete.splitlines()]
    latest = {line["step"]: line for line in lines if line["kind"] == kind}
    return [latest[step] for step in sorted(latest)]


def corpus_files(folder: Path, prefix: str, part: str) -> tuple[Path, Path]:
    """Return the source and the target file of a part of a corpus.

    prefix: corpus and pair, such as multi30k.en-de; part: such as train
    """
    source, target = prefix.rpartition(".")[2].split("-")
    return folder / f"{prefix}.{part}.{source}.gz", folder / f"{prefix}.{part}.{target}.gz"


def corpus_overrides(folder: Path, prefix: str) -> list[str]:
    """Return the settings of a run that trains on part train of a corpus and validates on part valid."""
    blocks = (("data.train.0", "train"), ("data.valid", "valid"))
    return [
        f'{block}.{side}="{path.resolve()}"'
        for block, part in blocks
        for side, path in zip(("source", "target"), corpus_files(folder, prefix, part), strict=True)
    ]


def write_corpus(folder: Path, prefix: str, part: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write a part of a corpus. The same pairs make the same bytes."""
    make_folders(folder)
    for path, lines in zip(corpus_files(folder, prefix, part), zip(*pairs, strict=True), strict=True):
        write_bytes(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def write_sample_corpus(folder: Path, prefix: str, parts: Mapping[str, int]) -> None:
    """Write sample sentences as a corpus, each at most once. parts: numbers of sentences by the names of the parts."""
    source, target = prefix.rpartition(".")[2].split("-")
    pairs = zip(read_lines(sample_file(source)), read_lines(sample_file(target)), strict=True)
    for part, count in parts.items():
        write_corpus(folder, prefix, part, itertools.islice(pairs, count))


def train(config: Config, run: Path) -> None:
    """Train a run from its last checkpoint to its end. Raise Interrupted if a signal stops it."""
    interrupt = Interrupt()
    with _signals_of(interrupt), open_run(config, run, interrupt) as trainer:
        trainer.run()
        trainer.report.message(outcome(trainer))


@contextmanager
def _signals_of(interrupt: Interrupt) -> Iterator[None]:
    """Let signals stop the training inside the block. After the block they end the command again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupt.install_handlers()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_checkpoints(run: Path, count: int) -> list[Path]:
    """Return the last checkpoints of a run that have a validation, at most `count`, the oldest first.

    Raise CheckpointError without any.
    """
    validated = checkpoints.validated_steps(run)
    if not validated:
        saved = len(checkpoints.saved_steps(run))
        raise CheckpointError(f"{run}: has {saved} checkpoints and none with a validation; train it for longer")
    return validated[-count:]


def training_figures(run: Path) -> dict[str, Any]:
    """Return the cost of the training of a run.

    The speed is the median of its log, because a run may have been suspended. The fastest line of the log is the
    speed without other work on the machine.
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
