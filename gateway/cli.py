"""The verb gateway: the HTTP APIs in a process of their own, in front of any server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.options.backend import ServerOption
from lingon.cli.options.connection import Credentials, with_connection_options


@partial(with_connection_options, api_key=False)
def gateway(
    server: ServerOption = None,
    host: Annotated[str, typer.Option(help="Address that the HTTP port listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")] = 8080,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="TCP port of /metrics, on the same address.", show_default="none"),
    ] = None,
    apis: Annotated[
        str, typer.Option(help="APIs to offer, separated by commas.")
    ] = "lingon,deepl,libretranslate,google",
    page: Annotated[bool, typer.Option("--page/--no-page", help="Whether / is a page to translate on.")] = True,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for files until they are fetched.", show_default="none: files are not supported"),
    ] = None,
    cors: Annotated[
        str | None,
        typer.Option(help="Origins of pages that may call the APIs, separated by commas, or *.", show_default="none"),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="PEM file of a certificate chain, for HTTPS.", show_default="none: HTTP")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of its private key.", show_default="none")] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 4096,
    trusted_proxies: Annotated[
        str, typer.Option(help="Addresses of proxies whose X-Forwarded-For is believed.", show_default="none")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of a call.")] = 60.0,
    *,
    credentials: Credentials,
) -> None:
    """Offer the HTTP APIs of Lingon, DeepL, LibreTranslate and Google in front of a server.

    Callers send their own API keys, which the server checks. `lingon serve --http-port` does the same in one process.
    """
    from lingon.cli.backend import server_address
    from lingon.errors import SettingsError
    from lingon.gateway.app import GatewayOptions
    from lingon.gateway.run import run_apart
    from lingon.gateway.server import HttpOptions

    if (certificate is None) != (key is None):
        raise SettingsError("--certificate and --key go together: give both or neither")
    http = HttpOptions(
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        max_connections=max_connections,
        trusted_proxies=trusted_proxies,
    )
    options = GatewayOptions(apis=_listed(apis), page=page, data_dir=data_dir, cors=_listed(cors or ""))
    target = server_address(server)
    run_apart(target, credentials.client_tls(), timeout, http, options, metrics_port, typer.echo)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
