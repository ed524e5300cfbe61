"""The `lingon` command: one app made of the verbs that the packages declare as entry points.

Heavy imports happen when a verb runs, so that `lingon --help` is fast.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lingon.cli.output import reworded
from lingon.errors import Interrupted, LingonError, RequestError, ServerError
from lingon.extras import check_system, find_entry_points, name_missing_extra

Verb = Callable[..., Any]

ORDER = (
    "train",
    "prepare",
    "average",
    "distill",
    "evaluate",
    "export",
    "import",
    "calibrate",
    "verify",
    "inspect",
    "translate",
    "bulk",
    "live",
    "score",
    "attend",
    "align",
    "serve",
    "gateway",
    "mcp",
    "doctor",
    "healthcheck",
    "models",
    "glossaries",
    "memories",
    "keys",
    "bench",
)
"""The verbs in the order of the work. Package metadata has no order. Verbs of other packages come after them."""

UsageError: Any = typer.BadParameter.__base__  # typer bundles click and exports no other base class of usage errors
ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


class PlainCommand(TyperCommand):
    """A verb whose help has no boxes: in 80 columns they cut the names of options, variables and files."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **{**rest, "rich_markup_mode": None})


class PlainGroup(TyperGroup):
    """Verbs with a help like theirs, which has the first paragraph of each."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **{**rest, "rich_markup_mode": None})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See typer, which would cut long lines."""
        with formatter.section("Commands"):
            helps = {name: command.help or "" for name, command in self.commands.items()}
            formatter.write_dl([(name, " ".join(text.partition("\n\n")[0].split())) for name, text in helps.items()])


def main(arguments: Sequence[str] | None = None, entries: Iterable[EntryPoint] | None = None) -> int:
    """Run one verb and return the exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted.

    entries: the verbs. None means all that are installed
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        found = list(find_entry_points("lingon.verbs").values() if entries is None else entries)
        app = build(_needed(found, given))
        with _named_standard_output():
            result = app(given, prog_name="lingon", standalone_mode=False)
            if sys.stdout is not None:
                sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except Interrupted as stop:
        return _print_last(str(stop), stop.exit_code)
    except (RequestError, ServerError) as error:
        return _print_error(reworded(str(error), translating=True), error.exit_code)
    except LingonError as error:
        return _print_error(str(error), error.exit_code)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx else " ".join(["lingon", *given[:1]])  # of an option without value
        return _print_error(f"{_wrong_usage(error)} (see {where} --help)", error.exit_code)
    except typer.Abort:
        return _print_error("aborted", 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has closed, as in `lingon translate | head`, so that no message is needed
        return 1
    except OSError as error:
        return _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    finally:
        _flush_or_drop()


def _needed(entries: list[EntryPoint], arguments: list[str]) -> list[EntryPoint]:
    """Return the verb that the first argument names, so that no other one is loaded; all verbs if it names none.

    --version needs no verb.
    """
    if arguments == ["--version"]:
        return []
    return [entry for entry in entries if [entry.name] == arguments[:1]] or entries


def build(entries: Iterable[EntryPoint]) -> typer.Typer:
    """Return the app with these verbs."""
    app = typer.Typer(
        cls=PlainGroup,
        help="Machine translation: train a model, export it to ONNX, serve it over gRPC, translate. Without a model of "
        "your own, get one by its name: lingon models get en-de",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    for entry in sorted(entries, key=_position):
        try:
            _add(app, entry, entry.load())
        except Exception as error:
            app.command(entry.name, context_settings=ANY_ARGUMENTS)(_unloadable(entry, error))
    return app


def _root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"lingon {version('lingon')}")
        raise typer.Exit
    _help_without_verb(context)


def _help_without_verb(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def _add(app: typer.Typer, entry: EntryPoint, loaded: Verb | typer.Typer) -> None:
    """Add what an entry point loads: a verb, or an app of verbs under the name of the entry point."""
    if not isinstance(loaded, typer.Typer):
        app.command(entry.name, cls=PlainCommand)(_naming_missing_extra(entry, entry.name, loaded))
        return
    group = typer.Typer(cls=PlainGroup, help=loaded.info.help)
    group.callback(invoke_without_command=True)(_help_without_verb)
    for verb in loaded.registered_commands:
        assert verb.callback, "a verb is a function"
        assert verb.name, "a verb of a group is registered by its name"
        group.command(verb.name, cls=PlainCommand)(
            _naming_missing_extra(entry, f"{entry.name} {verb.name}", verb.callback)
        )
    app.add_typer(group, name=entry.name)


def _position(entry: EntryPoint) -> tuple[int, str]:
    return (ORDER.index(entry.name) if entry.name in ORDER else len(ORDER)), entry.name


def _naming_missing_extra(entry: EntryPoint, name: str, verb: Verb) -> Verb:
    """Return the verb. If a library is missing, its error names the verb and the extra to install."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> Any:
        check_system(f"lingon {name}", entry.extras)
        with name_missing_extra(f"lingon {name}", entry.extras):
            return verb(*args, **kwargs)

    return run


def _unloadable(entry: EntryPoint, error: Exception) -> Verb:
    """Return a verb instead of one that cannot be loaded: it raises the reason when it is called, so that other verbs
    still work.
    """
    left_out = isinstance(error, ModuleNotFoundError) and f"{entry.module}.".startswith(f"{error.name}.")

    def explain() -> None:
        check_system(f"lingon {entry.name}", entry.extras)
        with name_missing_extra(f"lingon {entry.name}", entry.extras):
            if left_out:
                raise LingonError(f"lingon {entry.name} is not part of this installation: {error}")
            raise error

    if left_out:
        explain.__doc__ = "(not part of this installation)"
    elif isinstance(error, ModuleNotFoundError) and entry.extras:
        explain.__doc__ = f"(needs the extra '{entry.extras[0]}')"
    else:
        explain.__doc__ = "(cannot be loaded here)"
    return explain


def _wrong_usage(error: Any) -> str:
    """Return the message of a usage error, with the value, which pydantic leaves out. Typer checks values with
    pydantic.
    """
    message = str(error.format_message()).replace("Value error, ", "")
    if "Input should be " not in message:
        return message
    value = error.__cause__.errors()[0]["input"]
    return f"{message.replace('Input should be', 'must be')}, got {value}"


def _print_error(message: str, exit_code: int) -> int:
    return _print_last(f"error: {message}", exit_code)


def _print_last(message: str, exit_code: int) -> int:
    """Print the last message of the command in one line and return the exit code."""
    from lingon.text import printable

    if sys.stderr is not None:
        print(f"lingon: {printable(' '.join(message.split()))}", file=sys.stderr)
    return exit_code


class _NamedStream:
    """Standard output whose errors name it: those of the operating system name no file when a write fails."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _NamedStream:
        return _NamedStream(self._stream.buffer)

    def write(self, data: str | bytes) -> Any:
        with _naming_standard_output():
            return self._stream.write(data)

    def flush(self) -> None:
        with _naming_standard_output():
            self._stream.flush()


@contextmanager
def _naming_standard_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


@contextmanager
def _named_standard_output() -> Iterator[None]:
    """Inside, a failed write to standard output is an error with its name."""
    if sys.stdout is None:  # after `lingon serve >&-`
        yield
        return
    with redirect_stdout(_NamedStream(sys.stdout)):
        yield


def _flush_or_drop() -> None:
    """Flush standard output. If that fails, drop the rest. Python would try again at exit and print a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
