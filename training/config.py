"""The settings of a training run, which check every key: corpora, tokenizer, languages, training loop, model."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from lingon.bundle.manifest import BeamSize, BundleSize, Language, Languages, SourceLanguage, TargetLanguage
from lingon.errors import SettingsError, first_of
from lingon.files import PACKINGS, is_packed, without_packing
from lingon.object_stores import is_url
from lingon.terms.annotation import OWN_FORM, AnnotationForm
from lingon.text import UNK, LanguageTokens, Tokenizer
from lingon.training.model_settings import (
    MODEL_KINDS,
    PAPER_WARMUP_STEPS,
    PRESETS,
    AnyModelSettings,
    ModelSettings,
    SettingsBlock,
    TransformerSettings,
    bundle_rule,
    default_layer,
    paper_learning_rate,
)

# The blocks of settings besides the model: corpora, tokenizer, training loop.

MOST_SHOWN = 20  # pairs of languages in a message
LanguagePair = tuple[str, str]
"""A source and a target language, as the settings write them."""


def pair_name(pair: LanguagePair) -> str:
    """Return a pair of languages for a line of text, such as en:de."""
    return ":".join(pair)


def pair_names(pairs: Iterable[LanguagePair]) -> str:
    """Return pairs of languages for a message of one line, the first MOST_SHOWN of them."""
    return first_of([pair_name(pair) for pair in pairs], MOST_SHOWN)


FILE_FORMS = (".tsv", ".jsonl", ".tmx", ".parquet")
"""The endings of files that hold both sides. All but Parquet may be packed."""


def _column(given: Any) -> int | str:
    """Return a column: its name, or its number from 1."""
    if (isinstance(given, str) and given) or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise PydanticCustomError("column", "must be a name or a number from 1")


Column = Annotated[int | str, PlainValidator(_column)]
COLUMNS = ("source_column", "target_column", "score_column")


class Corpus(SettingsBlock):
    """Parallel text: two files, line by line, or one file that holds both sides. All but Parquet may be packed."""

    source: Path | None = None
    target: Path | None = None
    file: Path | None = None  # instead of source and target; its ending, one of FILE_FORMS, says its form
    source_column: Column | None = None  # of file, by default 'source', in TSV 1; a name needs a line of names there
    target_column: Column | None = None  # likewise, by default 'target', in TSV 2
    score_column: Column | None = None  # of file, with a number for each pair
    scores: Path | None = None  # a number for each pair of source and target, line by line
    alignment: Path | None = None  # word alignments of the pairs, line by line, in Pharaoh form
    name: Annotated[str, Field(min_length=1)] | None = None  # by which training.stage gives it a weight
    repeat: Annotated[int, Field(ge=1)] = 1  # how often an epoch has each pair that passes the filters
    tag: Annotated[str, Field(min_length=1)] | None = None  # piece before each source, such as <BT> for machine output
    source_language: Annotated[str, bundle_rule(Language)] | None = None  # by default that of the block data
    target_language: Annotated[str, bundle_rule(Language)] | None = None  # likewise

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.file is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError("name either source and target, or file")
        if self.file is None:
            return self
        if self.form not in FILE_FORMS or (self.form == ".parquet" and is_packed(self.file.name)):
            packed = f"all but .parquet also in one of them and {', '.join(PACKINGS)}"
            raise ValueError(f"file must end in {', '.join(FILE_FORMS)}, {packed}, got '{self.file}'")
        if self.scores is not None:
            raise ValueError(f"scores must be left out: those of file are in score_column, got '{self.scores}'")
        return self

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        columns = dict(zip(COLUMNS, (*self.columns, self.score_column), strict=True))
        named, given = (
            self.form in (".jsonl", ".parquet"),
            {name for name in COLUMNS if getattr(self, name) is not None},
        )
        for name, column in columns.items():
            if name in given and self.form not in (".tsv", ".jsonl", ".parquet"):
                raise ValueError(f"{name} must be left out without a file of .tsv, .jsonl or .parquet, got {column!r}")
            if named and isinstance(column, int):
                raise ValueError(f"{name} must be a name for {self.form}, got {column!r}")
        found = {name: column for name, column in columns.items() if column is not None}
        if len(set(map(type, found.values()))) > 1:
            raise ValueError(f"columns must be all names or all numbers, got {found}")
        return self

    @property
    def form(self) -> str | None:
        """The ending of file, without that of a packing; None for source and target."""
        return None if self.file is None else Path(without_packing(self.file.name)).suffix

    @property
    def columns(self) -> tuple[int | str, int | str]:
        """The columns of source and target in file."""
        source, target = (1, 2) if self.form == ".tsv" else ("source", "target")
        return self.source_column or source, self.target_column or target

    def text_files(self) -> list[str]:
        """Return the keys of the files of the text and of its scores."""
        return [name for name in ("source", "target", "file", "scores") if getattr(self, name) is not None]

    def files(self) -> list[Path]:
        """Return the files of the text."""
        return [path for path in (self.source, self.target, self.file) if path is not None]


def _corpora(given: Any) -> Any:
    """Return a list of corpora as it is, and one block as a list of it. Its errors are those of the block."""
    if isinstance(given, list | tuple):
        return given
    return () if given is None else (Corpus.model_validate(given),)


Share = Annotated[float, Field(ge=0, le=1)]


class FilterSettings(SettingsBlock):
    """The filters of the training text that look at one pair, besides those of an empty side and of the ratio.

    All but `encoding`, which drops nothing that anyone wrote so, are off by default.
    """

    encoding: bool = True  # drop pairs with U+FFFD, or with UTF-8 that was read as another encoding
    min_score: float | None = None  # of a corpus with scores; others have no bound
    near_duplicates: bool = False  # drop pairs that differ from an earlier one in case, digits and signs alone
    same_brackets: bool = False  # drop pairs of which one side alone opens or closes a bracket too many
    max_word: Annotated[int, Field(ge=1)] | None = None  # characters of the longest word
    min_mean_word: Annotated[float, Field(ge=0)] = 0.0  # characters of a word on average, on each side
    max_mean_word: Annotated[float, Field(ge=1)] | None = None  # likewise
    min_letters: Share = 0.0  # of letters among the characters of each side, blanks aside
    min_script: Share = 0.0  # of the scripts of its language among the letters of each side
    max_copy: Annotated[int, Field(ge=0)] | None = None  # letters of sides that differ in case, digits and signs alone
    same_addresses: bool = False  # drop pairs with other hosts of URLs or of e-mail addresses on each side
    min_numbers: Share = 0.0  # of the digits that both sides have, zeros aside; 2 more are allowed
    max_repetition: Share = 1.0  # of three words in a row that the same side had before
    min_language: Share = 0.0  # probability of its language for each side of 40 bytes or more; needs the extra detect
    max_token_ratio: Annotated[float, Field(ge=1)] | None = (
        None  # of the longer side to the shorter; 5 more are allowed
    )

    @model_validator(mode="after")
    def _word_bounds(self) -> Self:
        if self.max_mean_word is not None and self.min_mean_word > self.max_mean_word:
            raise ValueError(
                f"min_mean_word must be at most max_mean_word ({self.max_mean_word}), got {self.min_mean_word}"
            )
        return self


class TermSettings(SettingsBlock):
    """Sources that are annotated with the translations of some of their words, so that a model learns to use terms.

    What is annotated is drawn anew in each epoch. Phrases come from the word alignments of the corpora. No validation
    text is annotated.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the pairs of an epoch that have links
    max_terms: Annotated[int, Field(ge=1)] = 3  # of a pair; each number up to it is equally likely
    max_words: Annotated[int, Field(ge=1)] = 3  # of a term, on each side
    min_letters: Annotated[int, Field(ge=1)] = 3  # of a term, on each side
    begin: str = OWN_FORM.begin  # the marker before the phrase of the source
    middle: str = OWN_FORM.middle  # the marker between that phrase and its translation
    end: str = OWN_FORM.end  # the marker after its translation

    @model_validator(mode="after")
    def _form_fits(self) -> Self:
        if (problem := self.form.problem()) is not None:
            raise ValueError(problem)
        return self

    @property
    def form(self) -> AnnotationForm:
        """The markers."""
        return AnnotationForm(self.begin, self.middle, self.end)


