"""The options that choose where a verb translates: on a server, or with a bundle in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from lingon.cli.options.connection import Credentials
from lingon.cli.options.groups import OptionGroup
from lingon.errors import SettingsError

ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the server. Without a port it is 50051.",
        show_default="$LINGON_SERVER, else 127.0.0.1:50051",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendOptions(OptionGroup):
    """The options that choose where a verb translates."""

    server: ServerOption = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            help="Without --server, the path of a bundle (models/NAME or models/NAME/VERSION), which is loaded in this "
            "process; $LINGON_SERVER is then ignored. With --server, the NAME or NAME/VERSION of a model there.",
            show_default="the server's model for these languages",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Time limit of each request, retries included.",
            show_default="60 with a server, none with a bundle",
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="Device for a bundle in this process: auto, cpu or cuda.", show_default="auto")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of a bundle in this process, such as fp32, fp16 or int8.",
            show_default="the best one for the device",
        ),
    ] = None
    engines: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Batches that a bundle in this process decodes in parallel.",
            show_default="1 on a GPU, on a CPU one for each core up to 4",
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="CPU cores for each of the --engines of a bundle in this process.",
            show_default="the engines share all usable cores",
        ),
    ] = None
    credentials: Credentials | None = None  # for the server

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
