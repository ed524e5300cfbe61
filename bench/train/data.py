"""The settings of the measured run: those of a configuration, with other text."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.workloads.sample_sentences import sample_file
from lingon.bundle import is_bundle, open_bundle
from lingon.training.config import Config, Corpus, load_config

REPEAT = 40  # times: with it an epoch of the 500 sample pairs has as many batches as a round has updates


def settings(path: Path, tokenizer: Path, data: Path | None) -> Config:
    """The settings of a configuration, with its text and its tokenizer replaced.

    tokenizer: a bundle, or a folder with a sentencepiece model
    data: a folder with tatoeba.SOURCE-TARGET.PART.LANGUAGE.gz, PART being train and valid; by default the sample
        sentences of the repository
    """
    config = load_config(path)
    source, target = config.data.source_language, config.data.target_language
    if data is None:
        train = Corpus(source=sample_file(source), target=sample_file(target), repeat=REPEAT)
        valid = train.model_copy(update={"repeat": 1})
    else:
        train, valid = (
            Corpus(source=data / f"{name}.{source}.gz", target=data / f"{name}.{target}.gz")
            for name in (f"tatoeba.{source}-{target}.{part}" for part in ("train", "valid"))
        )
    folder = open_bundle(tokenizer).folder if is_bundle(tokenizer) else tokenizer
    text = config.data.model_copy(update={"train": (train,), "valid": valid})
    words = config.tokenizer.model_copy(update={"path": folder.resolve()})
    return config.model_copy(update={"data": text, "tokenizer": words})