class DataSettings(SettingsBlock):
    """The corpora with their languages, the filters of their pairs, and where they are prepared."""

    source_language: Annotated[str, bundle_rule(Language)]  # of each corpus that names no other
    target_language: Annotated[str, bundle_rule(Language)]  # likewise
    train: tuple[Corpus, ...] = ()  # only an imported model may have none
    valid: Annotated[tuple[Corpus, ...], BeforeValidator(_corpora)] = ()  # one block, or a list; likewise
    temperature: Annotated[float, Field(ge=1)] = 1.0  # of the shares of several pairs of languages in an epoch
    max_tokens: Annotated[int, Field(ge=2)] = 128  # on each side, with the end token; a longer pair is dropped
    max_ratio: Annotated[float, Field(ge=1)] = 3.0  # characters of the longer side to the shorter; 25 more are allowed
    drop_duplicates: bool = True
    held_out: tuple[Path, ...] = ()  # texts of test sets, one a line; like validation text, no training text has them
    prepared: Path | None = None  # folder of the prepared corpus; without it that is the folder corpus of the run
    filters: FilterSettings = FilterSettings()
    terms: TermSettings | None = None  # which sources are annotated with terms; without it none is

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

    @field_validator("train", "valid")
    @classmethod
    def _languages_of_memories(cls, corpora: tuple[Corpus, ...], info: ValidationInfo) -> tuple[Corpus, ...]:
        """Give each translation memory its languages, because its file has others too."""
        given = {name: info.data.get(name) for name in ("source_language", "target_language")}
        return tuple(
            corpus.model_copy(update={name: getattr(corpus, name) or value for name, value in given.items()})
            if corpus.form == ".tmx"
            else corpus
            for corpus in corpora
        )

    @model_validator(mode="after")
    def _valid_once(self) -> Self:
        names = [corpus.name for corpus in self.train if corpus.name is not None]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"train.name must name one corpus, got {twice!r} twice")
        for corpus in self.valid:
            if corpus.repeat != 1:
                raise ValueError(f"valid.repeat must be 1, because validation scores a pair once, got {corpus.repeat}")
            if corpus.tag is not None:
                raise ValueError(f"valid.tag must be left out: users send no tag, got {corpus.tag!r}")
            if corpus.alignment is not None:
                raise ValueError(f"valid.alignment must be left out: only training is guided, got '{corpus.alignment}'")
        return self


