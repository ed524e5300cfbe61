"""The verb gateway: the HTTP APIs in their own process, in front of any server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.backend import InsecureOption, ServerOption, TlsOptions
from lingon.cli.options import with_option_groups

Host = Annotated[str, typer.Option(help="Address that the HTTP port listens on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="TCP port of /metrics, on the same address.", show_default="none")
]
Apis = Annotated[str, typer.Option(help="APIs to offer, separated by commas; openai has to be named.")]
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


@with_option_groups
def gateway(
    server: ServerOption = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    metrics_port: MetricsPort = None,
    apis: Apis = "lingon,deepl,libretranslate,google",
    page: Page = True,
    data_dir: DataDir = None,
    cors: Cors = None,
    hosts: Hosts = None,
    certificate: Certificate = None,
    key: Key = None,
    max_connections: MaxConnections = 4096,
    trusted_proxies: TrustedProxies = "",
    timeout: Timeout = 60.0,
    *,
    connection: TlsOptions,
    insecure: InsecureOption = False,
) -> None:
    """Offer the HTTP APIs of Lingon, DeepL, LibreTranslate and Google in front of a server.

    Callers send their own API keys, which the server checks. `lingon serve --http-port` does the same in one process.
    """
    from lingon.cli.backend import server_address
    from lingon.errors import SettingsError
    from lingon.gateway.app import GatewayOptions, default_hosts, run_apart
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
    offered = GatewayOptions(
        apis=_listed(apis),
        page=page,
        data_dir=data_dir,
        cors=_listed(cors or ""),
        hosts=_listed(hosts or "") or default_hosts(http),
    )
    target = server_address(server)
    tls = connection.client_tls()
    run_apart(target, tls, timeout, http, offered, metrics_port, typer.echo, insecure=insecure)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
