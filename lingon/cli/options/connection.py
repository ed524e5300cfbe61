"""How a verb connects to a server: TLS and API key, from options and environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.cli.options.groups import GroupedOption, with_option_group
from lingon.client.tls import Tls
from lingon.files import read_setting_text

API_KEY = "LINGON_API_KEY"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The values of the connection options; a field has the name of the parameter of its option."""

    tls: bool = False
    tls_ca: Path | None = None
    tls_client_certificate: Path | None = None
    tls_client_key: Path | None = None
    tls_server_name: str | None = None
    api_key_file: Path | None = None
    insecure: bool = False

    def client_arguments(self) -> dict[str, Any]:
        """The arguments `tls`, `api_key` and `insecure` of a client."""
        return {"tls": self.client_tls(), "api_key": self.api_key(), "insecure": self.insecure}

    def client_tls(self) -> bool | Tls:
        """The argument `tls` of a client: any of the TLS options turns TLS on."""
        given = Tls(
            ca=self.tls_ca,
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            server_name=self.tls_server_name,
        )
        return given if self.tls or given != Tls() else False

    def api_key(self) -> str | None:
        """The key of the file or of the environment; never an argument, which every user of the machine can read."""
        if self.api_key_file is not None:
            return read_setting_text(self.api_key_file).strip()
        return os.environ.get(API_KEY, "").strip() or None


OPTIONS = {
    "tls": GroupedOption(
        Annotated[
            bool,
            typer.Option(
                "--tls",
                envvar="LINGON_TLS",
                help="Connect with TLS and trust the system's certificate authorities. Default: no TLS, unless one of "
                "the options --tls-... is given.",
            ),
        ],
        False,
    ),
    "tls_ca": GroupedOption(
        Annotated[
            Path | None,
            typer.Option(
                envvar="LINGON_TLS_CA",
                help="PEM file of the certificate authorities to trust.",
                show_default="those of the system",
            ),
        ],
        None,
    ),
    "tls_client_certificate": GroupedOption(
        Annotated[
            Path | None,
            typer.Option(
                envvar="LINGON_TLS_CLIENT_CERTIFICATE",
                help="PEM file of a client certificate, for a server that asks for one; needs --tls-client-key.",
                show_default="none",
            ),
        ],
        None,
    ),
    "tls_client_key": GroupedOption(
        Annotated[
            Path | None,
            typer.Option(
                envvar="LINGON_TLS_CLIENT_KEY",
                help="PEM file of the private key of --tls-client-certificate.",
                show_default="none",
            ),
        ],
        None,
    ),
    "tls_server_name": GroupedOption(
        Annotated[
            str | None,
            typer.Option(
                envvar="LINGON_TLS_SERVER_NAME",
                help="Expected name in the server's certificate.",
                show_default="the host of --server",
            ),
        ],
        None,
    ),
    "api_key_file": GroupedOption(
        Annotated[
            Path | None,
            typer.Option(
                envvar="LINGON_API_KEY_FILE",
                help="File that holds the API key.",
                show_default="the key in $LINGON_API_KEY, else no key",
            ),
        ],
        None,
    ),
    "insecure": GroupedOption(
        Annotated[
            bool,
            typer.Option(
                "--insecure",
                envvar="LINGON_INSECURE",
                help="Send the API key without TLS to another machine too; everybody on the way can read it. "
                "Default: without TLS a key is sent to this machine only.",
            ),
        ],
        False,
    ),
}
"""The connection options by the name of their parameter."""


def with_connection_options(verb: Callable[..., None], *, without: Collection[str] = ()) -> Callable[..., None]:
    """The verb with the connection options instead of its parameter `credentials`.

    without: parameters of the options that it does not have
    """
    names = [name for name in OPTIONS if name not in without]
    return with_option_group(verb, "credentials", {name: OPTIONS[name] for name in names}, credentials_of)


def credentials_of(**values: Any) -> Credentials:
    """The credentials of connection options that were given."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would log the errors that the verb prints
    return Credentials(**values)
