from __future__ import annotations

from pathlib import Path

import pytest

from lingon.training.checkpoint import Checkpoint
from lingon.training.config import load_config
from lingon.training.corpus import Pair, read_pairs
from tests.support.random_models import random_checkpoint
from tests.support.training_runs import tiny_config_text, write_digit_corpus


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=200)
    (folder / "config.toml").write_text(tiny_config_text())
    return list(read_pairs(load_config(folder / "config.toml").data.train[0]))


@pytest.fixture
def checkpoint(tmp_path: Path, pairs: list[Pair]) -> Checkpoint:
    """A checkpoint with random weights, in memory."""
    return random_checkpoint(tmp_path, pairs)
