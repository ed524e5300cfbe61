"""The options of `translate` alone, most of them in groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lingon.cli.options.decoding import (
    BeamSizeOption,
    KeepOption,
    LengthPenaltyOption,
    MaxOutputTokensOption,
    TextFormat,
)
from lingon.cli.options.groups import OptionGroup
from lingon.cli.options.lines import AlignmentOption

if TYPE_CHECKING:
    from lingon.client.values.options import Sampling, TranslateOptions

TextsArgument = Annotated[
    list[str] | None, typer.Argument(help="Texts to translate.", show_default="the lines of standard input")
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Read the lines of this file, plain or .gz, which ends in .txt or has no ending; or this document. Any "
        "other ending needs --format.",
        show_default="standard input",
    ),
]
ColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of an --input that ends in .csv or .tsv, the column with the texts: its name in the first row, or its "
        "number, from 1 on, if the first row has texts too.",
        show_default="source, or the only other language beside a column of the target language",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions(OptionGroup):
    """How the likeliest translations are searched for."""

    beam_size: BeamSizeOption = None
    num_hypotheses: Annotated[
        int | None,
        typer.Option(
            "--num-hypotheses",
            "--n-best",
            min=1,
            help="Translations of each text, at most --beam-size unless sampling. Above 1 each is a line "
            "N ||| TEXT ||| SCORE, where N counts the texts from 0.",
            show_default="the model's",
        ),
    ] = None
    length_penalty: LengthPenaltyOption = None
    coverage_penalty: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="beta of the coverage penalty, which lowers the score of a translation that leaves words of the text "
            "out. Needs a model with attention.",
            show_default="0",
        ),
    ] = None
    patience: Annotated[
        float | None,
        typer.Option(
            help="Beam search ends with this many times --beam-size translations; above 1 it searches longer.",
            show_default="1",
        ),
    ] = None
    max_output_tokens: MaxOutputTokensOption = None

    def request(self) -> TranslateOptions:
        """The options as the client takes them."""
        return {
            "beam_size": self.beam_size,
            "num_hypotheses": self.num_hypotheses,
            "length_penalty": self.length_penalty,
            "coverage_penalty": self.coverage_penalty,
            "patience": self.patience,
            "max_output_tokens": self.max_output_tokens,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingOptions(OptionGroup):
    """How tokens are drawn at random in place of a search."""

    temperature: Annotated[
        float | None,
        typer.Option(
            help="Divide the logits by this and draw tokens at random. Any of --temperature, --top-k, --top-p and "
            "--seed turns sampling on, which needs --beam-size 1.",
            show_default="1 if sampling",
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(
            min=0, help="Draw from this many of the likeliest tokens; 0 means all.", show_default="0 if sampling"
        ),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Draw from the smallest set of likeliest tokens with this probability.", show_default="1 if sampling"
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the random draws.", show_default="0 if sampling"),
    ] = None

    def settings(self) -> Sampling | None:
        """The options as the client takes them; None if none is given."""
        from lingon.client.values.options import Sampling

        if self == SamplingOptions():
            return None
        return Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class RestrictionOptions(OptionGroup):
    """What a translation has, and what it has not."""

    target_prefix: Annotated[
        str | None, typer.Option(help="Text that every translation begins with.", show_default="none")
    ] = None
    prefix_bias: Annotated[
        float | None,
        typer.Option(
            help="Below 1, --target-prefix does not have to hold: its tokens have this much more probability, and the "
            "others as much less.",
            show_default="1, it holds",
        ),
    ] = None
    alternatives: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Complete this many of the likeliest tokens after --target-prefix. Each is a line N ||| TEXT ||| "
            "SCORE, the likeliest token first, where N counts the texts from 0.",
            show_default="0, none",
        ),
    ] = None
    min_alternative_probability: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Leave out alternatives with a less likely token.", show_default="0"),
    ] = None
    min_output_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="Smallest number of tokens in a translation, the end token included.", show_default="0"
        ),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="A run of this many tokens does not appear twice in a translation.",
            show_default="0, no such rule",
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1, tokens that a translation has already become less likely.", show_default="1"),
    ] = None
    forbid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="A word or phrase that is in no translation, not even inside a longer word; may be repeated.",
            show_default="none",
        ),
    ] = None
    force: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="A word or phrase that every translation has; may be repeated. Give --beam-size at least twice the "
            "number of their tokens. A line without such a word is named on standard error.",
            show_default="none",
        ),
    ] = None

    def request(self) -> TranslateOptions:
        """The options as the client takes them."""
        return {
            "target_prefix": self.target_prefix,
            "prefix_bias": self.prefix_bias,
            "alternatives": self.alternatives,
            "min_alternative_probability": self.min_alternative_probability,
            "min_output_tokens": self.min_output_tokens,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "repetition_penalty": self.repetition_penalty,
            "forbidden_words": self.forbid,
            "forced_words": self.force,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingOptions(OptionGroup):
    """How texts are read: what is a text, where it is split, and what stays as it is."""

    split_long: Annotated[
        bool,
        typer.Option(
            "--split-long/--no-split-long",
            help="Translate a text that is longer than the model reads in parts, and name its line on standard error. "
            "With --no-split-long such a line is an error, and the exit code is 1.",
        ),
    ] = True
    split_sentences: Annotated[
        bool,
        typer.Option(
            "--split-sentences/--no-split-sentences",
            help="Translate each sentence of a line alone. With --no-split-sentences, or with --force, the model reads "
            "whole lines.",
        ),
    ] = True
    wrapped: Annotated[
        bool,
        typer.Option(
            "--wrapped",
            help="Read wrapped text: the lines up to a blank line are one text, which gives one line. Default: each "
            "line is a text.",
        ),
    ] = False
    written: Annotated[
        TextFormat | None,
        typer.Option(
            "--format",
            help="How the input is written. html and xml: it is one document; the text of its elements is translated, "
            "all else stays as it is, and tags inside a sentence are placed in its translation. pieces: each line is "
            "pieces of the vocabulary with blanks between them, which the model reads as they are, and so is its "
            "translation.",
            show_default="html if --input ends in .html or .htm, else plain",
        ),
    ] = None
    ignore_tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --format html or xml: an element that stays as it is; may be given several times.",
            show_default="none",
        ),
    ] = None
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --format html or xml: an attribute whose values are translated, such as alt, title or "
            "placeholder; may be given several times.",
            show_default="none",
        ),
    ] = None
    keep: KeepOption = None
    protect: Annotated[
        bool | None,
        typer.Option(
            "--protect/--no-protect",
            help="Keep URLs, e-mail addresses, placeholders, tags, numbers, code, marks, emoji and words that the "
            "model cannot read as they are.",
            show_default="protect, but not with --force",
        ),
    ] = None
    localise_numbers: Annotated[
        bool,
        typer.Option(
            "--localise-numbers",
            help="Write the numbers that are kept with the separators of the target language: 1,299.99 becomes "
            "1.299,99 in German. Default: as they are.",
        ),
    ] = False

    def for_input(self, path: Path | None) -> ReadingOptions:
        """These options with the format of the input: the one that is given, else the one that its name says."""
        name = path.name.lower().removesuffix(".gz") if path is not None else ""
        named = TextFormat.HTML if name.endswith((".html", ".htm")) else TextFormat.PLAIN
        return replace(self, written=self.written or named)

    @property
    def is_markup(self) -> bool:
        """Whether the input is a document with markup."""
        return self.written in (TextFormat.HTML, TextFormat.XML)

    @property
    def is_by_line(self) -> bool:
        """Whether each line is a text."""
        return not (self.wrapped or self.is_markup)

    @property
    def is_stated(self) -> bool:
        """Whether an option says how the input is written, which a document says itself."""
        return not self.is_by_line or self.written is TextFormat.PIECES

    def request(self, *, forced: bool) -> TranslateOptions:
        """The options as the client takes them; forced: whether there are forced words."""
        return {
            "long_text": "split" if self.split_long else "refuse",
            "split_sentences": self._splitting(forced=forced),
            "format": self.written.value if self.written else None,
            "ignore_tags": self.ignore_tag,
            "translate_attributes": self.attribute,
            "keep": self.keep,
            "protect": self.protect,
            "localise_numbers": self.localise_numbers or None,
        }

    def _splitting(self, *, forced: bool) -> Literal["nonewlines", "off"] | None:
        """Where sentences are split; with forced words servers split no text."""
        if not self.split_sentences:
            return "off"
        return "nonewlines" if self.wrapped and not forced else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnOptions(OptionGroup):
    """What is printed beside a translation."""

    scores: Annotated[
        bool,
        typer.Option("--scores", help="Add a column with the score. Default: no such column."),
    ] = False
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Add a column with the tokens. Default: no such column."),
    ] = False
    alignment: AlignmentOption = False
