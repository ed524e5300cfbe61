from __future__ import annotations

from pathlib import Path

import pytest

from lingon.text import Tokenizer
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.tokenizer import train_tokenizer
from tests.support.training_runs import write_digit_corpus


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a digit corpus; tests must not write to it."""
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=300)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with a digit corpus that the test may change."""
    write_digit_corpus(tmp_path, pairs=300)
    return tmp_path


@pytest.fixture(scope="session")
def pairs(digits: Path) -> list[Pair]:
    sources, targets = ((digits / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
    return [Pair(*pair) for pair in zip(sources, targets, strict=True)]


@pytest.fixture(scope="session")
def tokenizer(pairs: list[Pair]) -> Tokenizer:
    settings = TokenizerSettings(vocab_size=280, character_coverage=1.0)
    return train_tokenizer(pairs, settings)
