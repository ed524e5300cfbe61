"""Checkpoints with random weights, in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lingon.export.gates.translations.quality
from lingon.training.checkpoint import Checkpoint, Progress
from lingon.training.config import load_config
from lingon.training.data.corpus import Pair
from lingon.training.data.tokenizer import train_tokenizer
from lingon.training.models.transformer import Transformer
from tests.support.tiny_training import tiny_config_text, write_digit_corpus


def random_checkpoint(folder: Path, pairs: list[Pair], seed: int = 0, *, byte_pieces: bool = True) -> Checkpoint:
    """Return a checkpoint with random weights and a tokenizer of these pairs; its text is written to folder/text.

    byte_pieces: whether it generates them; in random order they spell nothing, and a server decodes again
    """
    write_digit_corpus(folder / "text", pairs=200)
    (folder / "text" / "config.toml").write_text(tiny_config_text())
    config = load_config(folder / "text" / "config.toml")
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    if not byte_pieces:
        never = tuple(token for token in range(tokenizer.target_vocab) if tokenizer.target.is_byte(token))
        config = config.model_copy(update={"model": config.model.model_copy(update={"never_generated": never})})
    torch.manual_seed(seed)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    return Checkpoint(config, tokenizer, model, Progress(step=7), folder)


def accept_any_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lossy precisions and the shortlist of a model that is not trained pass their gate."""
    for bound, value in {
        "MAX_BLEU_LOSS": 100,
        "MAX_CHRF_LOSS": 100,
        "LEAST_LIKE_BLEU": 0,
        "LEAST_LIKE_CHRF": 0,
    }.items():
        monkeypatch.setattr(lingon.export.gates.translations.quality, bound, value)
