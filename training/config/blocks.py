"""The blocks of settings besides the model: corpora, tokenizer, training loop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from lingon.bundle import BeamSize, Language, Size
from lingon.errors import first_of
from lingon.training.config.model import Settings, bundle_rule

MOST_SHOWN = 20  # pairs of languages in a message
LanguagePair = tuple[str, str]
"""A source and a target language, as the settings write them."""


def pair_name(pair: LanguagePair) -> str:
    """Return a pair of languages for a line of text, such as en:de."""
    return ":".join(pair)


def pair_names(pairs: Iterable[LanguagePair]) -> str:
    """Return pairs of languages for a message of one line, the first MOST_SHOWN of them."""
    return first_of([pair_name(pair) for pair in pairs], MOST_SHOWN)


class Corpus(Settings):
    """Line-parallel text: two files, plain or .gz, or one TSV with the source in column 1, the target in 2."""

    source: Path | None = None
    target: Path | None = None
    tsv: Path | None = None
    alignment: Path | None = None  # word alignments of the pairs, line by line, in Pharaoh form
    repeat: Annotated[int, Field(ge=1)] = 1  # how often an epoch has each pair that passes the filters
    source_language: Annotated[str, bundle_rule(Language)] | None = None  # by default that of the block data
    target_language: Annotated[str, bundle_rule(Language)] | None = None  # likewise

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.tsv is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError("name either source and target, or tsv")
        return self

    def files(self) -> list[Path]:
        """Return the files of the text."""
        return [path for path in (self.source, self.target, self.tsv) if path is not None]


def _corpora(given: Any) -> Any:
    """Return a list of corpora as it is, and one block as a list of it; its errors are those of the block."""
    if isinstance(given, list | tuple):
        return given
    return () if given is None else (Corpus.model_validate(given),)


class DataSettings(Settings):
    """The corpora with their languages, and the filters of their pairs."""

    source_language: Annotated[str, bundle_rule(Language)]  # of each corpus that names no other
    target_language: Annotated[str, bundle_rule(Language)]  # likewise
    train: tuple[Corpus, ...] = ()  # only an imported model may have none
    valid: Annotated[tuple[Corpus, ...], BeforeValidator(_corpora)] = ()  # one block, or a list; likewise
    temperature: Annotated[float, Field(ge=1)] = 1.0  # of the shares of several pairs of languages in an epoch
    max_tokens: Annotated[int, Field(ge=2)] = 128  # on each side, with the end token; a longer pair is dropped
    max_ratio: Annotated[float, Field(ge=1)] = 3.0  # characters of the longer side to the shorter; 25 more are allowed
    drop_duplicates: bool = True

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        """All corpora: those of the training text, then that of the validation text."""
        return (*self.train, *self.valid)

    @property
    def languages(self) -> LanguagePair:
        """The pair of each corpus that names no other."""
        return self.source_language, self.target_language

    @property
    def trained(self) -> tuple[LanguagePair, ...]:
        """The pairs of languages of the training text, each once, in the order of the corpora."""
        return tuple(dict.fromkeys(map(self.languages_of, self.train)))

    def languages_of(self, corpus: Corpus) -> LanguagePair:
        """Return the pair of languages of a corpus."""
        return corpus.source_language or self.source_language, corpus.target_language or self.target_language

    @model_validator(mode="after")
    def _valid_once(self) -> Self:
        for corpus in self.valid:
            if corpus.repeat != 1:
                raise ValueError(f"valid.repeat must be 1, because validation scores a pair once, got {corpus.repeat}")
            if corpus.alignment is not None:
                raise ValueError(f"valid.alignment must be left out: only training is guided, got '{corpus.alignment}'")
        return self


class OriginSettings(Settings):
    """Where an imported model comes from."""

    form: str  # of its files, such as Hugging Face Marian
    licence: str = ""  # as its files state it
    files: dict[str, str]  # their SHA-256 by name


class TokenizerSettings(Settings):
    """The sentencepiece tokenizer."""

    kind: Literal["unigram", "bpe"] = "unigram"
    vocab_size: Annotated[int, Field(ge=16), bundle_rule(Size)] = 8000  # pieces, special ones counted
    joint: bool = True  # one vocabulary for both languages, or one for each
    byte_fallback: bool = True
    source_end: bool = True  # whether a source ends with the end token
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9999  # the bounds of sentencepiece
    path: Path | None = None  # folder of a trained tokenizer; without it the run trains one
    sampling_alpha: Annotated[float, Field(ge=0, le=1)] = 0.0  # of subword regularisation (unigram only); 0 is off

    @model_validator(mode="after")
    def _can_sample(self) -> Self:
        if self.sampling_alpha and self.kind != "unigram":
            raise ValueError(f"sampling_alpha = {self.sampling_alpha} needs kind = 'unigram', got {self.kind!r}")
        return self


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
    diagonal_penalty: Annotated[float, Field(ge=0)] = 0.0  # weight of the attention far from the diagonal in the loss
    guided_alignment: Annotated[float, Field(ge=0)] = 0.0  # weight of the word alignments of data.train in the loss
    guided_layer: Annotated[int, Field(ge=0)] | None = None  # decoder layer that they guide; null is the last but one
    guided_heads: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)  # of that layer
    clip_norm: Annotated[float, Field(gt=0)] = 1.0  # bound of the norm of the gradient
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # decoupled, as in AdamW
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of matrix products; weights and sums are fp32
    compile: bool = False  # with torch.compile
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    log_every: Annotated[int, Field(ge=1)] = 50  # updates between two log lines
    valid_every: Annotated[int, Field(ge=1)] = 1000  # updates between two checkpoints with validation
    valid_sentences: Annotated[int, Field(ge=1)] = 500  # to translate for BLEU and chrF, of each pair of languages
    valid_beam_size: Annotated[int, bundle_rule(BeamSize)] = 1
    patience: Annotated[int, Field(ge=0)] = 0  # validations without a better one before the run stops; 0 never stops
    keep_checkpoints: Annotated[int, Field(ge=1)] = 5  # the last validated ones; the best one is always kept

    @property
    def attention_terms(self) -> dict[str, float]:
        """The settings by which attention is a part of the loss, without those that are 0."""
        terms = {"diagonal_penalty": self.diagonal_penalty, "guided_alignment": self.guided_alignment}
        return {name: weight for name, weight in terms.items() if weight}

    @model_validator(mode="after")
    def _heads_once(self) -> Self:
        if len(set(self.guided_heads)) < len(self.guided_heads):
            raise ValueError(f"guided_heads must name a head once, got {list(self.guided_heads)}")
        return self

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.cooldown_steps >= self.max_steps:
            raise ValueError(f"cooldown_steps must be below max_steps ({self.max_steps}), got {self.cooldown_steps}")
        return self
