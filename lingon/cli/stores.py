"""What the verbs of `lingon glossaries` and `lingon memories` share: their options, their client, their lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.backend import Credentials, ServerOption, server_address
from lingon.cli.options import OptionGroup

if TYPE_CHECKING:
    from lingon.client.client import Client

NameArgument = Annotated[
    str, typer.Argument(help="Name at the server: 1 to 64 letters, figures and the signs . _ -", metavar="NAME")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON. Default: plain text.")]
LabelOption = Annotated[str, typer.Option(help="A name for people.", show_default="the one that it has")]
CreateOption = Annotated[bool, typer.Option("--create", help="Fail if there is one of this name. Default: change it.")]
ExpectedVersionOption = Annotated[
    int | None,
    typer.Option(min=1, help="Fail unless it has this version, so that no change of others is lost. Default: any."),
]
SourceLanguageOption = Annotated[
    str, typer.Option("--source", "--source-language", metavar="TAG", help="Language of the sources, such as en.")
]
TargetLanguageOption = Annotated[
    str, typer.Option("--target", "--target-language", metavar="TAG", help="Language of the translations, such as de.")
]
SomeSourceOption = Annotated[
    str | None,
    typer.Option(
        "--source", "--source-language", metavar="TAG", help="Language of the sources.", show_default="the only one"
    ),
]
SomeTargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--target-language",
        metavar="TAG",
        help="Language of the translations.",
        show_default="the only one",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreOptions(OptionGroup):
    """Where the server is that keeps something."""

    server: ServerOption = None
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of the call.")] = 600.0
    credentials: Credentials | None = None


@contextmanager
def open_client(options: StoreOptions) -> Iterator[Client]:
    """Give a client of the server."""
    from lingon.client.client import Client

    arguments = (options.credentials or Credentials()).client_arguments()
    with Client(server_address(options.server), timeout=options.timeout, **arguments) as client:
        yield client


def json_of(value: Any) -> str:
    """Return a line of JSON; value: a dataclass."""
    import json

    return json.dumps(asdict(value), ensure_ascii=False)


def shown_time(milliseconds: int) -> str:
    """Return a time in UTC; milliseconds: since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def counted(number: int, what: str) -> str:
    """Return a number with its noun: 1 term, 2,000 terms."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
