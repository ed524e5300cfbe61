"""The trial run: the config of a pair with a tiny model on the sample sentences of the repository."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

from lingon.bench.multi30k.plan import SETS
from lingon.bench.workloads.sample_sentences import sample_file
from lingon.files import make_folders, write_bytes
from lingon.lines import read_lines

PARTS = {"train": 200, "valid": 4, **dict.fromkeys(SETS, 4)}  # sentences


def write_corpus(pair: str, folder: Path) -> None:
    """Write the files of Multi30k of a pair into folder, with sample sentences in the place of captions."""
    make_folders(folder)
    for language in pair.split("-"):
        lines = read_lines(sample_file(language))
        for part, count in PARTS.items():
            text = "".join(f"{line}\n" for line in itertools.islice(lines, count))
            path = folder / f"multi30k.{pair}.{part}.{language}.gz"
            write_bytes(path, gzip.compress(text.encode(), mtime=0))


def overrides(pair: str, folder: Path) -> list[str]:
    """The settings to override for a run of about a second: the corpus in folder, and a tiny model."""
    source, target = pair.split("-")
    files = {
        f"data.{block}.{side}": f'"{folder / f"multi30k.{pair}.{part}.{language}.gz"}"'
        for block, part in (("train.0", "train"), ("valid", "valid"))
        for side, language in (("source", source), ("target", target))
    }
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
    return [f"{key}={value}" for key, value in (files | sizes).items()]
