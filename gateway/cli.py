"""The verb gateway: the HTTP APIs in a process of their own, in front of any server."""

from __future__ import annotations

import typer

from lingon.cli.options.backend import ServerOption
from lingon.cli.options.connection import InsecureOption, TlsOptions
from lingon.cli.options.groups import with_option_groups
from lingon.gateway.options import (
    Apis,
    Certificate,
    Cors,
    DataDir,
    Host,
    Hosts,
    Key,
    MaxConnections,
    MetricsPort,
    Page,
    Port,
    Timeout,
    TrustedProxies,
)


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
    from lingon.gateway.app import GatewayOptions
    from lingon.gateway.run import default_hosts, run_apart
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
