"""The verbs that need only a server: translate, score, healthcheck. Heavy imports happen when a verb runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lingon.cli.options import translation as options
from lingon.cli.options.backend import BackendOptions, ServerOption, with_backend_options
from lingon.cli.options.connection import Credentials, with_connection_options
from lingon.cli.options.decoding import (
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

    from lingon.cli.lines.input import Input
    from lingon.client.client import Client


@with_backend_options
def translate(
    texts: options.Texts = None,
    input_file: options.Input = None,
    output_file: options.Output = None,
    source: SourceOption = None,
    target: TargetOption = None,
    beam_size: BeamSizeOption = None,
    num_hypotheses: options.NumHypotheses = None,
    length_penalty: LengthPenaltyOption = None,
    max_output_tokens: MaxOutputTokensOption = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    target_prefix: options.TargetPrefix = None,
    min_output_tokens: options.MinOutputTokens = None,
    no_repeat_ngram_size: options.NoRepeat = None,
    repetition_penalty: options.Repetition = None,
    forbid: options.Forbid = None,
    force: options.Force = None,
    split_long: options.SplitLong = True,
    split_sentences: options.SplitSentences = True,
    wrapped: options.Wrapped = False,
    written: options.Format = TextFormat.PLAIN,
    ignore_tag: options.IgnoreTag = None,
    keep: KeepOption = None,
    protect: options.Protect = None,
    guard: GuardOption = None,
    shortlist: ShortlistOption = None,
    scores: options.Scores = False,
    tokens: options.Tokens = False,
    alignment: options.Alignment = False,
    as_json: options.Json = False,
    batch_size: options.Batch = 32,
    *,
    backend: BackendOptions,
) -> None:
    """Translate texts, or standard input line by line; a blank line gives a blank line.

    A progress bar with lines done, rate and time left is shown on standard error if that is a terminal, the results go
    to a file (--output FILE or > FILE) and the lines are not typed.
    """
    from lingon.cli.lines.format import Columns
    from lingon.cli.lines.loop import TranslateWork, check_document_options, run
    from lingon.client.values.options import Sampling

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
    output_file: options.Output = None,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Add a column with the log-probability of every token. Default: no such column."),
    ] = False,
    alignment: options.Alignment = False,
    as_json: options.Json = False,
    batch_size: options.Batch = 32,
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
    from lingon.cli.lines.input import input_lines, join_lines, join_paragraphs

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
