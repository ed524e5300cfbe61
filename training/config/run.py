"""All settings of a run, read from a TOML file or from a saved config.json."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from lingon.errors import SettingsError
from lingon.text import Tokenizer
from lingon.training.config.blocks import (
    Corpus,
    DataSettings,
    LanguagePair,
    OriginSettings,
    TokenizerSettings,
    TrainingSettings,
    pair_name,
    pair_names,
)
from lingon.training.config.kinds import AnyModelSettings
from lingon.training.config.languages import LanguageSettings
from lingon.training.config.messages import explain
from lingon.training.config.model import Settings, default_layer
from lingon.training.config.transformer import PAPER_WARMUP_STEPS, PRESETS, TransformerSettings, paper_learning_rate

CORPUS_FILES = ("source", "target", "tsv", "alignment")
PATHS = {"data": CORPUS_FILES, "tokenizer": ("path",)}
"""The blocks with paths, and the keys that are paths in them or in blocks of them."""


class Config(Settings):
    """All settings of a training run; or of an imported model, which has an origin and no text."""

    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: AnyModelSettings = Field(default_factory=lambda: TransformerSettings.model_validate({}))
    training: TrainingSettings = TrainingSettings()
    origin: OriginSettings | None = None
    languages: LanguageSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_schedule(cls, given: Any) -> Any:
        """Give the presets of the paper its warm-up and its learning rate, unless the config sets them."""
        if not isinstance(given, dict):
            return given
        model, training = given.get("model", {}), given.get("training", {})
        preset = model.get("preset") if isinstance(model, dict) else None
        if not isinstance(preset, str) or preset not in PAPER_WARMUP_STEPS or not isinstance(training, dict):
            return given
        training = {"warmup_steps": PAPER_WARMUP_STEPS[preset], **training}
        dim, warmup_steps = {**PRESETS[preset], **model}["dim"], training["warmup_steps"]
        if all(isinstance(value, int) and value > 0 for value in (dim, warmup_steps)):  # else it is refused below
            training = {"learning_rate": paper_learning_rate(dim, warmup_steps), **training}
        return {**given, "training": training}

    @field_validator("model", mode="before")
    @classmethod
    def _fill_kind(cls, given: Any) -> Any:
        """Make a block without a kind that of a Transformer, as all were before there were kinds."""
        return {"kind": "transformer", **given} if isinstance(given, dict) else given

    @property
    def max_source_tokens(self) -> int:
        """The longest source that the model translates whole, in tokens with the end token; also that of its bundle."""
        return min(self.data.max_tokens, self.model.max_positions)

    @property
    def guided(self) -> tuple[int, tuple[int, ...]]:
        """The decoder layer and its heads whose attention training.guided_alignment guides.

        Garg et al. (2019), section 4.2, guide one head of the last layer but one: the others stay free to attend to
        what helps the translation.
        """
        layer = self.training.guided_layer
        return default_layer(self.model) if layer is None else layer, self.training.guided_heads

    def _check_attention(self) -> None:
        """Raise ValueError if the model does not have the attention that the loss reads."""
        layers, heads = self.model.attention_sizes
        for name, weight in self.training.attention_terms.items():
            if not layers:
                kind = self.model.kind
                raise ValueError(
                    f"training.{name} must be 0 for model.kind = '{kind}', which has no attention, got {weight}"
                )
        if not self.training.guided_alignment:
            return
        layer, guided = self.guided
        if layer >= layers:
            raise ValueError(f"training.guided_layer must be 0 to {layers - 1} for this model, got {layer}")
        if max(guided) >= heads:
            raise ValueError(f"training.guided_heads must be 0 to {heads - 1} for this model, got {list(guided)}")
        if all(corpus.alignment is None for corpus in self.data.train):
            weight = self.training.guided_alignment
            raise ValueError(
                f"training.guided_alignment = {weight} needs data.train.0.alignment, a file of word alignments"
            )

    def _check_own_pair(self) -> None:
        """Raise ValueError if there is training text, but none of the pair of data."""
        data = self.data
        if data.trained and data.languages not in data.trained:
            pairs = pair_names(data.trained)
            raise ValueError(
                "data.source_language and data.target_language must be the pair of a corpus of data.train: "
                f"{pairs}; got {pair_name(data.languages)}"
            )
        if data.temperature != 1 and len(data.trained) == 1:
            raise ValueError(f"data.temperature must be 1 for text of one pair of languages, got {data.temperature}")

    def _check_corpora(self) -> None:
        """Raise ValueError if a corpus is of a pair that the model does not have."""
        data, languages = self.data, self.with_languages().languages
        served = (data.languages,) if languages is None else languages.pairs
        pairs = pair_names(served)
        for name, corpora in (("train", data.train), ("valid", data.valid)):
            for place, pair in enumerate(map(data.languages_of, corpora)):
                if pair not in served:
                    found = pair_name(pair)
                    raise ValueError(f"data.{name}.{place} must be of a pair of the model: {pairs}; got {found}")

    def _check_languages(self) -> None:
        """Raise ValueError if the pair of data is not one of the languages, or a setting needs one pair."""
        languages = self.with_languages().languages
        if languages is None:
            return
        for name, side in (("source_language", languages.sources), ("target_language", languages.targets)):
            tag, tags = getattr(self.data, name), [each.language for each in side]
            if tag not in tags:
                raise ValueError(f"data.{name} must be one of {', '.join(tags[:20])}, as languages says, got {tag!r}")
        if self.data.source_language == self.data.target_language:
            raise ValueError(
                f"data.target_language must differ from data.source_language for a model of several languages, "
                f"got {self.data.target_language!r}"
            )
        if self.training.guided_alignment or self.tokenizer.sampling_alpha:
            name = "training.guided_alignment" if self.training.guided_alignment else "tokenizer.sampling_alpha"
            raise ValueError(f"{name} must be 0 for a model of several languages")

    def with_languages(self) -> Config:
        """Return the settings with the languages of the training text, if it has several pairs and none are set."""
        if self.languages is not None or len(self.data.trained) < 2:
            return self
        return self.model_copy(update={"languages": LanguageSettings.of(self.data.trained)})

    def tokenizer_of_pair(self, tokenizer: Tokenizer, pair: LanguagePair | None = None) -> Tokenizer:
        """Return a tokenizer that frames sources as the model reads them, for a pair, by default that of data.

        Raises SettingsError for unknown pieces.
        """
        tokenizer = tokenizer.with_source_end(source_end=self.tokenizer.source_end)
        if self.languages is None:
            return tokenizer
        return tokenizer.for_languages(self.languages.resolve(tokenizer).tokens(*(pair or self.data.languages)))

    def tokenizers_of_others(self, tokenizer: Tokenizer) -> dict[LanguagePair, Tokenizer]:
        """Return a tokenizer for each pair of the corpora that is not that of data."""
        pairs = dict.fromkeys(map(self.data.languages_of, self.data.corpora))
        return {pair: self.tokenizer_of_pair(tokenizer, pair) for pair in pairs if pair != self.data.languages}

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        for name in ("train", "valid") if self.origin is None else ():
            if name not in self.data.model_fields_set:
                raise ValueError(f"data.{name} is missing")
            if not getattr(self.data, name):
                raise ValueError(f"data.{name} must not be empty")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.model.tie == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie = 'all' needs tokenizer.joint = true, because two vocabularies cannot share one matrix"
            )
        if not self.tokenizer.source_end and self.model.kind != "transformer":
            raise ValueError(f"tokenizer.source_end must be true for model.kind = '{self.model.kind}'")
        self._check_attention()
        self._check_own_pair()
        self._check_languages()
        self._check_corpora()
        if self.data.max_tokens >= self.model.max_positions:
            raise ValueError(
                f"data.max_tokens must be below model.max_positions ({self.model.max_positions}), "
                f"got {self.data.max_tokens}"
            )
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read the settings of a TOML file, or of a saved config.json.

    overrides: block.key=value, each replaces one key of the file

    Relative paths are relative to the folder of the file, those of overrides to the current folder. Raises
    SettingsError.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: its values are nested too deeply") from None
    for override in overrides:
        _override(values, override)
    return _with_absolute_paths(parse_config(values, str(path)), path.parent.resolve())


def parse_config(values: Any, origin: str) -> Config:
    """Check values and return the settings; the SettingsError names origin, key, bound and value."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        # A misspelt key also makes the right key missing. The message about the misspelling helps more.
        first = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
        raise SettingsError(f"{origin}: {explain(first)}") from None


