"""The settings of the measured run: those of a config, on text that is at hand."""

from __future__ import annotations

from pathlib import Path

from lingon.bundle import is_bundle, open_bundle
from lingon.training.config import Config, Corpus, load_config

FEW = Path(__file__).resolve().parents[2] / "tests" / "data"
REPEAT = 40  # so that an epoch of the tests' 500 pairs has as many batches as a round has updates


def settings(path: Path, tokenizer: Path, data: Path | None) -> Config:
    """The settings of a config, its text replaced.

    tokenizer: a bundle, or a folder with a sentencepiece model
    data: a folder with tatoeba.SOURCE-TARGET.PART.LANGUAGE.gz, PART being train and valid; without it, the 500 pairs
        of the tests
    """
    config = load_config(path)
    source, target = config.data.source_language, config.data.target_language
    if data is None:
        learned = Corpus(source=FEW / f"tatoeba.{source}", target=FEW / f"tatoeba.{target}", repeat=REPEAT)
        valid = learned.model_copy(update={"repeat": 1})
    else:
        learned, valid = (
            Corpus(source=data / f"{name}.{source}.gz", target=data / f"{name}.{target}.gz")
            for name in (f"tatoeba.{source}-{target}.{part}" for part in ("train", "valid"))
        )
    folder = open_bundle(tokenizer).folder if is_bundle(tokenizer) else tokenizer
    text = config.data.model_copy(update={"train": (learned,), "valid": valid})
    words = config.tokenizer.model_copy(update={"path": folder.resolve()})
    return config.model_copy(update={"data": text, "tokenizer": words})
