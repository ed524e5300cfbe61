"""The `lingon` command: one app out of the verbs that the rooms declare as entry points, light until a verb runs."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer

from lingon.errors import LingonError
from lingon.extras import find_entry_points, name_missing_extra

Verb = Callable[..., Any]

ORDER = (
    "train",
    "tokenizer",
    "average",
    "evaluate",
    "export",
    "inspect",
    "translate",
    "score",
    "serve",
    "doctor",
    "healthcheck",
    "models",
    "keys",
    "bench",
)
"""The verbs in the order of the work; metadata keeps none. A verb of another package comes after them."""

UsageError: Any = typer.BadParameter.__base__  # typer brings its own copy of click and exports no more of it than this
ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def main(arguments: Sequence[str] | None = None, entries: Iterable[EntryPoint] | None = None) -> int:
    """Run one verb; returns the exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted.

    entries: the verbs; without them, all that are installed
    """
    try:
        found = list(find_entry_points("lingon.verbs").values() if entries is None else entries)
        app = build(_needed(found, sys.argv[1:] if arguments is None else arguments))
        result = app(arguments, prog_name="lingon", standalone_mode=False)
        if sys.stdout is not None:  # as in `lingon serve >&-`
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except LingonError as error:
        return _complain(str(error), error.exit_code)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx else "lingon"
        return _complain(f"{error.format_message()} (see {where} --help)", error.exit_code)
    except typer.Abort:
        return _complain("aborted", 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has left, as in `lingon translate | head`: nobody is there to be told
        return 1
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    finally:
        _settle()


def _needed(entries: list[EntryPoint], arguments: Sequence[str]) -> list[EntryPoint]:
    """The verb that the first argument names, so that no other one is loaded; all verbs if it names none."""
    return [entry for entry in entries if [entry.name] == list(arguments[:1])] or entries


def build(entries: Iterable[EntryPoint]) -> typer.Typer:
    """The app with these verbs."""
    app = typer.Typer(help="Machine translation: train, export, serve.", pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(_root)
    for entry in sorted(entries, key=_rank):
        try:
            _add(app, entry, entry.load())
        except Exception as error:
            app.command(entry.name, context_settings=ANY_ARGUMENTS)(_broken(entry, error))
    return app


def _root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"lingon {version('lingon')}")
        raise typer.Exit
    _help_alone(context)


def _help_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def _add(app: typer.Typer, entry: EntryPoint, loaded: Verb | typer.Typer) -> None:
    """Give the app what an entry point leads to: a verb, or an app of verbs under the entry point's name."""
    if not isinstance(loaded, typer.Typer):
        app.command(entry.name)(_guarded(entry, entry.name, loaded))
        return
    group = typer.Typer(help=loaded.info.help)
    group.callback(invoke_without_command=True)(_help_alone)
    for verb in loaded.registered_commands:
        assert verb.callback, "a verb is a function"
        assert verb.name, "a verb of a group is registered by its name"
        group.command(verb.name)(_guarded(entry, f"{entry.name} {verb.name}", verb.callback))
    app.add_typer(group, name=entry.name)


def _rank(entry: EntryPoint) -> tuple[int, str]:
    return (ORDER.index(entry.name) if entry.name in ORDER else len(ORDER)), entry.name


def _guarded(entry: EntryPoint, name: str, verb: Verb) -> Verb:
    """The verb, saying by its name which extra it needs where that is missing."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> Any:
        with name_missing_extra(f"lingon {name}", entry):
            return verb(*args, **kwargs)

    return run


def _broken(entry: EntryPoint, error: Exception) -> Verb:
    """In the place of a verb that cannot be loaded: says why when it is called, and harms no other verb."""

    def explain() -> None:
        with name_missing_extra(f"lingon {entry.name}", entry):
            if isinstance(error, ModuleNotFoundError) and f"{entry.module}.".startswith(f"{error.name}."):
                raise LingonError(f"lingon {entry.name} is not part of this installation: {error}")
            raise error

    missing = isinstance(error, ModuleNotFoundError) and entry.extras
    explain.__doc__ = f"(needs the extra '{entry.extras[0]}')" if missing else "(cannot be loaded here)"
    return explain


def _complain(message: str, exit_code: int) -> int:
    if sys.stderr is not None:
        print(f"lingon: error: {' '.join(message.split())}", file=sys.stderr)
    return exit_code


def _settle() -> None:
    """Drop what standard output does not take; Python would try again at its end, and fail with words of its own."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
