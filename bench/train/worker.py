"""A training loop in its own process: `python -m lingon.bench.train.worker` reads and writes JSON lines.

The first line selects the loop, its configuration and its folder; the answer is the number of weights, and from the
baseline the operations of a target token. Each later line runs the updates of one round; the answer is the speed and
the loss.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lingon.bench.train.baseline import BaselineLoop
from lingon.bench.train.flops import flops_per_target_token
from lingon.bench.worker_process import send_errors
from lingon.errors import SettingsError
from lingon.text import Tokenizer
from lingon.training.config import Config, TransformerSettings, parse_config
from lingon.training.data.batches import drop_long, encode_pairs
from lingon.training.data.corpus import read_training_text
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.report import Report
from lingon.training.run.setup import open_run

Figures = dict[str, float]


class PacedReport(Report):
    """The report of a training run: it sends the figures of each log line, then blocks the run until the next round.

    The trainer restarts its clock after each log line, so that the wait is not part of the measured time.
    """

    def __init__(
        self,
        send: Callable[[Figures], None],
        next_round: Callable[[], bool],
        run: Path,
        max_steps: int,
        *,
        enabled: bool,
    ) -> None:
        """next_round: waits for the next round; False if there is none."""
        super().__init__(run, max_steps, enabled=False)
        self._send, self._next_round = send, next_round

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """See lingon.training.run.report.Report."""
        self._send({"tokens_per_s": figures["tokens_per_second"], "loss": figures["loss"]})
        if not self._next_round():
            raise RunEnded


class RunEnded(Exception):
    """Ends the run of the trainer: there is no next round."""


def run_lingon(config: Config, folder: Path, send: Callable[[Figures], None], next_round: Callable[[], bool]) -> None:
    """Run `lingon train`, which logs every log_every updates."""
    report = partial(PacedReport, send, next_round)
    with contextlib.suppress(RunEnded), open_run(config, folder, Interrupt(), report=report) as trainer:
        send({"weights": sum(parameter.numel() for parameter in trainer.model.parameters())})
        if next_round():
            trainer.run()


def run_baseline(config: Config, folder: Path, send: Callable[[Figures], None], next_round: Callable[[], bool]) -> None:
    """Run the loop of lingon.bench.train.baseline on the same pairs."""
    assert config.tokenizer.path is not None
    if not isinstance(config.model, TransformerSettings):
        raise SettingsError(f"the baseline has model.kind = 'transformer' only, got '{config.model.kind}'")
    tokenizer = Tokenizer.read(config.tokenizer.path)
    text = drop_long(read_training_text(config.data), tokenizer, config.data.max_tokens)
    pairs = encode_pairs(text.epoch(), tokenizer)
    loop = BaselineLoop(config.model, config.training, pairs, tokenizer.target_vocab)
    operations = flops_per_target_token(config.model, tokenizer.target_vocab, pairs.lengths())
    send({"weights": sum(parameter.numel() for parameter in loop.model.parameters()), "flops_per_token": operations})
    while next_round():
        start = time.perf_counter()
        tokens, loss = loop.run(config.training.log_every)
        send({"tokens_per_s": tokens / (time.perf_counter() - start), "loss": loss})


LOOPS = {"lingon": run_lingon, "baseline": run_baseline}


def main() -> None:
    """Run rounds until standard input ends."""
    first: dict[str, Any] = json.loads(sys.stdin.readline())
    lines: Iterator[str] = iter(sys.stdin)

    def send(figures: Figures) -> None:
        print(json.dumps(figures), flush=True)

    def next_round() -> bool:
        return next(lines, None) is not None

    with send_errors():
        LOOPS[first["loop"]](parse_config(first["config"], "worker"), Path(first["folder"]), send, next_round)


if __name__ == "__main__":
    main()
