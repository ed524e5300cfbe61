"""The verbs of `lingon models`: list, load, swap, unload. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.connection import reaching
from lingon.client.tls import Credentials

if TYPE_CHECKING:
    from lingon.admin.v1 import admin_pb2 as pb
    from lingon.client.admin import ModelsClient

ADMIN = "LINGON_ADMIN"

ServerOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The admin port. [default: $LINGON_ADMIN, or 127.0.0.1:50052]")
]
PathArgument = Annotated[str, typer.Argument(help="On the server's machine: models/NAME/VERSION, or models/NAME.")]
TimeoutOption = Annotated[float, typer.Option(min=0.001, help="Seconds to wait; the change goes on all the same.")]


@reaching
def list_models(
    server: ServerOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    timeout: TimeoutOption = 10.0,
    *,
    credentials: Credentials,
) -> None:
    """List the models of a server: name, state, languages, precision, provider, size, requests inside."""
    with _client(server, timeout, credentials) as client:
        models = client.models()
    for model in models:
        typer.echo(_json(model) if as_json else _line(model))


@reaching
def load(
    path: PathArgument,
    server: ServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Serve a bundle beside those that are served."""
    with _client(server, timeout, credentials) as client:
        typer.echo(_line(client.load(path)))


@reaching
def swap(
    path: PathArgument,
    server: ServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Serve a bundle in the place of all other versions of its name, once it is proven; no request is lost."""
    with _client(server, timeout, credentials) as client:
        model, unloaded = client.swap(path)
    typer.echo(f"{_line(model)}, in the place of {', '.join(unloaded)}")


@reaching
def unload(
    model: Annotated[str, typer.Argument(metavar="NAME/VERSION", help="As `lingon models list` names it.")],
    server: ServerOption = None,
    timeout: TimeoutOption = 600.0,
    *,
    credentials: Credentials,
) -> None:
    """Serve a version no more, once the requests inside it are done."""
    name, slash, version = model.rpartition("/")
    if not (slash and name and version):
        raise typer.BadParameter(f"NAME/VERSION is wanted, got {model!r}")
    with _client(server, timeout, credentials) as client:
        client.unload(name, version)
    typer.echo(f"{model} is unloaded")


models = typer.Typer(help="List, load, swap and unload the models of a running server, through its admin port.")
models.command("list")(list_models)
models.command("load")(load)
models.command("swap")(swap)
models.command("unload")(unload)


def _client(server: str | None, timeout: float, credentials: Credentials) -> ModelsClient:
    import os

    from lingon.client.admin import DEFAULT_ADMIN, ModelsClient

    address = server or os.environ.get(ADMIN) or DEFAULT_ADMIN
    return ModelsClient(address, timeout=timeout, **credentials.arguments())


def _line(model: pb.Model) -> str:
    served = [f"{model.precision} on {model.provider.removesuffix('ExecutionProvider')}"] if model.precision else []
    size = [f"{model.graph_bytes / 1e6:.1f} MB"] if model.graph_bytes else []
    languages = f"{model.source_language_code} to {model.target_language_code}"
    parts = [_state(model), languages, *served, *size, f"{model.requests} inside"]
    return f"{model.name}/{model.version}: {', '.join(parts)}"


def _json(model: pb.Model) -> str:
    import json

    values = {field.name: getattr(model, field.name) for field in model.DESCRIPTOR.fields}
    return json.dumps({**values, "state": _state(model)}, ensure_ascii=False)


def _state(model: pb.Model) -> str:
    from lingon.admin.v1 import admin_pb2 as pb

    names = pb.ModelState.DESCRIPTOR.values_by_number
    number = int(model.state)
    return names[number].name.removeprefix("MODEL_STATE_").lower() if number in names else f"state {number}"
