"""The verbs that need only a server, and their options: translate, score, healthcheck.

Heavy imports happen when a verb runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lingon.cli.backend import BackendOptions, ServerOption, TlsOptions
from lingon.cli.options import (
    AlignmentOption,
    BatchSizeOption,
    BeamSizeOption,
    DetectedSourceOption,
    GuardOption,
    JsonLinesOption,
    KeepOption,
    LengthPenaltyOption,
    MaxOutputTokensOption,
    MemoryFiles,
    OptionGroup,
    OutputOption,
    PairSourceOption,
    PairTargetOption,
    SameLanguageOption,
    ShortlistOption,
    SourceLanguageOption,
    TargetLanguageOption,
    TargetOption,
    TermOptions,
    TextFormat,
    with_option_groups,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingon.cli.input import Input
    from lingon.cli.lines import LineColumns, TranslateWork
    from lingon.client.client import Client
    from lingon.client.options import Sampling, ScoreOptions, TranslateOptions

TextsArgument = Annotated[
    list[str] | None, typer.Argument(help="Texts to translate.", show_default="the lines of standard input")
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Read the lines of this file, plain or packed, which ends in .txt or has no ending; or this document. Any "
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
        """Return the options as the client takes them."""
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
        """Return the options as the client takes them, or None if none is given."""
        from lingon.client.options import Sampling

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
        """Return the options as the client takes them."""
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
        """Return these options with the format of the input: the one that is given, else the one that its name says."""
        from lingon.files import without_packing

        name = without_packing(path.name.lower()) if path is not None else ""
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
        """Return the options as the client takes them; forced: whether there are forced words."""
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
        """Return where sentences are split. With forced words servers split no text."""
        if not self.split_sentences:
            return "off"
        return "nonewlines" if self.wrapped and not forced else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintOptions(OptionGroup):
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


@with_option_groups
def translate(
    *,
    texts: TextsArgument = None,
    input_file: InputOption = None,
    output_file: OutputOption = None,
    column: ColumnOption = None,
    source: DetectedSourceOption = None,
    same_language: SameLanguageOption = False,
    target: TargetOption = None,
    search: SearchOptions,
    sampling: SamplingOptions,
    restrictions: RestrictionOptions,
    reading: ReadingOptions,
    memory: MemoryFiles,
    wording: TermOptions,
    guard: GuardOption = None,
    shortlist: ShortlistOption = None,
    columns: PrintOptions,
    as_json: JsonLinesOption = False,
    batch_size: BatchSizeOption = 32,
    backend: BackendOptions,
) -> None:
    """Translate texts, standard input line by line, or a document. A blank line gives a blank line.

    An --input that ends in .docx, .pptx, .xlsx, .odt, .odp, .ods, .epub, .srt, .vtt, .ass, .ssa, .xliff, .xlf,
    .sdlxliff, .mxliff, .mqxliff, .tmx, .ts, .resx, .resw, .xml, .svg, .dita, .po, .pot, .md, .json, .arb, .properties,
    .strings, .stringsdict, .xcstrings, .yml, .yaml, .ftl, .csv or .tsv is a document. --output is one of its kind. The
    lines of .txt, and of a file without an ending, are texts. Give --format for a file with another ending. A progress
    bar with lines done, rate and time left is shown if standard error is a terminal, the results go to a file
    (--output FILE or > FILE) and the lines are not typed.
    """
    from lingon.cli.document import (
        check_column,
        check_lines,
        check_options,
        is_document,
        is_encoded,
        read_page,
        translate_document,
    )
    from lingon.cli.lines import TranslateWork, several_of

    is_text = input_file is None or bool(texts) or not is_document(input_file, markup=reading.is_markup)
    if input_file is not None and not texts and is_text:
        check_lines(input_file, stated=reading.written is not None)
    reading = reading.for_input(None if texts else input_file)
    request: TranslateOptions = {
        **search.request(),
        **restrictions.request(),
        **reading.request(forced=bool(restrictions.force)),
        **wording.request(source, target),
        "model": backend.server_model,
        "source": source,
        "same_language": same_language or None,
        "target": target,
        "sampling": sampling.settings(),
        "return_tokens": columns.tokens,
        "return_alignment": columns.alignment,
        "return_sentences": as_json,
        "guard": guard.value if guard else None,
        "shortlist": shortlist,
    }
    read = None if texts else input_file
    content = read_page(read) if read is not None and is_text and reading.written is TextFormat.HTML else None
    encoded = content is not None and is_encoded(content)
    if read is not None and (encoded or not is_text):
        check_options(_shown(columns), several_of(request), as_json=as_json, read=reading.is_stated and not encoded)
        complete = translate_document(backend, read, output_file, request, batch_size, column, content, memory)
    else:
        check_column(column)
        work = TranslateWork(request, _shown(columns), as_json)
        given = _input(texts or (), input_file, output_file, reading, content)
        complete = _translate_lines(backend, given, output_file, work, reading, batch_size, memory)
    if not complete:
        raise typer.Exit(1)


def _shown(columns: PrintOptions) -> LineColumns:
    """Return the columns of the output."""
    from lingon.cli.lines import LineColumns

    return LineColumns(scores=columns.scores, tokens=columns.tokens, alignment=columns.alignment)


def _translate_lines(
    backend: BackendOptions,
    given: Input[str],
    output_file: Path | None,
    work: TranslateWork,
    reading: ReadingOptions,
    batch_size: int,
    memory: MemoryFiles,
) -> bool:
    """Translate lines, or a text with markup, and return whether each was translated."""
    from lingon.cli.lines import check_document_options, run, several_of
    from lingon.cli.memory import open_with_memory

    if reading.is_markup:
        check_document_options(work.columns, several_of(work.options), as_json=work.as_json)
    unit, drawn = "document" if reading.is_markup else "line", work.options.get("sampling") is not None
    opened = partial(open_with_memory, options=memory, request=work.options, fuzzy=work.as_json)
    return run(backend, given, work, output_file, batch_size, unit, full_batches=drawn, opened=opened)


@with_option_groups
def score(
    source: PairSourceOption = None,
    target: PairTargetOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    output_file: OutputOption = None,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Add a column with the log-probability of every token. Default: no such column."),
    ] = False,
    alignment: AlignmentOption = False,
    pieces: Annotated[
        bool,
        typer.Option(
            "--pieces",
            help="Both texts are pieces of the vocabulary with blanks between them, as of translate --format pieces. "
            "Default: they are text.",
        ),
    ] = False,
    as_json: JsonLinesOption = False,
    batch_size: BatchSizeOption = 32,
    *,
    backend: BackendOptions,
) -> None:
    """Print the log-probability of given translations: of two files, or of SOURCE<tab>TARGET on standard input.

    A progress bar with lines done, rate and time left is shown on standard error if that is a terminal, the results go
    to a file (--output FILE or > FILE) and the lines are not typed.
    """
    from lingon.cli.input import input_pairs
    from lingon.cli.lines import LineColumns, ScoreWork, run

    asking: ScoreOptions = {
        "model": backend.server_model,
        "source": source_language,
        "target": target_language,
        "return_alignment": alignment,
        "format": "pieces" if pieces else None,
    }
    work = ScoreWork(asking, LineColumns(tokens=tokens, alignment=alignment), as_json)
    pairs = input_pairs(source, target, output_file)
    if not run(backend, pairs, work, output_file, batch_size, full_batches=False):
        raise typer.Exit(1)


@with_option_groups
def healthcheck(
    server: ServerOption = None,
    service: Annotated[
        str, typer.Option(help="Name of a gRPC service or of a model to check.", show_default="the whole server")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of the check.")] = 5.0,
    *,
    connection: TlsOptions,
) -> None:
    """Check whether a server serves: prints its state; exit code 0 if it is SERVING, else 1."""
    from lingon.cli.backend import server_address
    from lingon.client.client import Client

    with Client(server_address(server), timeout=timeout, retries=0, tls=connection.client_tls()) as client:
        state = _state(client, service)
    typer.echo(f"{client.target}{f' {service}' if service else ''}: {state}")
    raise typer.Exit(0 if state == "SERVING" else 1)


def _input(
    texts: Sequence[str], input_file: Path | None, output: Path | None, reading: ReadingOptions, content: bytes | None
) -> Input[str]:
    """Return the texts to translate: arguments, or lines, or paragraphs, or all lines as one text.

    content: that of the file if it has been read
    """
    from lingon.cli.input import input_lines, join_lines, join_paragraphs

    if reading.is_markup:
        lines = input_lines(texts, input_file, output, b"\n", content)
        return lines if texts else join_lines(lines)
    lines = input_lines(texts, input_file, output)
    return join_paragraphs(lines) if reading.wrapped and not texts else lines


def _state(client: Client, service: str) -> str:
    """Return the state of a service, or of the model of that name, whose health service is model/NAME."""
    from lingon.errors import LingonError, ServerError

    for name in (service, f"model/{service}") if service else ("",):
        try:
            return client.health(name)
        except ServerError as error:
            if error.status != "NOT_FOUND":
                raise
    missing = f"no service or model is called {service!r}" if service else "the server reports no health"
    raise LingonError(f"{client.target}: {missing}")
