"""The trial run: the config of a pair with a tiny model on the sample sentences of the repository."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.multi30k.plan import SETS
from lingon.bench.workloads.sample_corpus import corpus_overrides

PARTS = {"train": 200, "valid": 4, **dict.fromkeys(SETS, 4)}  # sentences


def overrides(pair: str, folder: Path) -> list[str]:
    """The settings to override for a run of about a second: the corpus in folder, and a tiny model."""
    sizes = {
        "tokenizer.vocab_size": 200,
        "model.dim": 16,
        "model.ffn": 16,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "training.batch_tokens": 1000,
        "training.max_steps": 12,
        "training.valid_every": 4,
        "training.log_every": 4,
    }
    return [*corpus_overrides(folder, f"multi30k.{pair}"), *(f"{key}={value}" for key, value in sizes.items())]
