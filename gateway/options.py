"""The options of `lingon gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Host = Annotated[str, typer.Option(help="Address that the HTTP port listens on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="TCP port of /metrics, on the same address.", show_default="none"),
]
Apis = Annotated[str, typer.Option(help="APIs to offer, separated by commas.")]
Page = Annotated[bool, typer.Option("--page/--no-page", help="Whether / is a page to translate on.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder for files until they are fetched.", show_default="none: files are not supported"),
]
Cors = Annotated[
    str | None,
    typer.Option(help="Origins of pages that may call the APIs, separated by commas, or *.", show_default="none"),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        help="Names by which the gateway may be called, separated by commas, or *; addresses and localhost always may.",
        show_default="none on a loopback address without trusted proxies, else all",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option(help="PEM file of a certificate chain, for HTTPS.", show_default="none: HTTP")
]
Key = Annotated[Path | None, typer.Option(help="PEM file of its private key.", show_default="none")]
MaxConnections = Annotated[int, typer.Option(min=1, help="Connections at once; one address has half of them at most.")]
TrustedProxies = Annotated[
    str, typer.Option(help="Addresses of proxies whose X-Forwarded-For is believed.", show_default="none")
]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of a call.")]
