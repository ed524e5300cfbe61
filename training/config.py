"""The settings of a training run: a TOML file, read into frozen classes that check every key."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from lingon.bundle import BeamSize, Language, Size, TokenCount
from lingon.bundle.schema import unmet_rule
from lingon.errors import SettingsError


class Settings(BaseModel):
    """A frozen block of settings that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def bundle_rule(kind: Any) -> AfterValidator:
    """Apply the rule of a field of a bundle, so that no training makes a model that cannot be exported."""

    def check(value: Any) -> Any:
        if rule := unmet_rule(kind, value):
            raise PydanticCustomError("bundle", "must be {rule}", {"rule": rule})
        return value

    return AfterValidator(check)


class Corpus(Settings):
    """Line-parallel text: two files, plain or .gz, or one TSV with the source in column 1, the target in 2."""

    source: Path | None = None
    target: Path | None = None
    tsv: Path | None = None
    repeat: Annotated[int, Field(ge=1)] = 1  # how often an epoch has each pair that passes the filters

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.tsv is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError("name either source and target, or tsv")
        return self

    def files(self) -> list[Path]:
        """Return the files of the corpus."""
        return [path for path in (self.source, self.target, self.tsv) if path is not None]


class DataSettings(Settings):
    """The corpora, and the filters of their pairs."""

    source_language: Annotated[str, bundle_rule(Language)] = "en"
    target_language: Annotated[str, bundle_rule(Language)] = "de"
    train: Annotated[tuple[Corpus, ...], Field(min_length=1)]
    valid: Corpus
    max_tokens: Annotated[int, Field(ge=2)] = (
        128  # tokens on each side, the end token counted; a longer pair is dropped
    )
    max_ratio: Annotated[float, Field(ge=1)] = (
        3.0  # longer side to shorter side, in characters; 25 more are always allowed
    )
    drop_duplicates: bool = True

    @model_validator(mode="after")
    def _valid_once(self) -> Self:
        if self.valid.repeat != 1:
            raise ValueError(f"valid.repeat must be 1, because validation scores a pair once, got {self.valid.repeat}")
        return self


class TokenizerSettings(Settings):
    """The sentencepiece tokenizer."""

    kind: Literal["unigram", "bpe"] = "unigram"
    vocab_size: Annotated[int, Field(ge=16), bundle_rule(Size)] = 8000  # pieces, special ones counted
    joint: bool = True  # one vocabulary for both languages, or one for each
    byte_fallback: bool = True
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9999  # the bounds of sentencepiece
    path: Path | None = None  # folder of a trained tokenizer; without it the run trains one
    sampling_alpha: Annotated[float, Field(ge=0, le=1)] = (
        0.0  # exponent of subword regularisation (unigram only); 0 is off
    )

    @model_validator(mode="after")
    def _can_sample(self) -> Self:
        if self.sampling_alpha and self.kind != "unigram":
            raise ValueError(f"sampling_alpha = {self.sampling_alpha} needs kind = 'unigram', got {self.kind!r}")
        return self


DROPOUT_STEPS = 2**16  # on a CPU the rate of dropout is rounded to a multiple of 1 / DROPOUT_STEPS


class ModelSettings(Settings):
    """The size and the variant of the Transformer; the preset gives the sizes that are not set."""

    preset: Literal["tiny", "small", "base", "big", "deep-encoder"] = "small"
    dim: Annotated[int, Field(ge=2)]
    heads: Annotated[int, Field(ge=1)]
    ffn: Annotated[int, Field(ge=1)]
    encoder_layers: Annotated[int, Field(ge=1)]
    decoder_layers: Annotated[int, Field(ge=1)]
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_positions: Annotated[int, Field(ge=2), bundle_rule(TokenCount)] = 256
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    tie: Literal["all", "decoder", "none"] = "all"

    @property
    def head_dim(self) -> int:
        """The width of a head, d_k."""
        return self.dim // self.heads

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {**PRESETS.get(str(given.get("preset", "small")), {}), **given}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"heads must divide dim ({self.dim}), got {self.heads}")
        if self.dim % 2:
            raise ValueError(f"dim must be even, got {self.dim}")
        if self.dropout and not 1 <= DROPOUT_STEPS * self.dropout <= DROPOUT_STEPS - 1:
            bounds = f"1/{DROPOUT_STEPS} to {DROPOUT_STEPS - 1}/{DROPOUT_STEPS}"
            raise ValueError(f"dropout must be 0 or from {bounds}, got {self.dropout}")
        return self


def _preset(dim: int, heads: int, ffn: int, encoder_layers: int, decoder_layers: int) -> dict[str, int]:
    return dict(dim=dim, heads=heads, ffn=ffn, encoder_layers=encoder_layers, decoder_layers=decoder_layers)


PRESETS = {  # head_dim is 64 in all but tiny, which suits the fast attention kernels of ONNX Runtime
    "tiny": _preset(32, 2, 64, 2, 2),
    "small": _preset(256, 4, 1024, 3, 3),
    "base": _preset(512, 8, 2048, 6, 6),
    "big": _preset(1024, 16, 4096, 6, 6),
    "deep-encoder": _preset(512, 8, 2048, 12, 1),
}
PAPER_WARMUP_STEPS = {"base": 4000, "big": 4000}  # updates, of the models of Vaswani et al. (2017), section 5.3


def paper_learning_rate(dim: int, warmup_steps: int) -> float:
    """Return the peak of the learning rate of Vaswani et al. (2017), equation 3: (dim * warmup_steps) ** -0.5."""
    return float((dim * warmup_steps) ** -0.5)


