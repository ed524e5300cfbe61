"""The task of the tests: reverse a line of digits. A corpus, the settings of a run, and the command that trains."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any


def write_digit_corpus(folder: Path, pairs: int = 2000, seed: int = 1) -> None:
    """Write train, valid and test text (.source and .target) into folder: `3 1 4` translates to `4 1 3`.

    pairs: how many pairs of training text; validation and test text have 50 other pairs each
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
    script = "import sys; from importlib.metadata import EntryPoint; from lingon.cli.main import main; "
    script += "verb = EntryPoint('train', 'lingon.training.cli:train', 'lingon.verbs'); "
    script += "sys.exit(main(entries=[verb]))"
    return [sys.executable, "-W", "error", "-c", script, "train", *map(str, arguments)]


def one_thread() -> dict[str, str]:
    """Return the environment of a command that uses one core."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _block(name: str, values: dict[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""])
