"""The verbs that need only a server: translate, score, healthcheck. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.connection import reaching
from lingon.client.tls import Credentials

if TYPE_CHECKING:
    from lingon.client.client import Client

ServerOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="[default: $LINGON_SERVER, or 127.0.0.1:50051]")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Without --server (LINGON_SERVER does not count): a bundle, to translate in this process; with it, a "
        "model's name there.",
    ),
]
DeviceOption = Annotated[str | None, typer.Option(help="With a bundle: auto, cpu or cuda.")]
PrecisionOption = Annotated[str | None, typer.Option(help="With a bundle: fp32, fp16, ...")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="Seconds for each request, retries included. [default: 60; with a bundle as long as it takes]"
    ),
]
BatchOption = Annotated[int, typer.Option(min=1, max=1024, help="Lines of one request, at most.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        help="Write lines here, packed if .gz: to FILE.part, which takes the name when all is done; after a failure "
        "the lines so far are there, and an earlier file is as it was.",
    ),
]
TokensOption = Annotated[bool, typer.Option("--tokens", help="Show the tokens.")]
AlignmentOption = Annotated[bool, typer.Option("--alignment", help="Show which word came from which: i-j, from 0.")]


@reaching
def translate(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without them, the lines of standard input.")] = None,
    server: ServerOption = None,
    model: ModelOption = None,
    input_file: Annotated[Path | None, typer.Option("--input", help="Read lines from here; plain or .gz.")] = None,
    output_file: OutputOption = None,
    source: Annotated[str | None, typer.Option(help="Language of the texts, as en.")] = None,
    target: Annotated[str | None, typer.Option(help="Language of the translations, as de.")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="1 is greedy.")] = None,
    num_hypotheses: Annotated[
        int | None,
        typer.Option(
            "--num-hypotheses",
            "--n-best",
            min=1,
            help="Above 1: that many lines a text, N ||| TEXT ||| SCORE, N from 0.",
        ),
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, help="alpha of log-probability / length^alpha.")
    ] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="Draw tokens at random; divides the logits.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw from so many of the likeliest; 0 is all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that hold this probability.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the random draws.")] = None,
    target_prefix: Annotated[str | None, typer.Option(help="How every translation begins.")] = None,
    split_long: Annotated[bool, typer.Option("--split-long", help="Translate too long texts in parts.")] = False,
    shortlist: Annotated[
        bool | None, typer.Option(help="Choose among the pieces that the source calls for: faster.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Show the score.")] = False,
    tokens: TokensOption = False,
    alignment: AlignmentOption = False,
    as_json: JsonOption = False,
    batch_size: BatchOption = 32,
    timeout: TimeoutOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    *,
    credentials: Credentials,
) -> None:
    """Translate texts, or standard input to standard output line by line: an empty line for an empty line."""
    from lingon.cli.backend import Where
    from lingon.cli.format import Show
    from lingon.cli.line_loop import input_lines, run
    from lingon.cli.work import Translating
    from lingon.client.messages import Sampling

    where = Where(
        server=server, model=model, device=device, precision=precision, timeout=timeout, credentials=credentials
    )
    drawn = any(value is not None for value in (temperature, top_k, top_p, seed))
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if drawn else None
    work = Translating(
        {
            "model": None if where.here else model,
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
            "shortlist": shortlist,
        },
        Show(scores=scores, tokens=tokens, alignment=alignment),
        as_json,
    )
    lines = input_lines(texts or (), input_file, output_file)
    if not run(where, lines, work, output_file, batch_size, whole=drawn):
        raise typer.Exit(1)


@reaching
def score(
    source: Annotated[Path | None, typer.Option(help="Source texts, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    server: ServerOption = None,
    model: ModelOption = None,
    output_file: OutputOption = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show every token's log-probability.")] = False,
    alignment: AlignmentOption = False,
    as_json: JsonOption = False,
    batch_size: BatchOption = 32,
    timeout: TimeoutOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    *,
    credentials: Credentials,
) -> None:
    """Score given translations: two files, or SOURCE<tab>TARGET lines on standard input; prints log-probabilities."""
    from lingon.cli.backend import Where
    from lingon.cli.format import Show
    from lingon.cli.line_loop import input_pairs, run
    from lingon.cli.output import check_output
    from lingon.cli.work import Scoring

    where = Where(
        server=server, model=model, device=device, precision=precision, timeout=timeout, credentials=credentials
    )
    show = Show(tokens=tokens, alignment=alignment)
    work = Scoring({"model": None if where.here else model, "return_alignment": alignment}, show, as_json)
    if output_file is not None:
        check_output(output_file, source, target)
    if not run(where, input_pairs(source, target), work, output_file, batch_size, whole=False):
        raise typer.Exit(1)


@partial(reaching, keys=False)
def healthcheck(
    server: ServerOption = None,
    service: Annotated[str, typer.Option(help="A service's name or a model's; without it, the whole server.")] = "",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds.")] = 5.0,
    *,
    credentials: Credentials,
) -> None:
    """Ask a server whether it serves: exit code 0 if it does, 1 if not."""
    from lingon.cli.backend import server_address
    from lingon.client.client import Client

    address = server_address(server)
    with Client(address, timeout=timeout, retries=0, tls=credentials.trust()) as client:
        state = _state(client, address, service)
    typer.echo(f"{address}{f' {service}' if service else ''}: {state}")
    raise typer.Exit(0 if state == "SERVING" else 1)


def _state(client: Client, address: str, service: str) -> str:
    """The state of a service, or of the model of that name: to health that is model/NAME."""
    from lingon.errors import LingonError, ServerError

    for name in (service, f"model/{service}") if service else ("",):
        try:
            return client.health(name)
        except ServerError as error:
            if error.status != "NOT_FOUND":
                raise
    raise LingonError(f"{address}: {f'no service or model is called {service!r}' if service else 'tells no health'}")