class TrainingSettings(Settings):
    """The training loop: batch size, learning rate, length of the run, precision, validation, checkpoints."""

    batch_tokens: Annotated[int, Field(ge=1)] = 4096  # padded tokens of a forward pass, on each side
    accumulate: Annotated[int, Field(ge=1)] = 1  # forward passes of an update, over all processes
    max_steps: Annotated[int, Field(ge=1)] = 20_000  # updates
    # The presets base and big have other defaults of the next two settings: those of PAPER_WARMUP_STEPS.
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3  # the peak, at the end of the warm-up
    warmup_steps: Annotated[int, Field(ge=1)] = 1000  # updates
    cooldown_steps: Annotated[int, Field(ge=0)] = 0  # last updates, over which the rate falls linearly to 0
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    clip_norm: Annotated[float, Field(gt=0)] = 1.0  # bound of the norm of the gradient
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # decoupled, as in AdamW
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of matrix products; weights and sums are fp32
    compile: bool = False  # with torch.compile
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    log_every: Annotated[int, Field(ge=1)] = 50  # updates between two log lines
    valid_every: Annotated[int, Field(ge=1)] = 1000  # updates between two checkpoints with validation
    valid_sentences: Annotated[int, Field(ge=1)] = 500  # sentences to translate for BLEU and chrF
    valid_beam_size: Annotated[int, bundle_rule(BeamSize)] = 1
    patience: Annotated[int, Field(ge=0)] = 0  # validations without a better BLEU before the run stops; 0 never stops
    keep_checkpoints: Annotated[int, Field(ge=1)] = 5  # the last ones; the best one is always kept

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.cooldown_steps >= self.max_steps:
            raise ValueError(f"cooldown_steps must be below max_steps ({self.max_steps}), got {self.cooldown_steps}")
        return self


class Config(Settings):
    """All settings of a training run."""

    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = Field(default_factory=lambda: ModelSettings.model_validate({}))
    training: TrainingSettings = TrainingSettings()

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

    @property
    def max_source_tokens(self) -> int:
        """The longest source that the model translates whole, in tokens with the end token; also that of its bundle."""
        return min(self.data.max_tokens, self.model.max_positions)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.model.tie == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie = 'all' needs tokenizer.joint = true, because two vocabularies cannot share one matrix"
            )
        if self.data.max_tokens >= self.model.max_positions:
            raise ValueError(
                f"data.max_tokens must be below model.max_positions ({self.model.max_positions}), "
                f"got {self.data.max_tokens}"
            )
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read the settings of a TOML file, or of a saved config.json.

    overrides: block.key=value, each replaces one key of the file

    Relative paths in the settings are relative to the folder of the file. Raises SettingsError.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None
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
        raise SettingsError(f"{origin}: {_explain(first)}") from None


def setting_differences(old: Settings, new: Settings) -> Iterator[str]:
    """Yield every setting that differs, as `block.key: old -> new`."""
    return _differences(old.model_dump(mode="json"), new.model_dump(mode="json"))


def model_differences(old: ModelSettings, new: ModelSettings) -> list[str]:
    """Return every setting that differs and makes weights of the old model wrong or unusable in the new one."""
    weightless = {"preset", "dropout"}
    if old.positions == new.positions == "sinusoidal":  # computed for any length
        weightless.add("max_positions")
    before, now = (settings.model_dump(mode="json", exclude=weightless) for settings in (old, new))
    return list(_differences(before, now, "model."))


def _differences(old: dict[str, Any], new: dict[str, Any], block: str = "") -> Iterator[str]:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old[key], dict):
            yield from _differences(old[key], value, f"{block}{key}.")
        elif value != old[key]:
            yield f"{block}{key}: {old[key]} -> {value}"


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
    block[last] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # not TOML: an unquoted string


def _with_absolute_paths(config: Config, folder: Path) -> Config:
    def moved(corpus: Corpus) -> Corpus:
        paths = {name: folder / path for name in ("source", "target", "tsv") if (path := getattr(corpus, name))}
        return corpus.model_copy(update=paths)

    corpora = {"train": tuple(map(moved, config.data.train)), "valid": moved(config.data.valid)}
    tokenizer = config.tokenizer
    if tokenizer.path is not None:
        tokenizer = tokenizer.model_copy(update={"path": folder / tokenizer.path})
    return config.model_copy(update={"data": config.data.model_copy(update=corpora), "tokenizer": tokenizer})


def _explain(error: ErrorDetails) -> str:
    """Return one line with the key, its rule and the value."""
    key = ".".join(map(str, error["loc"]))
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key}{_suggestion(error['loc'])}"
        case "missing":
            return f"{key} is missing"
        case "too_short":
            return f"{key} needs at least one entry, got {error['input']!r}"
        case "value_error":
            return f"{key}: {message}" if key else message
        case "model_type" | "model_attributes_type":
            return f"{key or 'the whole'} must be a block of settings, got {error['input']!r}"
    return f"{key} {message[0].lower()}{message[1:]}, got {error['input']!r}"


def _suggestion(location: tuple[int | str, ...]) -> str:
    """Return a hint with the known key that is most similar to the last part of location, or with all known keys."""
    blocks: dict[str, type[Settings]] = {
        "data": DataSettings,
        "tokenizer": TokenizerSettings,
        "model": ModelSettings,
        "training": TrainingSettings,
    }
    owner = Config if len(location) == 1 else blocks[str(location[0])] if len(location) == 2 else Corpus
    close = difflib.get_close_matches(str(location[-1]), owner.model_fields, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(owner.model_fields)}"
