"""The options that choose where a verb translates: on a server, or with a bundle in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from lingon.cli.options import connection
from lingon.cli.options.connection import Credentials, credentials_of
from lingon.cli.options.groups import GroupedOption, with_option_group
from lingon.errors import SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendOptions:
    """The options that choose where a verb translates.

    server: host:port; None means $LINGON_SERVER or the default server
    model: with server the name of a model there; without server the path of a bundle to load in this process
    device, precision, engines, threads: of a bundle in this process
    timeout: seconds for each request; None means SERVER_TIMEOUT, and no limit in this process
    credentials: TLS and API key for the server
    """

    server: str | None = None
    model: str | None = None
    device: str | None = None
    precision: str | None = None
    engines: int | None = None
    threads: int | None = None
    timeout: float | None = None
    credentials: Credentials | None = None

    @property
    def in_process(self) -> bool:
        """Whether a bundle in this process translates."""
        return self.server is None and self.model is not None

    @property
    def server_model(self) -> str | None:
        """The name of the model on the server, if one was given."""
        return None if self.in_process else self.model

    def __post_init__(self) -> None:
        local = {name: getattr(self, name) for name in ("device", "precision", "engines", "threads")}
        given = next((name for name, value in local.items() if value), None)
        if given and not self.in_process:
            raise SettingsError(f"--{given} needs --model PATH without --server: a server has its own")


ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the server. Without a port it is 50051.",
        show_default="$LINGON_SERVER, else 127.0.0.1:50051",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|NAME",
        help="Without --server, the path of a bundle (models/NAME or models/NAME/VERSION), which is loaded in this "
        "process; $LINGON_SERVER is then ignored. With --server, the NAME or NAME/VERSION of a model there.",
        show_default="the server's model for these languages",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Device for a bundle in this process: auto, cpu or cuda.", show_default="auto")
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        help="Precision of a bundle in this process, such as fp32, fp16 or int8.",
        show_default="the best one for the device",
    ),
]
EnginesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Batches that a bundle in this process decodes in parallel.",
        show_default="1 on a GPU, on a CPU one for each core up to 4",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="CPU cores for each of the --engines of a bundle in this process.",
        show_default="the engines share all usable cores",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Time limit of each request, retries included.",
        show_default="60 with a server, none with a bundle",
    ),
]

OPTIONS = {
    "server": GroupedOption(ServerOption, None),
    "model": GroupedOption(ModelOption, None),
    "timeout": GroupedOption(TimeoutOption, None),
    "device": GroupedOption(DeviceOption, None),
    "precision": GroupedOption(PrecisionOption, None),
    "engines": GroupedOption(EnginesOption, None),
    "threads": GroupedOption(ThreadsOption, None),
}
"""The options of BackendOptions by the name of their parameter and field, without those of its credentials."""


def with_backend_options(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of a backend and of its connection instead of its parameter `backend`."""
    return with_option_group(verb, "backend", {**OPTIONS, **connection.OPTIONS}, _backend_of)


def _backend_of(**values: Any) -> BackendOptions:
    credentials = credentials_of(**{name: values.pop(name) for name in connection.OPTIONS})
    return BackendOptions(**values, credentials=credentials)