def _override(values: dict[str, Any], override: str) -> None:
    """Apply block.key=value to values; a number is the index of a list, as in data.train.0.repeat=2."""
    key, equals, text = override.partition("=")
    *blocks, last = key.strip().split(".")
    if not equals or not blocks or not all((*blocks, last)):
        raise SettingsError(f"--set must be block.key=value, got {override!r}")
    block: Any = values
    for name in blocks:
        if isinstance(block, list) and name.isdecimal() and int(name) < len(block):
            block = block[int(name)]
        elif isinstance(block, dict):
            block = block.setdefault(name, {})
        else:
            block = None
    if not isinstance(block, dict):
        raise SettingsError(f"--set {override}: {'.'.join(blocks)} is not a block of settings")
    block[last] = _from_current_folder(_value(text.strip()), last, PATHS.get(blocks[0], ()))


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text  # not TOML: an unquoted string


def _from_current_folder(value: Any, key: str, paths: Sequence[str]) -> Any:
    """Return the value of a key with absolute paths; the keys in `paths` have paths."""
    if isinstance(value, dict):
        return {name: _from_current_folder(each, name, paths) for name, each in value.items()}
    if isinstance(value, list):
        return [_from_current_folder(each, key, paths) for each in value]
    return str(Path.cwd() / value) if key in paths and isinstance(value, str) else value


def _with_absolute_paths(config: Config, folder: Path) -> Config:
    def moved(corpus: Corpus) -> Corpus:
        paths = {name: folder / path for name in CORPUS_FILES if (path := getattr(corpus, name))}
        return corpus.model_copy(update=paths)

    train, valid = config.data.train, config.data.valid
    corpora = {"train": tuple(map(moved, train)), "valid": tuple(map(moved, valid))}
    tokenizer = config.tokenizer
    if tokenizer.path is not None:
        tokenizer = tokenizer.model_copy(update={"path": folder / tokenizer.path})
    return config.model_copy(update={"data": config.data.model_copy(update=corpora), "tokenizer": tokenizer})
