"""The settings of the measured run: those of a configuration, with other text."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.workloads.sample_sentences import sample_file
from lingon.bundle import is_bundle, open_bundle
from lingon.errors import SettingsError
from lingon.training.config import PRESETS, Config, Corpus, TransformerSettings, load_config

CUDA_PRESET, CUDA_BATCH_TOKENS = "base", 32_768
"""What is measured on CUDA by default, in place of the model and the batches of a configuration for a small machine."""

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
    text = config.data.model_copy(update={"train": (train,), "valid": (valid,)})
    words = config.tokenizer.model_copy(update={"path": folder.resolve()})
    return config.model_copy(update={"data": text, "tokenizer": words})


def on_device(config: Config, device: str, preset: str | None, batch_tokens: int | None) -> Config:
    """The settings with a device, cpu or cuda, and another model or other batches, if they are given or CUDA's.

    preset: of the model; batch_tokens: padded tokens of an update on each side
    """
    if device == "cuda":
        preset, batch_tokens = preset or CUDA_PRESET, batch_tokens or CUDA_BATCH_TOKENS
    if preset is not None and preset not in PRESETS:
        raise SettingsError(f"--preset must be of {', '.join(PRESETS)}, got {preset}")
    training: dict[str, object] = {"device": device}
    if batch_tokens is not None:
        training["batch_tokens"] = batch_tokens
    model = config.model
    if preset is not None:
        kept = model.model_dump(include={"norm", "activation", "positions", "max_positions", "dropout", "tie"})
        model = TransformerSettings.model_validate({**kept, "preset": preset})
    return config.model_copy(update={"model": model, "training": config.training.model_copy(update=training)})
