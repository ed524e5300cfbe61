"""The verbs that need only a server: translate, score, healthcheck. Heavy imports happen when a verb runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lingon.cli.backend_options import BackendOptions, ServerOption, with_backend_options
from lingon.cli.connection import Credentials, with_connection_options
from lingon.cli.decoding_options import (
    BeamSizeOption,
    GuardOption,
    KeepOption,
    LengthPenaltyOption,
    MaxOutputTokensOption,
    ShortlistOption,
    SourceOption,
    TargetOption,
    TextFormat,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingon.cli.input import Input
    from lingon.client.client import Client

BatchOption = Annotated[int, typer.Option(min=1, max=1024, help="Largest number of lines in one request.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object for each line. Default: plain text.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the results to this file, compressed if it ends in .gz. They are written to FILE.part, which is "
        "renamed to FILE at the end; after an error FILE is unchanged and FILE.part holds the lines so far.",
        show_default="standard output",
    ),
]
AlignmentOption = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Add a column that aligns words: i-j means that source word i became target word j, from 0. "
        "Default: no such column.",
    ),
]


@with_backend_options
def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts to translate.", show_default="the lines of standard input")
    ] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Read the lines of this file, plain or .gz.",
            show_default="standard input",
        ),
    ] = None,
    output_file: OutputOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    beam_size: BeamSizeOption = None,
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
    ] = None,
    length_penalty: LengthPenaltyOption = None,
    max_output_tokens: MaxOutputTokensOption = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Divide the logits by this and draw tokens at random. Any of --temperature, --top-k, --top-p and "
            "--seed turns sampling on, which needs --beam-size 1.",
            show_default="1 if sampling",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=0, help="Draw from this many of the likeliest tokens; 0 means all.", show_default="0 if sampling"
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Draw from the smallest set of likeliest tokens with this probability.", show_default="1 if sampling"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the random draws.", show_default="0 if sampling")
    ] = None,
    target_prefix: Annotated[
        str | None, typer.Option(help="Text that every translation begins with.", show_default="none")
    ] = None,
    min_output_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="Smallest number of tokens in a translation, the end token included.", show_default="0"
        ),
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="A run of this many tokens does not appear twice in a translation.",
            show_default="0, no such rule",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1, tokens that a translation has already become less likely.", show_default="1"),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="A word or phrase that is in no translation, not even inside a longer word; may be repeated.",
            show_default="none",
        ),
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="A word or phrase that every translation has; may be repeated. Give --beam-size at least twice the "
            "number of their tokens. A line without such a word is named on standard error.",
            show_default="none",
        ),
    ] = None,
    split_long: Annotated[
        bool,
        typer.Option(
            "--split-long/--no-split-long",
            help="Translate a text that is longer than the model reads in parts, and name its line on standard error. "
            "With --no-split-long such a line is an error, and the exit code is 1.",
        ),
    ] = True,
    split_sentences: Annotated[
        bool,
        typer.Option(
            "--split-sentences/--no-split-sentences",
            help="Translate each sentence of a line alone. With --no-split-sentences, or with --force, the model reads "
            "whole lines.",
        ),
    ] = True,
    wrapped: Annotated[
        bool,
        typer.Option(
            "--wrapped",
            help="Read wrapped text: the lines up to a blank line are one text, which gives one line. Default: each "
            "line is a text.",
        ),
    ] = False,
    written: Annotated[
        TextFormat,
        typer.Option(
            "--format",
            help="How the input is written. html and xml: it is one document; the text of its elements is translated, "
            "all else stays as it is, and tags inside a sentence are placed in its translation.",
        ),
    ] = TextFormat.PLAIN,
    ignore_tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --format html or xml: an element that stays as it is; may be given several times.",
            show_default="none",
        ),
    ] = None,
    keep: KeepOption = None,
    protect: Annotated[
        bool | None,
        typer.Option(
            "--protect/--no-protect",
            help="Keep URLs, e-mail addresses, placeholders, tags, long numbers and emoji as they are.",
            show_default="protect, but not with --force",
        ),
    ] = None,
    guard: GuardOption = None,
    shortlist: ShortlistOption = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Add a column with the score. Default: no such column.")
    ] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Add a column with the tokens. Default: no such column.")
    ] = False,
    alignment: AlignmentOption = False,
    as_json: JsonOption = False,
    batch_size: BatchOption = 32,
    *,
    backend: BackendOptions,
) -> None:
    """Translate texts, or standard input line by line; a blank line gives a blank line.

    A progress bar with lines done, rate and time left is shown on standard error if that is a terminal, the results go
    to a file (--output FILE or > FILE) and the lines are not typed.
    """
    from lingon.cli.format import Columns
    from lingon.cli.line_loop import TranslateWork, check_document_options, run
    from lingon.client.options import Sampling

    samples = any(value is not None for value in (temperature, top_k, top_p, seed))
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if samples else None
    work = TranslateWork(
        {
            "model": backend.server_model,
            "source": source,
            "target": target,
            "beam_size": beam_size,
            "num_hypotheses": num_hypotheses,
            "length_penalty": length_penalty,
            "max_output_tokens": max_output_tokens,
            "sampling": sampling,
            "target_prefix": target_prefix,
            "return_tokens": tokens,
            "return_alignment": alignment,
            "long_text": "split" if split_long else "refuse",
            "split_sentences": _splitting(whole=not split_sentences, wrapped=wrapped, forced=bool(force)),
            "return_sentences": as_json,
            "format": written.value,
            "ignore_tags": ignore_tag,
            "keep": keep,
            "guard": guard.value if guard else None,
            "protect": protect,
            "shortlist": shortlist,
            "min_output_tokens": min_output_tokens,
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "repetition_penalty": repetition_penalty,
            "forbidden_words": forbid,
            "forced_words": force,
        },
        Columns(scores=scores, tokens=tokens, alignment=alignment),
        as_json,
    )
    markup = written is not TextFormat.PLAIN
    if markup:
        check_document_options(work.columns, num_hypotheses, as_json=as_json)
    lines = _input(texts or (), input_file, output_file, markup=markup, wrapped=wrapped)
    unit = "document" if markup else "line"
    if not run(backend, lines, work, output_file, batch_size, unit, full_batches=samples):
        raise typer.Exit(1)


@with_backend_options
def score(
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Source texts, one a line, plain or .gz.", show_default="SOURCE<tab>TARGET lines"
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Translations of --source, line by line.", show_default="standard input"),
    ] = None,
    output_file: OutputOption = None,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Add a column with the log-probability of every token. Default: no such column."),
    ] = False,
    alignment: AlignmentOption = False,
    as_json: JsonOption = False,
    batch_size: BatchOption = 32,
    *,
    backend: BackendOptions,
) -> None:
    """Print the log-probability of given translations: of two files, or of SOURCE<tab>TARGET on standard input.

    A progress bar with lines done, rate and time left is shown on standard error if that is a terminal, the results go
    to a file (--output FILE or > FILE) and the lines are not typed.
    """
    from lingon.cli.format import Columns
    from lingon.cli.input import input_pairs
    from lingon.cli.line_loop import ScoreWork, run

    columns = Columns(tokens=tokens, alignment=alignment)
    work = ScoreWork({"model": backend.server_model, "return_alignment": alignment}, columns, as_json)
    pairs = input_pairs(source, target, output_file)
    if not run(backend, pairs, work, output_file, batch_size, full_batches=False):
        raise typer.Exit(1)


@partial(with_connection_options, api_key=False)
def healthcheck(
    server: ServerOption = None,
    service: Annotated[
        str, typer.Option(help="Name of a gRPC service or of a model to check.", show_default="the whole server")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of the check.")] = 5.0,
    *,
    credentials: Credentials,
) -> None:
    """Check whether a server serves: prints its state; exit code 0 if it is SERVING, else 1."""
    from lingon.cli.backend import server_address
    from lingon.client.client import Client

    with Client(server_address(server), timeout=timeout, retries=0, tls=credentials.client_tls()) as client:
        state = _state(client, service)
    typer.echo(f"{client.target}{f' {service}' if service else ''}: {state}")
    raise typer.Exit(0 if state == "SERVING" else 1)


def _input(
    texts: Sequence[str], input_file: Path | None, output: Path | None, *, markup: bool, wrapped: bool
) -> Input[str]:
    """The texts to translate; markup: whether a file is one text; wrapped: whether a paragraph of it is one."""
    from lingon.cli.input import input_lines, join_lines, join_paragraphs

    if markup:
        lines = input_lines(texts, input_file, output, line_end=b"\n")
        return lines if texts else join_lines(lines)
    lines = input_lines(texts, input_file, output)
    return join_paragraphs(lines) if wrapped and not texts else lines


def _splitting(*, whole: bool, wrapped: bool, forced: bool) -> Literal["nonewlines", "off"] | None:
    """The option split_sentences; forced: whether there are forced words, for which servers split no text."""
    if whole:
        return "off"
    return "nonewlines" if wrapped and not forced else None


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
