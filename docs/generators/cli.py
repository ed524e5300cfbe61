"""The reference of the command line, from the same declarations as `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import typer.main

from docs.generators.markdown import code, fence, plain, table
from lingon.cli.main import build


def commands() -> dict[str, Any]:
    """Every command by what you type, as `lingon serve` or `lingon bench decode`."""
    group: Any = typer.main.get_command(build(entry_points(group="lingon.verbs")))
    return dict(_commands("lingon", group))


def command_line() -> str:
    """A section for each command."""
    return "\n\n".join(_command_section(name, command) for name, command in commands().items())


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield f"{path} {name}", child
        yield from _commands(f"{path} {name}", child)


def _command_section(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * len(name.split())} {name}", plain(command.help or ""), fence(usage)]
    rows = [(code(names), plain(text)) for names, text in _parameters(command, context)]
    return "\n\n".join([*parts, table(("argument or option", "meaning"), rows)] if rows else parts)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Names and help text of the arguments and options, as `--help` prints them."""
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield record