class OriginSettings(SettingsBlock):
    """Where an imported model comes from."""

    form: str  # of its files, such as Hugging Face Marian
    licence: str = ""  # as its files state it
    files: dict[str, str]  # their SHA-256 by name
    source: str = ""  # where they were published, such as a repository with its revision
    scores: dict[str, float] = Field(default_factory=dict)  # published ones by test set and metric, such as flores-bleu


class TokenizerSettings(SettingsBlock):
    """The sentencepiece tokenizer."""

    kind: Literal["unigram", "bpe"] = "unigram"
    vocab_size: Annotated[int, Field(ge=16), bundle_rule(BundleSize)] = 8000  # pieces, special ones counted
    joint: bool = True  # one vocabulary for both languages, or one for each
    byte_fallback: bool = True
    source_end: bool = True  # whether a source ends with the end token
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9999  # the bounds of sentencepiece
    path: Path | None = None  # folder of a trained tokenizer; without it the run trains one
    sample_pairs: Annotated[int, Field(ge=1)] = 70_000  # of the first epoch, drawn at random, that it is learnt from
    sampling_alpha: Annotated[float, Field(ge=0, le=1)] = 0.0  # of subword regularisation (unigram only); 0 is off

    @model_validator(mode="after")
    def _can_sample(self) -> Self:
        if self.sampling_alpha and self.kind != "unigram":
            raise ValueError(f"sampling_alpha = {self.sampling_alpha} needs kind = 'unigram', got {self.kind!r}")
        return self


class StageSettings(SettingsBlock):
    """Updates that see the corpora in shares of their own. A new stage begins with a new epoch."""

    until: Annotated[int, Field(ge=1)] | None = None  # the last update of the stage; only the last stage has none
    # The shares of corpora, by name. Without any the stage has all text by its size.
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)


