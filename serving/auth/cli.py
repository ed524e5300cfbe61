"""The verb `lingon keys`: creates API keys. A key is printed once and not stored. The file gets its hash."""

from __future__ import annotations

import sys
from functools import partial
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
SecondPerHour = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Sentences that go to the second translator in an hour; 0: none. Default: the server's second_hourly.",
    ),
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


def new(
    name: Name,
    requests_per_minute: RequestsPerMinute = None,
    characters_per_minute: CharactersPerMinute = None,
    second_per_hour: SecondPerHour = None,
    admin: Admin = False,
    expires: Expires = None,
    certificate: Certificate = None,
    file: File = None,
    key_file: KeyFile = None,
) -> None:
    """Create a key. It is shown once, in --key-file or on standard output; its entry goes to --file or standard error.

    Quotas count at each server: N servers allow N times as much, and a restart begins with a full minute's quota.
    """
    import re
    from datetime import UTC, date, datetime

    from lingon.errors import SettingsError
    from lingon.serving.auth.api_keys import NAME, append_table, key_table, new_key

    if not re.fullmatch(NAME, name):
        raise SettingsError(f"a key's name has 1 to 64 letters, digits, _ . and -, got {name!r}")
    try:
        end = date.fromisoformat(expires) if expires is not None else None
    except ValueError:
        raise SettingsError(f"--expires must be a date as 2027-01-01, got {expires!r}") from None
    today = datetime.now(UTC).date()
    if end is not None and end <= today:
        raise SettingsError(f"--expires must be after today, {today} (UTC), got {end}")
    key = new_key()
    table = key_table(
        name,
        key,
        requests_per_minute=requests_per_minute,
        characters_per_minute=characters_per_minute,
        second_per_hour=second_per_hour,
        admin=admin,
        expires=end,
        certificate=certificate,
    )
    show = partial(_show, key, key_file)
    if file is not None:
        append_table(file, table, partial(show, f"lingon: adding {name} to {file}"))
    else:
        show(f"lingon: entry for the server's API-key file:\n\n{table}")


def _show(key: str, file: Path | None, heading: str) -> None:
    """Write the key to a new file, or print it on standard output. Raises LingonError if that fails."""
    from lingon.errors import LingonError
    from lingon.files import write_new_private

    if file is None:
        _print(key, f"{heading}\nlingon: the key, shown only once:")
        return
    try:
        write_new_private(file, f"{key}\n".encode())
    except OSError as error:
        raise LingonError(f"{file}: {error.strerror}; no key was created, as it could not be written") from None
    typer.echo(f"{heading}\nlingon: the key is in {file}", err=True)


def _print(key: str, heading: str) -> None:
    """Print the key on standard output. Raises LingonError if it cannot be written."""
    from lingon.errors import LingonError

    if sys.stdout is None:
        raise LingonError("standard output is closed; no key was created, as it could not be shown")
    typer.echo(heading, err=True)
    try:
        typer.echo(key)
    except OSError as error:
        raise LingonError(f"standard output: {error.strerror}; no key was created, as it could not be shown") from None


keys = typer.Typer(help="Create API keys for a server.")
keys.command("new")(new)
