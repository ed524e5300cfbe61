from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lingon.training.checkpoint import Checkpoint, Progress
from lingon.training.config import load_config
from lingon.training.data.corpus import Pair, read_pairs
from lingon.training.data.tokenizer import train_tokenizer
from lingon.training.models.transformer import Transformer
from tests.support.tiny_training import tiny_config_text, write_digit_corpus


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=200)
    (folder / "config.toml").write_text(tiny_config_text())
    return list(read_pairs(load_config(folder / "config.toml").data.train[0]))


@pytest.fixture
def checkpoint(tmp_path: Path, pairs: list[Pair]) -> Checkpoint:
    """A checkpoint with random weights, in memory."""
    write_digit_corpus(tmp_path / "text", pairs=200)
    (tmp_path / "text" / "config.toml").write_text(tiny_config_text())
    config = load_config(tmp_path / "text" / "config.toml")
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    torch.manual_seed(0)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    return Checkpoint(config, tokenizer, model, Progress(step=7), tmp_path)
