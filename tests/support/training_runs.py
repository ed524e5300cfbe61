"""Tiny models, and training runs in this process that can be stopped after a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingon.training.checkpoint import Progress
from lingon.training.config import Config, TransformerSettings, load_config
from lingon.training.models.transformer import Transformer
from lingon.training.run.interrupt import Interrupt
from lingon.training.run.report import Report
from lingon.training.run.setup import open_run
from lingon.training.run.trainer import Trainer
from tests.support.tiny_training import tiny_config_text

VOCAB = 20


def tiny_settings(**settings: Any) -> TransformerSettings:
    return TransformerSettings.model_validate({"preset": "tiny", "max_positions": 24, **settings})


def tiny_model(seed: int = 0, vocab: int = VOCAB, **settings: Any) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(tiny_settings(**settings), vocab, vocab).eval()


class CutAt(Report):
    """A report that requests a stop when it logs a step."""

    def __init__(self, interrupt: Interrupt, step: int, run: Path, max_steps: int, *, enabled: bool) -> None:
        super().__init__(run, max_steps, enabled=enabled)
        self.interrupt, self.step = interrupt, step

    def log_training(self, step: int, figures: Mapping[str, float]) -> None:
        super().log_training(step, figures)
        self.interrupt.requested |= step == self.step


def write_config(folder: Path, name: str = "config.toml", **blocks: dict[str, Any]) -> Config:
    """Write a config of a tiny run on the digit corpus in folder, and return its settings."""
    (folder / name).write_text(tiny_config_text(**blocks), encoding="utf-8")
    return load_config(folder / name)


def train(
    config: Config,
    run: Path,
    cut: int = -1,
    start: Path | None = None,
    before: Callable[[Trainer], object] = lambda trainer: None,
) -> Trainer:
    """Run a training in this process, to its end or until the step after `cut`; `before` is called before it starts."""
    interrupt = Interrupt()
    with open_run(config, run, interrupt, start, partial(CutAt, interrupt, cut)) as trainer:
        before(trainer)
        trainer.run()
    return trainer


def log_of(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def counted(progress: Progress) -> dict[str, Any]:
    """Return the progress of a run without the times."""
    return {name: getattr(progress, name) for name in progress.__slots__ if name != "seconds"}
