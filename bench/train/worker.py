"""A training loop in a process of its own: `python -m lingon.bench.train.worker` learns and tells how fast, as JSON
lines.

First the run: which loop, its settings, its scratch folder. Then every line asks for as many updates again.
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

from lingon.bench.train.baseline import PlainLoop
from lingon.bench.worker_process import send_errors
from lingon.text import Tokenizer
from lingon.training.config import Config, parse_config
from lingon.training.data.batches import drop_long, encode_pairs
from lingon.training.data.corpus import read_training_text
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.report import Report
from lingon.training.run.setup import open_run

Figures = dict[str, float]


class Paced(Report):
    """The report of a real run: it tells the figures of every log line, and holds the run until it may go on.

    The loop's own clock starts anew after each line, so that what waits here is in nobody's time.
    """

    def __init__(
        self, tell: Callable[[Figures], None], go_on: Callable[[], bool], run: Path, max_steps: int, *, enabled: bool
    ) -> None:
        """go_on: waits until the next updates are wanted; False where none are. It reports only through tell."""
        super().__init__(run, max_steps, enabled=False)
        self._tell, self._go_on = tell, go_on

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        """See lingon.training.run.report.Report."""
        self._tell({"tokens_per_s": figures["tokens_per_second"], "loss": figures["loss"]})
        if not self._go_on():
            raise Ended


class Ended(Exception):
    """No more updates are wanted."""


def ours(config: Config, folder: Path, tell: Callable[[Figures], None], go_on: Callable[[], bool]) -> None:
    """`lingon train` itself, which logs after every log_every updates."""
    report = partial(Paced, tell, go_on)
    with contextlib.suppress(Ended), open_run(config, folder, Interrupt(), report=report) as trainer:
        tell({"weights": sum(parameter.numel() for parameter in trainer.model.parameters())})
        if go_on():
            trainer.run()


def plain(config: Config, folder: Path, tell: Callable[[Figures], None], go_on: Callable[[], bool]) -> None:
    """The loop of lingon.bench.train.baseline on the same pairs."""
    assert config.tokenizer.path is not None
    tokenizer = Tokenizer.read(config.tokenizer.path)
    text = drop_long(read_training_text(config.data), tokenizer, config.data.max_tokens)
    pairs = encode_pairs(text.epoch(), tokenizer)
    loop = PlainLoop(config.model, config.training, pairs, tokenizer.target_vocab)
    tell({"weights": sum(parameter.numel() for parameter in loop.model.parameters())})
    while go_on():
        start = time.perf_counter()
        tokens, loss = loop.run(config.training.log_every)
        tell({"tokens_per_s": tokens / (time.perf_counter() - start), "loss": loss})


LOOPS = {"ours": ours, "plain": plain}


def main() -> None:
    """Learn until nobody asks."""
    first: dict[str, Any] = json.loads(sys.stdin.readline())
    lines: Iterator[str] = iter(sys.stdin)

    def tell(figures: Figures) -> None:
        print(json.dumps(figures), flush=True)

    def go_on() -> bool:
        return next(lines, None) is not None

    with send_errors():
        LOOPS[first["loop"]](parse_config(first["config"], "worker"), Path(first["folder"]), tell, go_on)


if __name__ == "__main__":
    main()
