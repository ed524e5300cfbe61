"""The verbs that need only a server: translate, score, healthcheck. Heavy imports happen when a verb runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.options.backend import BackendOptions, ServerOption
from lingon.cli.options.connection import TlsOptions
from lingon.cli.options.decoding import (
    DetectedSourceOption,
    GuardOption,
    SameLanguageOption,
    ShortlistOption,
    SourceLanguageOption,
    TargetLanguageOption,
    TargetOption,
    TextFormat,
)
from lingon.cli.options.groups import with_option_groups
from lingon.cli.options.lines import (
    AlignmentOption,
    BatchSizeOption,
    JsonLinesOption,
    OutputOption,
    PairSourceOption,
    PairTargetOption,
)
from lingon.cli.options.translation import (
    ColumnOption,
    ColumnOptions,
    InputOption,
    ReadingOptions,
    RestrictionOptions,
    SamplingOptions,
    SearchOptions,
    TextsArgument,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingon.cli.lines.format import Columns
    from lingon.cli.lines.input import Input
    from lingon.cli.lines.loop import TranslateWork
    from lingon.client.client import Client
    from lingon.client.values.options import ScoreOptions, TranslateOptions


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
    guard: GuardOption = None,
    shortlist: ShortlistOption = None,
    columns: ColumnOptions,
    as_json: JsonLinesOption = False,
    batch_size: BatchSizeOption = 32,
    backend: BackendOptions,
) -> None:
    """Translate texts, standard input line by line, or a document; a blank line gives a blank line.

    An --input that ends in .docx, .pptx, .xlsx, .odt, .odp, .ods, .epub, .srt, .vtt, .ass, .ssa, .xliff, .xlf,
    .sdlxliff, .mxliff, .mqxliff, .tmx, .ts, .resx, .resw, .xml, .svg, .dita, .po, .pot, .md, .json, .arb, .properties,
    .strings, .stringsdict, .xcstrings, .yml, .yaml, .ftl, .csv or .tsv is a document; --output is one of its kind. The
    lines of .txt, and of a file without an ending, are texts; give --format for a file with another ending. A progress
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
    from lingon.cli.lines.loop import TranslateWork, several_of

    is_text = input_file is None or bool(texts) or not is_document(input_file, markup=reading.is_markup)
    if input_file is not None and not texts and is_text:
        check_lines(input_file, stated=reading.written is not None)
    reading = reading.for_input(None if texts else input_file)
    request: TranslateOptions = {
        **search.request(),
        **restrictions.request(),
        **reading.request(forced=bool(restrictions.force)),
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
        complete = translate_document(backend, read, output_file, request, batch_size, column, content)
    else:
        check_column(column)
        work = TranslateWork(request, _shown(columns), as_json)
        given = _input(texts or (), input_file, output_file, reading, content)
        complete = _translate_lines(backend, given, output_file, work, reading, batch_size)
    if not complete:
        raise typer.Exit(1)


def _shown(columns: ColumnOptions) -> Columns:
    """Return the columns of the output."""
    from lingon.cli.lines.format import Columns

    return Columns(scores=columns.scores, tokens=columns.tokens, alignment=columns.alignment)


def _translate_lines(
    backend: BackendOptions,
    given: Input[str],
    output_file: Path | None,
    work: TranslateWork,
    reading: ReadingOptions,
    batch_size: int,
) -> bool:
    """Translate lines, or a text with markup; returns whether each was translated."""
    from lingon.cli.lines.loop import check_document_options, run, several_of

    if reading.is_markup:
        check_document_options(work.columns, several_of(work.options), as_json=work.as_json)
    unit, drawn = "document" if reading.is_markup else "line", work.options.get("sampling") is not None
    return run(backend, given, work, output_file, batch_size, unit, full_batches=drawn)


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
    from lingon.cli.lines.format import Columns
    from lingon.cli.lines.input import input_pairs
    from lingon.cli.lines.loop import ScoreWork, run

    asking: ScoreOptions = {
        "model": backend.server_model,
        "source": source_language,
        "target": target_language,
        "return_alignment": alignment,
        "format": "pieces" if pieces else None,
    }
    work = ScoreWork(asking, Columns(tokens=tokens, alignment=alignment), as_json)
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
    """The texts to translate: arguments, or lines, or paragraphs, or all lines as one text.

    content: that of the file if it has been read
    """
    from lingon.cli.lines.input import input_lines, join_lines, join_paragraphs

    if reading.is_markup:
        lines = input_lines(texts, input_file, output, b"\n", content)
        return lines if texts else join_lines(lines)
    lines = input_lines(texts, input_file, output)
    return join_paragraphs(lines) if reading.wrapped and not texts else lines


def _state(client: Client, service: str) -> str:
    """The state of a service, or of the model of that name, whose health service is model/NAME."""
    from lingon.errors import LingonError, ServerError

    for name in (service, f"model/{service}") if service else ("",):
        try:
            return client.health(name)
        except ServerError as error:
            if error.status != "NOT_FOUND":
                raise
    missing = f"no service or model is called {service!r}" if service else "the server reports no health"
    raise LingonError(f"{client.target}: {missing}")
