"""How a verb connects to a server: TLS and API key, from options and environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.cli.options.groups import OptionGroup
from lingon.client.tls import Tls
from lingon.files import read_setting_text

API_KEY = "LINGON_API_KEY"

InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="LINGON_INSECURE",
        help="Send the API key without TLS to another machine too; everybody on the way can read it. "
        "Default: without TLS a key is sent to this machine only.",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsOptions(OptionGroup):
    """How a verb that needs no API key connects to a server."""

    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            envvar="LINGON_TLS",
            help="Connect with TLS and trust the system's certificate authorities. Default: no TLS, unless one of "
            "the options --tls-... is given.",
        ),
    ] = False
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="LINGON_TLS_CA",
            help="PEM file of the certificate authorities to trust.",
            show_default="those of the system",
        ),
    ] = None
    tls_client_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="LINGON_TLS_CLIENT_CERTIFICATE",
            help="PEM file of a client certificate, for a server that asks for one; needs --tls-client-key.",
            show_default="none",
        ),
    ] = None
    tls_client_key: Annotated[
        Path | None,
        typer.Option(
            envvar="LINGON_TLS_CLIENT_KEY",
            help="PEM file of the private key of --tls-client-certificate.",
            show_default="none",
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            envvar="LINGON_TLS_SERVER_NAME",
            help="Expected name in the server's certificate.",
            show_default="the host of --server",
        ),
    ] = None

    def __post_init__(self) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would log the errors that the verb prints

    def client_tls(self) -> bool | Tls:
        """The argument `tls` of a client: any of the TLS options turns TLS on."""
        given = Tls(
            ca=self.tls_ca,
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            server_name=self.tls_server_name,
        )
        return given if self.tls or given != Tls() else False


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials(TlsOptions):
    """How a verb connects to a server that asks for an API key."""

    api_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="LINGON_API_KEY_FILE",
            help="File that holds the API key.",
            show_default="the key in $LINGON_API_KEY, else no key",
        ),
    ] = None
    insecure: InsecureOption = False

    def client_arguments(self) -> dict[str, Any]:
        """The arguments `tls`, `api_key` and `insecure` of a client."""
        return {"tls": self.client_tls(), "api_key": self.api_key(), "insecure": self.insecure}

    def api_key(self) -> str | None:
        """The key of the file or of the environment; never an argument, which every user of the machine can read."""
        if self.api_key_file is not None:
            return read_setting_text(self.api_key_file).strip()
        return os.environ.get(API_KEY, "").strip() or None
