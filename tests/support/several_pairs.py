"""A task of two pairs of languages: a line of digits is reversed into de, and stays as it is into fr."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lingon.training.config import Config, load_config
from tests.support.tiny_training import tiny_config_text, write_digit_corpus

FRENCH = {"source_language": "en", "target_language": "fr"}


def write_corpora(folder: Path, pairs: int = 300, french: int = 100) -> None:
    """Write the text of both pairs: that of `write_digit_corpus`, and the first sources with the suffix .copy."""
    write_digit_corpus(folder, pairs)
    for name in ("train", "valid", "test"):
        shutil.copy(folder / f"{name}.source", folder / f"{name}.copy")
    lines = (folder / "train.source").read_text(encoding="utf-8").splitlines(keepends=True)[:french]
    (folder / "train.copy").write_text("".join(lines), encoding="utf-8")


def corpus_block(block: str, source: str, target: str, **keys: str) -> str:
    """Return the TOML of a corpus; block: such as data.train."""
    lines = [f'{name} = "{value}"' for name, value in {"source": source, "target": target, **keys}.items()]
    return "\n".join([f"[[{block}]]", *lines, ""])


def config_text(**blocks: dict[str, Any]) -> str:
    """Return the TOML of a run on the text of `write_corpora` in the same folder; blocks: see `tiny_config_text`."""
    text = tiny_config_text(**blocks).replace("[data.valid]", "[[data.valid]]")
    french = [corpus_block(f"data.{name}", f"{name}.copy", f"{name}.copy", **FRENCH) for name in ("train", "valid")]
    return "\n".join([text, *french])


def write_config_of_pairs(folder: Path, **blocks: dict[str, Any]) -> Config:
    """Write the config of a run into folder, and return its settings."""
    (folder / "config.toml").write_text(config_text(**blocks), encoding="utf-8")
    return load_config(folder / "config.toml")
