"""The verbs of `lingon models`: list, load, swap, unload. Heavy imports happen when a verb runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.backend import Credentials
from lingon.cli.options import with_option_groups
from lingon.errors import LingonError

if TYPE_CHECKING:
    from lingon.admin.v1 import admin_pb2 as pb
    from lingon.client.client import ModelsClient

ADMIN_VARIABLE = "LINGON_ADMIN"
POLL_INTERVAL = 0.25  # seconds between two looks at the models of a server that changes them
POLL_TIMEOUT = 2.0  # seconds for each look

RunningServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the server's admin port. Without a port it is 50052.",
        show_default="$LINGON_ADMIN, else 127.0.0.1:50052",
    ),
]
PathArgument = Annotated[
    str,
    typer.Argument(
        help="Path of the bundle on the server's machine: models/NAME/VERSION, or models/NAME for the highest version."
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="How long to wait for the answer; the server completes a change even if nothing waits for it.",
    ),
]


@with_option_groups
def list_models(
    server: RunningServerOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each model. Default: plain text.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of the call.")] = 10.0,
    *,
    credentials: Credentials,
) -> None:
    """List the models of a server: name, state, languages, precision, provider, size, requests in progress."""
    with _client(server, timeout, credentials) as client:
        models = client.models()
    for model in models:
        typer.echo(_json(model) if as_json else _line(model))


@with_option_groups
def load(
    path: PathArgument,
    server: RunningServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Load a bundle and serve it in addition to the models that are served."""
    with _client(server, timeout, credentials) as client, _progress(server, credentials):
        model = client.load(path)
    typer.echo(_line(model))


@with_option_groups
def swap(
    path: PathArgument,
    server: RunningServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Load and check a bundle, then serve it in place of all other versions of its name. No request is lost."""
    with _client(server, timeout, credentials) as client, _progress(server, credentials):
        model, unloaded = client.swap(path)
    typer.echo(f"{_line(model)}, in place of {', '.join(unloaded)}")


@with_option_groups
def unload(
    model: Annotated[
        str, typer.Argument(metavar="NAME/VERSION", help="Name and version as `lingon models list` prints them.")
    ],
    server: RunningServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Stop serving a version after its requests in progress are done."""
    name, slash, version = model.rpartition("/")
    if not (slash and name and version):
        raise typer.BadParameter(f"the model must be NAME/VERSION, got {model!r}")
    with _client(server, timeout, credentials) as client, _progress(server, credentials):
        client.unload(name, version)
    typer.echo(f"{model} was unloaded")


models = typer.Typer(help="List, load, swap and unload the models of a running server, through its admin port.")
models.command("list")(list_models)
models.command("load")(load)
models.command("swap")(swap)
models.command("unload")(unload)


def _client(server: str | None, timeout: float, credentials: Credentials) -> ModelsClient:
    import os

    from lingon.client.client import DEFAULT_ADMIN, ModelsClient

    address = server or os.environ.get(ADMIN_VARIABLE) or DEFAULT_ADMIN
    return ModelsClient(address, timeout=timeout, **credentials.client_arguments())


@contextmanager
def _progress(server: str | None, credentials: Credentials) -> Iterator[None]:
    """Print on standard error, if it is a terminal, what the server does with its models inside the context."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watching = threading.Thread(target=_print_progress, args=(server, credentials, done), daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join(POLL_TIMEOUT)  # so that no line comes after the result


def _print_progress(server: str | None, credentials: Credentials, done: threading.Event) -> None:
    """Print a line for every model that is loaded or unloaded and for every phase of its loading, until `done`."""
    seen: dict[str, tuple[str, str]] = {}
    with suppress(LingonError), _client(server, POLL_TIMEOUT, credentials) as client:
        while not done.wait(POLL_INTERVAL):
            for model in client.models():
                label, now = f"{model.name}/{model.version}", (_state(model), model.load_phase)
                if now[0] != "serving" and seen.get(label) != now and not done.is_set():
                    typer.echo(_line(model), err=True)
                seen[label] = now


def _line(model: pb.Model) -> str:
    served = [f"{model.precision} on {model.provider.removesuffix('ExecutionProvider')}"] if model.precision else []
    size = [f"{model.graph_bytes / 1e6:.1f} MB"] if model.graph_bytes else []
    phase = model.load_phase.replace("_", " ")
    state = f"{_state(model)} ({phase}, {model.load_seconds:.1f} s)" if phase else _state(model)
    parts = [state, _languages(model), *served, *size, f"{model.requests} requests"]
    return f"{model.name}/{model.version}: {', '.join(parts)}"


def _languages(model: pb.Model) -> str:
    """Return the languages of a model. A list of several is in brackets, since commas separate the parts of a line."""
    from lingon.bundle.manifest import shown_languages

    sides = (
        (model.source_language_code, model.source_language_codes),
        (
            model.target_language_code,
            model.target_language_codes,
        ),
    )
    source, target = (f"[{shown_languages(list(many))}]" if len(many) > 1 else one for one, many in sides)
    return f"{source} to {target}"


def _json(model: pb.Model) -> str:
    import json

    values = {field.name: getattr(model, field.name) for field in model.DESCRIPTOR.fields}
    values |= {name: list(values[name]) for name in ("source_language_codes", "target_language_codes")}
    return json.dumps({**values, "state": _state(model)}, ensure_ascii=False)


def _state(model: pb.Model) -> str:
    from lingon.admin.v1 import admin_pb2 as pb

    names = pb.ModelState.DESCRIPTOR.values_by_number
    number = int(model.state)
    return names[number].name.removeprefix("MODEL_STATE_").lower() if number in names else f"state {number}"
