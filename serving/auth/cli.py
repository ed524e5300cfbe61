"""The verb `lingon keys`: makes API keys. A key is printed once and kept nowhere; the file has its hash."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(help="Of whom it is for: letters, digits, _ . and -.")],
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Without it there is no bound.")] = None,
    characters_per_minute: Annotated[int | None, typer.Option(min=1, help="Of all texts; without it no bound.")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="It opens the admin port too.")] = False,
    expires: Annotated[str | None, typer.Option(metavar="DATE", help="As 2027-01-01, UTC.")] = None,
    file: Annotated[Path | None, typer.Option(help="Append the table to this file, which a server reads.")] = None,
) -> None:
    """Make a key: it goes to standard output, once; the table for the server's file of keys to --file."""
    import re
    from datetime import date

    from lingon.errors import SettingsError
    from lingon.serving.auth.api_keys import NAME, hash_of, new_key

    if not re.fullmatch(NAME, name):
        raise SettingsError(f"a key's name has 1 to 64 letters, digits, _ . and -, got {name!r}")
    try:
        end = date.fromisoformat(expires) if expires is not None else None
    except ValueError:
        raise SettingsError(f"--expires must be a date as 2027-01-01, got {expires!r}") from None
    key = new_key()
    lines = ["[[key]]", f'name = "{name}"', f'hash = "{hash_of(key)}"']
    lines += [f"requests_per_minute = {requests_per_minute}"] if requests_per_minute else []
    lines += [f"characters_per_minute = {characters_per_minute}"] if characters_per_minute else []
    lines += ["admin = true"] if admin else []
    lines += [f"expires = {end}"] if end else []
    table = "\n".join(lines) + "\n"
    if file is not None:
        append(file, table, partial(_tell, key, f"lingon: {name} goes into {file}; this is its key, told once:"))
    else:
        _tell(key, f"lingon: for the server's file of keys:\n\n{table}\nlingon: and the key, told once:")


def _tell(key: str, before: str) -> None:
    """The key on standard output; raises LingonError where nobody can have read it."""
    from lingon.errors import LingonError

    if sys.stdout is None:
        raise LingonError("standard output is closed; a key that is told to nobody is not made")
    typer.echo(before, err=True)
    try:
        typer.echo(key)
    except OSError as error:
        raise LingonError(f"standard output: {error.strerror}; a key that is told to nobody is not made") from None


def append(path: Path, table: str, tell: Callable[[], None] = lambda: None) -> None:
    """Add a table to a file of keys, in one move: a server that reads it meanwhile sees the old file or the new one.

    tell: called before the move, when nothing else can fail; if it does, the file stays as it was
    """
    import fcntl
    import os

    from lingon.files import read_setting_text
    from lingon.serving.auth.api_keys import parse

    path = path.resolve()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two that append at once would lose a key; ends with the descriptor
        before, status = "", None
        if path.exists():
            before, status = read_setting_text(path), path.stat()
        after = f"{before.rstrip()}\n\n{table}" if before.strip() else table
        parse(after.encode(), str(path))
        part = path.with_name(f".{path.name}.part")
        part.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                if status is not None:  # who could read it still can
                    os.fchmod(file.fileno(), status.st_mode & 0o777)
                    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(file.fileno(), status.st_uid, status.st_gid)
                file.write(after)
                file.flush()
                os.fsync(file.fileno())
            tell()
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        os.fsync(folder)
    finally:
        os.close(folder)


keys = typer.Typer(help="Make API keys for a server.")
keys.command("new")(new)