class TrainingSettings(SettingsBlock):
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
    average_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of the moving average of weights that is saved; 0 is off
    stage: tuple[StageSettings, ...] = ()  # in their order; without any the whole run is one
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of matrix products; weights and sums are fp32
    compile: bool = False  # with torch.compile
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    log_every: Annotated[int, Field(ge=1)] = 50  # updates between two log lines
    valid_every: Annotated[int, Field(ge=1)] = 1000  # updates between two checkpoints with validation
    valid_sentences: Annotated[int, Field(ge=1)] = 500  # to translate for BLEU and chrF, of each pair of languages
    valid_beam_size: Annotated[int, bundle_rule(BeamSize)] = 1
    patience: Annotated[int, Field(ge=0)] = 0  # validations without a better one before the run stops; 0 never stops
    workers: Annotated[int, Field(ge=0)] | None = None  # processes that make batches ahead; null is 2 on CUDA, else 0
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

    def stage_of(self, step: int) -> int:
        """Return the number of the stage of an update, from 0; 0 if the run has no stages."""
        return next((number for number, each in enumerate(self.stage) if step <= (each.until or step)), 0)

    @model_validator(mode="after")
    def _stages_ascend(self) -> Self:
        ends = [each.until for each in self.stage]
        if None in ends[:-1]:
            raise ValueError(f"stage.{ends.index(None)}.until is missing: another stage follows")
        bounds = [end for end in ends if end is not None]
        if any(end >= after for end, after in pairwise(bounds)):
            raise ValueError(f"stage.until must ascend, got {', '.join(map(str, bounds))}")
        if ends and ends[-1] is not None and ends[-1] < self.max_steps:
            raise ValueError(f"the last stage must reach max_steps ({self.max_steps}), got until = {ends[-1]}")
        return self

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.cooldown_steps >= self.max_steps:
            raise ValueError(f"cooldown_steps must be below max_steps ({self.max_steps}), got {self.cooldown_steps}")
        return self


# The settings of a model of several languages: which, and the pieces that name them.

Tag = Annotated[str, bundle_rule(Language)]
PieceNames = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=16)]


class SourceSettings(SettingsBlock):
    """A language that is translated."""

    language: Tag
    before: PieceNames = ()  # pieces of the source vocabulary before those of a text
    after: PieceNames = ()  # pieces after the end token


class TargetSettings(SettingsBlock):
    """A language that is translated into."""

    language: Tag
    source: PieceNames = ()  # pieces of the source vocabulary before all others
    forced: PieceNames = ()  # pieces of the target vocabulary that every translation begins with


class LanguageSettings(SettingsBlock):
    """Every source language is translated into every other target language.

    A run trains the pairs of its corpora. The other pairs are served too, without any text that taught them.
    """

    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)]
    targets: Annotated[tuple[TargetSettings, ...], Field(min_length=1)]

    @classmethod
    def of(cls, pairs: Sequence[LanguagePair]) -> Self:
        """Return the languages of these pairs, with a piece of the target language before the source.

        Johnson et al. (2017), section 3, tell a model the target language in this way. The pieces have the form that
        the models of OPUS-MT have.
        """
        sources, targets = (dict.fromkeys(side) for side in zip(*pairs, strict=True))
        return cls(
            sources=tuple(SourceSettings(language=tag) for tag in sources),
            targets=tuple(TargetSettings(language=tag, source=(f">>{tag}<<",)) for tag in targets),
        )

    @property
    def pairs(self) -> tuple[LanguagePair, ...]:
        """The pairs that a model serves."""
        every = ((source.language, target.language) for source in self.sources for target in self.targets)
        return tuple(pair for pair in every if pair[0] != pair[1])

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The pieces of the source vocabulary, each once."""
        read = [piece for each in self.sources for piece in (*each.before, *each.after)]
        return tuple(dict.fromkeys([*read, *(piece for each in self.targets for piece in each.source)]))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The pieces of the target vocabulary, each once."""
        return tuple(dict.fromkeys(piece for each in self.targets for piece in each.forced))

    def resolve(self, tokenizer: Tokenizer) -> Languages:
        """Return the languages with the ids of their pieces.

        Raises SettingsError for a piece that is not there, and for languages that no bundle could have.
        """

        def ids(pieces: Sequence[str], *, target: bool = False) -> tuple[int, ...]:
            model = tokenizer.target if target else tokenizer.source
            found = tuple(model.piece_to_id(piece) for piece in pieces)
            if UNK in found:
                side = "target" if target else "source"
                raise SettingsError(f"languages: {pieces[found.index(UNK)]!r} is no piece of the {side} vocabulary")
            return found

        found = Languages(
            tuple(SourceLanguage(each.language, ids(each.before), ids(each.after)) for each in self.sources),
            tuple(
                TargetLanguage(each.language, ids(each.source), ids(each.forced, target=True)) for each in self.targets
            ),
        )
        if problem := next(found.problems(tokenizer.source_vocab, tokenizer.target_vocab), None):
            raise SettingsError(problem)
        return found


