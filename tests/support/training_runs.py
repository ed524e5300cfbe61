"""The task of the tests, to reverse a line of digits: corpora, settings, and training runs in this process."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import EntryPoint
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingon.cli.main import main
from lingon.training.checkpoint import TrainingProgress
from lingon.training.config import Config, load_config
from lingon.training.feed import UpdateGroup
from lingon.training.interrupt import Interrupt
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from lingon.training.report import Report
from lingon.training.setup import open_run
from lingon.training.trainer import Trainer


def write_digit_corpus(folder: Path, pairs: int = 2000, seed: int = 1) -> None:
    """Write train, valid and test text (.source and .target) into folder: `3 1 4` translates to `4 1 3`.

    pairs: of training text. Validation and test text have 50 other pairs each
    """
    draw = random.Random(seed)
    lines: dict[str, None] = {}
    while len(lines) < pairs + 100:
        lines[" ".join(str(draw.randrange(10)) for _ in range(draw.randint(2, 8)))] = None
    texts = list(lines)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", texts[:-100]), ("valid", texts[-100:-50]), ("test", texts[-50:])):
        (folder / f"{name}.source").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
        (folder / f"{name}.target").write_text("".join(f"{line[::-1]}\n" for line in part), encoding="utf-8")


def tiny_config_text(**blocks: dict[str, Any]) -> str:
    """Return the TOML of a run on the digit corpus in the same folder.

    blocks: single keys to override, as in training={"max_steps": 5}; a model with a kind replaces the whole block,
    because its keys are others. Without them the run learns the task: it does 1,000 updates in half a minute on one
    core.
    """
    settings: dict[str, dict[str, Any]] = {
        "data": {"source_language": "en", "target_language": "de", "max_tokens": 20},
        "tokenizer": {"kind": "unigram", "vocab_size": 280, "character_coverage": 1.0},
        "model": {"preset": "tiny", "max_positions": 32, "dropout": 0.0, "norm": "pre"},
        "training": {
            "batch_tokens": 600,
            "max_steps": 1000,
            "learning_rate": 4e-3,
            "warmup_steps": 100,
            "cooldown_steps": 300,
            "log_every": 100,
            "valid_every": 500,
            "valid_sentences": 50,
            "device": "cpu",
        },
    }
    for block, values in blocks.items():
        settings[block] = values if block == "model" and "kind" in values else settings[block] | values
    corpora = '[[data.train]]\nsource = "train.source"\ntarget = "train.target"\n\n'
    corpora += '[data.valid]\nsource = "valid.source"\ntarget = "valid.target"\n'
    return "\n".join([*(_block(name, values) for name, values in settings.items()), corpora])


def train_command(*arguments: object) -> list[str]:
    """Return the command line of `lingon train` with these arguments, to be run in the root of the repository."""
    return _verb_command("train", "", arguments)


def prepare_command(*arguments: object, rows: int) -> list[str]:
    """Return that of `lingon prepare`; rows: lines of a shard, of which the command has more."""
    few = f"from lingon.training.prepare import prepare; prepare.__kwdefaults__['rows'] = {rows}; "
    return _verb_command("prepare", few, arguments)


def _verb_command(verb: str, before: str, arguments: Sequence[object]) -> list[str]:
    script = f"import sys; from importlib.metadata import EntryPoint; from lingon.cli.main import main; {before}"
    script += f"verb = EntryPoint('{verb}', 'lingon.training.cli:{verb}', 'lingon.verbs'); "
    script += "sys.exit(main(entries=[verb]))"
    return [sys.executable, "-W", "error", "-c", script, verb, *map(str, arguments)]


def one_thread() -> dict[str, str]:
    """Return the environment of a command that uses one core."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _block(name: str, values: dict[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""])


FRENCH = {"source_language": "en", "target_language": "fr"}


def write_corpora(folder: Path, pairs: int = 300, french: int = 100) -> None:
    """Write the text of both pairs: from `write_digit_corpus`, and the first sources with the suffix .copy."""
    write_digit_corpus(folder, pairs)
    for name in ("train", "valid", "test"):
        shutil.copy(folder / f"{name}.source", folder / f"{name}.copy")
    lines = (folder / "train.source").read_text(encoding="utf-8").splitlines(keepends=True)[:french]
    (folder / "train.copy").write_text("".join(lines), encoding="utf-8")


def corpus_block(block: str, source: str, target: str, **keys: str) -> str:
    """Return the TOML of a corpus. block: such as data.train."""
    lines = [f'{name} = "{value}"' for name, value in {"source": source, "target": target, **keys}.items()]
    return "\n".join([f"[[{block}]]", *lines, ""])


def config_text(**blocks: dict[str, Any]) -> str:
    """Return the TOML of a run on the text of `write_corpora` in the same folder. blocks: see `tiny_config_text`."""
    text = tiny_config_text(**blocks).replace("[data.valid]", "[[data.valid]]")
    french = [corpus_block(f"data.{name}", f"{name}.copy", f"{name}.copy", **FRENCH) for name in ("train", "valid")]
    return "\n".join([text, *french])


def write_config_of_pairs(folder: Path, **blocks: dict[str, Any]) -> Config:
    """Write the config of a run into folder, and return its settings."""
    (folder / "config.toml").write_text(config_text(**blocks), encoding="utf-8")
    return load_config(folder / "config.toml")


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
    """Run a training in this process, to its end or until the step after `cut`. Call `before` before it starts."""
    interrupt = Interrupt()
    with open_run(config, run, interrupt, start, partial(CutAt, interrupt, cut)) as trainer:
        before(trainer)
        trainer.run()
    return trainer


# All processes are forks of one that has loaded PyTorch and its optimisers, because loading takes seconds.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.support.training_runs", "torch._dynamo"])


def in_two_processes(work: Callable[..., Any], *arguments: object) -> list[Any]:
    """Return the results of a function of a module in two processes with the environment that torchrun sets."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ProcessPoolExecutor(2, mp_context=_FORKS) as pool:
        both = [pool.submit(_with_rank, rank, port, work, *arguments) for rank in (0, 1)]
        return [each.result(timeout=120) for each in both]


def _with_rank(rank: int, port: int, work: Callable[..., Any], *arguments: object) -> Any:
    place = {"WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    return work(*arguments)


def train_here(config: Path, run: Path) -> int:
    """Train in this process, and return the number of updates."""
    return train(load_config(config), run).progress.step


def start_train(errors: Path, *arguments: object) -> Any:
    """Start `lingon train` in a process of its own, whose standard error is a file."""
    process = _FORKS.Process(target=_train_verb, args=(errors, [*map(str, arguments)]))
    process.start()
    return process


def _train_verb(errors: Path, arguments: list[str]) -> None:
    warnings.simplefilter("error")
    with errors.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    verb = EntryPoint("train", "lingon.training.cli:train", "lingon.verbs")
    sys.exit(main(["train", *arguments], entries=[verb]))


def log_of(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def counted(progress: TrainingProgress) -> dict[str, Any]:
    """Return the progress of a run without the times."""
    return {name: getattr(progress, name) for name in progress.__slots__ if name != "seconds"}


def groups_of_an_epoch(trainer: Trainer) -> list[UpdateGroup]:
    updates = trainer.feed().updates(TrainingProgress())
    return [group for group, _ in takewhile(lambda update: update[0].epoch == 0, updates)]
