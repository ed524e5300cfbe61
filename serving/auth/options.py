"""The options of `lingon keys new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(help="Name of the key's owner: 1 to 64 letters, digits, _ . and -.")]
RequestsPerMinute = Annotated[
    int | None, typer.Option(min=1, help="Quota of requests at each server. Default: no limit.")
]
CharactersPerMinute = Annotated[
    int | None,
    typer.Option(min=1, help="Quota of characters, weighted by beam size, at each server. Default: no limit."),
]
Admin = Annotated[bool, typer.Option("--admin", help="Give the key access to the admin port too.")]
Expires = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="Day from which on the key is invalid (UTC), as 2027-01-01. Default: none."),
]
Certificate = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Accept the key only with a client certificate that has this name. Default: with any, or none.",
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        help="API-key file of a server; the new key's entry is appended to it. Default: the entry is printed on "
        "standard error."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="New file for the key, which only its owner can read. Default: the key is printed on standard output."
    ),
]