# The differences between the settings of two runs.


def setting_differences(old: SettingsBlock, new: SettingsBlock) -> Iterator[str]:
    """Yield every setting that differs, as `block.key: old -> new`."""
    return _differences(old.model_dump(mode="json"), new.model_dump(mode="json"))


def model_differences(old: ModelSettings, new: ModelSettings) -> list[str]:
    """Return every setting that differs and makes weights of the old model wrong or unusable in the new one."""
    weightless = old.weightless() | new.weightless()  # what makes a key weightless in one of them differs itself
    before, now = (settings.model_dump(mode="json", exclude=weightless) for settings in (old, new))
    return list(_differences(before, now, "model."))


def _differences(old: dict[str, Any], new: dict[str, Any], block: str = "") -> Iterator[str]:
    """Yield the differences of two blocks. Two kinds of model differ in their kind, since their keys are others."""
    if old.get("kind") != new.get("kind") and old.keys() != new.keys():
        yield f"{block}kind: {old['kind']} -> {new['kind']}"
        return
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old[key], dict):
            yield from _differences(old[key], value, f"{block}{key}.")
        elif value != old[key]:
            yield f"{block}{key}: {old[key]} -> {value}"


# The one line that explains a wrong setting.

BLOCKS: dict[str, type[SettingsBlock]] = {
    "data": DataSettings,
    "tokenizer": TokenizerSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "languages": LanguageSettings,
    "origin": OriginSettings,
}


def explain(error: ErrorDetails) -> str:
    """Return one line with the key, its rule and the value."""
    path, kind = _split_kind(error["loc"])
    key = ".".join(map(str, path))
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.replace("String should have", "must have")
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key}{_suggestion(path, kind)}"
        case "missing":
            return f"{key} is missing"
        case "too_short":
            return f"{key} needs at least one entry, got {error['input']!r}"
        case "value_error":
            return f"{key}: {message}" if key else message
        case "model_type" | "model_attributes_type" | "union_tag_not_found":
            return f"{key or 'the whole'} must be a block of settings, got {error['input']!r}"
        case "union_tag_invalid":
            *others, last = map(repr, MODEL_KINDS)
            return f"{key}.kind must be {', '.join(others)} or {last}, got {error['input'].get('kind')!r}"
    return f"{key} {message[0].lower()}{message[1:]}, got {error['input']!r}"


def _split_kind(location: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], str]:
    """Return the path of a key as a config has it, and the kind of its model. Pydantic puts the kind into the path."""
    if len(location) > 1 and location[0] == "model":
        return ("model", *location[2:]), str(location[1])
    return location, ""


