"""The options of every verb that calls a server: how it trusts it, and what it shows of itself."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lingon.client.tls import Credentials


class Reaching(NamedTuple):
    """An option: the field of Credentials that it fills, its type, and what it is where it is not given."""

    field: str
    kind: Any
    default: Any


OPTIONS = {
    "tls": Reaching(
        "tls",
        Annotated[bool, typer.Option("--tls", envvar="LINGON_TLS", help="With the system's roots of trust.")],
        False,
    ),
    "tls_ca": Reaching(
        "ca",
        Annotated[
            Path | None, typer.Option(envvar="LINGON_TLS_CA", help="TLS, trusting the authorities of this PEM file.")
        ],
        None,
    ),
    "tls_client_certificate": Reaching(
        "certificate",
        Annotated[
            Path | None, typer.Option(envvar="LINGON_TLS_CLIENT_CERTIFICATE", help="PEM file: what this client shows.")
        ],
        None,
    ),
    "tls_client_key": Reaching(
        "key",
        Annotated[Path | None, typer.Option(envvar="LINGON_TLS_CLIENT_KEY", help="PEM file: its key.")],
        None,
    ),
    "tls_server_name": Reaching(
        "server_name",
        Annotated[
            str | None,
            typer.Option(envvar="LINGON_TLS_SERVER_NAME", help="In the server's certificate, where it is another."),
        ],
        None,
    ),
    "api_key_file": Reaching(
        "api_key_file",
        Annotated[
            Path | None,
            typer.Option(envvar="LINGON_API_KEY_FILE", help="The API key is here; or it is $LINGON_API_KEY."),
        ],
        None,
    ),
}
"""By parameter."""


def reaching(verb: Callable[..., None], *, keys: bool = True) -> Callable[..., None]:
    """The verb with these options in the place of its parameter `credentials`; keys: whether it may need an API key."""
    names = [name for name in OPTIONS if keys or name != "api_key_file"]
    own = inspect.signature(verb, eval_str=True)
    kept = [each for each in own.parameters.values() if each.name != "credentials"]
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, annotation=OPTIONS[name].kind, default=OPTIONS[name].default) for name in names
    ]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are told once, by us
        verb(credentials=Credentials(**{OPTIONS[name].field: given.pop(name) for name in names}), **given)

    parameters = [*kept, *added]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer looks at both
    return run