def _suggestion(path: tuple[int | str, ...], kind: str) -> str:
    """Return a hint with the known key that is most similar to the last part of path, or with all known keys.

    kind: of the model, if path is a key of the model
    """
    if kind:
        known, known_to = _own_keys_first(kind), f" to kind '{kind}'"
    else:
        known, known_to = _known_keys(path), ""
    of_another_kind = kind and any(path[-1] in settings.model_fields for settings in MODEL_KINDS.values())
    close = [] if of_another_kind else difflib.get_close_matches(str(path[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known{known_to} are {', '.join(known)}"


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    if len(path) == 1:
        return list(BLOCKS)
    if len(path) == 2:
        return list(BLOCKS[str(path[0])].model_fields)
    entries: dict[str, type[SettingsBlock]] = {
        "sources": SourceSettings,
        "targets": TargetSettings,
        "filters": FilterSettings,
        "terms": TermSettings,
        "stage": StageSettings,
    }
    return list(entries.get(str(path[1]), Corpus).model_fields)  # the entries of [data] are corpora


def _own_keys_first(kind: str) -> list[str]:
    """Return the keys of a kind of model: kind, those that it declares, those that every kind has."""
    settings = MODEL_KINDS[kind]
    shared = [name for name in ModelSettings.model_fields if name != "kind"]
    return [name for name in settings.model_fields if name not in shared] + shared


# All settings of a run, read from a TOML file or from a saved config.json.

CORPUS, MANIFEST = "corpus", "manifest.json"
"""The folder of the prepared corpus in the folder of a run, unless data.prepared names another one, and its last file.
"""

CORPUS_FILES = ("source", "target", "file", "scores", "alignment")
PATHS = {"data": (*CORPUS_FILES, "held_out", "prepared"), "tokenizer": ("path",)}
"""The blocks with paths, and the keys that are paths in them or in blocks of them."""


class Config(SettingsBlock):
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

    @property
    def linked(self) -> bool:
        """Whether the word alignments of data.train are read."""
        return bool(self.training.guided_alignment) or self.data.terms is not None

    def _check_terms(self) -> None:
        """Raise ValueError if no corpus has the word alignments that terms are found by."""
        train = self.data.train
        if self.data.terms is not None and train and all(corpus.alignment is None for corpus in train):
            raise ValueError("data.terms needs data.train.0.alignment, a file of word alignments, see lingon align")

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
            for position, pair in enumerate(map(data.languages_of, corpora)):
                if pair not in served:
                    found = pair_name(pair)
                    raise ValueError(f"data.{name}.{position} must be of a pair of the model: {pairs}; got {found}")

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

    def _check_stages(self) -> None:
        """Raise ValueError if a stage names a corpus that there is not."""
        names = [corpus.name for corpus in self.data.train if corpus.name is not None]
        for number, stage in enumerate(self.training.stage):
            if unknown := next((name for name in stage.weights if name not in names), None):
                known = ", ".join(names) or "none has a name"
                raise ValueError(
                    f"training.stage.{number}.weights must name corpora of data.train: {known}; got {unknown!r}"
                )

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers of terms, none if no source is annotated."""
        return () if self.data.terms is None else self.data.terms.form.markers

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the corpora, each once."""
        return tuple(dict.fromkeys(corpus.tag for corpus in self.data.train if corpus.tag is not None))

    def corpus_tokens(self, tokenizer: Tokenizer) -> tuple[LanguageTokens, ...]:
        """Return the tokens of the languages of each corpus of the training text, after its tag.

        Raises SettingsError for unknown pieces.
        """
        found = []
        for number, corpus in enumerate(self.data.train):
            tokens = self.tokenizer_of_pair(tokenizer, self.data.languages_of(corpus)).languages
            if corpus.tag is not None:
                tag = tokenizer.source.piece_to_id(corpus.tag)
                if tag == UNK:
                    raise SettingsError(f"data.train.{number}.tag: {corpus.tag!r} is no piece of the source vocabulary")
                tokens = replace(tokens, before=(tag, *tokens.before))
            found.append(tokens)
        return tuple(found)

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
        self._check_terms()
        self._check_own_pair()
        self._check_languages()
        self._check_corpora()
        self._check_stages()
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
    """Check values and return the settings. The SettingsError names origin, key, bound and value."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        # A misspelt key also makes the right key missing. The message about the misspelling helps more.
        first = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
        raise SettingsError(f"{origin}: {explain(first)}") from None


def _override(values: dict[str, Any], override: str) -> None:
    """Apply block.key=value to values. A number is the index of a list, as in data.train.0.repeat=2."""
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
    """Return the value of a key with absolute paths. The keys in `paths` have paths."""
    if isinstance(value, dict):
        return {name: _from_current_folder(each, name, paths) for name, each in value.items()}
    if isinstance(value, list):
        return [_from_current_folder(each, key, paths) for each in value]
    return str(_joined(Path.cwd(), Path(value))) if key in paths and isinstance(value, str) else value


def _joined(folder: Path, path: Path) -> Path:
    """Return a path that may be relative to a folder, or be one of an object store."""
    return path if is_url(path) else folder / path


def _with_absolute_paths(config: Config, folder: Path) -> Config:
    def moved(corpus: Corpus) -> Corpus:
        paths = {name: _joined(folder, path) for name in CORPUS_FILES if (path := getattr(corpus, name))}
        return corpus.model_copy(update=paths)

    train, valid = config.data.train, config.data.valid
    corpora: dict[str, Any] = {"train": tuple(map(moved, train)), "valid": tuple(map(moved, valid))}
    corpora["held_out"] = tuple(_joined(folder, path) for path in config.data.held_out)
    if config.data.prepared is not None:
        corpora["prepared"] = _joined(folder, config.data.prepared)
    tokenizer = config.tokenizer
    if tokenizer.path is not None:
        tokenizer = tokenizer.model_copy(update={"path": folder / tokenizer.path})
    return config.model_copy(update={"data": config.data.model_copy(update=corpora), "tokenizer": tokenizer})
