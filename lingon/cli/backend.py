"""Where a verb translates, on a server or with a bundle in this process: its options and the translator of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Unpack

import typer

from lingon.cli.options import OptionGroup
from lingon.client.connection import Tls
from lingon.errors import SettingsError
from lingon.files import read_setting_text

if TYPE_CHECKING:
    from lingon.client.calls import TextSequence
    from lingon.client.live import LiveCall
    from lingon.client.options import LiveOptions, ScoreOptions, TranslateOptions
    from lingon.client.results import ModelInfo, ScoreResult, TextResult

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
        """Return the argument `tls` of a client: any of the TLS options turns TLS on."""
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
        """Return the arguments `tls`, `api_key` and `insecure` of a client."""
        return {"tls": self.client_tls(), "api_key": self.api_key(), "insecure": self.insecure}

    def api_key(self) -> str | None:
        """Return the key of the file or of the environment. Never an argument, which every user of the machine can
        read.
        """
        if self.api_key_file is not None:
            return read_setting_text(self.api_key_file).strip()
        return os.environ.get(API_KEY, "").strip() or None


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


SERVER_TIMEOUT = 60.0  # seconds for a request to a server, without --timeout


class ListTranslator(Protocol):
    """A translator and scorer of lists: a client of a server, or a bundle in this process."""

    def translate(self, texts: TextSequence, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """See Client."""

    def find_source(self, texts: TextSequence, **options: Unpack[TranslateOptions]) -> str:
        """See Client."""

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """See Client."""

    def list_models(self) -> list[ModelInfo]:
        """See Client."""

    def close(self) -> None:
        """Cancel the calls in progress and accept no more."""


class LiveTranslator(ListTranslator, Protocol):
    """A translator of lists, and of words while they come."""

    def live(self, **options: Unpack[LiveOptions]) -> LiveCall:
        """See Client."""


def server_address(server: str | None) -> str:
    """Return the server that was given, or that of the environment, or the default."""
    from lingon.client.client import DEFAULT_SERVER

    return server or os.environ.get("LINGON_SERVER") or DEFAULT_SERVER


@contextmanager
def open_translator(options: BackendOptions) -> Iterator[LiveTranslator]:
    """Give the translator of these options. Until its timeout it waits for a full queue and for a restarting server.

    A server that has never answered is not waited for: it is probably not running.
    """
    from lingon.client.client import Client
    from lingon.client.model import Model
    from lingon.client.steps import Retry

    if not options.in_process:
        retry = Retry(retries=3, longest_pause=1.0, wait_when_full=True, wait_when_away=True)
        arguments = (options.credentials or Credentials()).client_arguments()
        timeout = options.timeout or SERVER_TIMEOUT
        with Client(server_address(options.server), timeout=timeout, retries=retry, **arguments) as client:
            yield client
        return
    with Model(
        options.model or "",
        device=options.device or "auto",
        precision=options.precision,
        engines=options.engines,
        threads=options.threads,
        timeout=options.timeout,
    ) as model:
        yield model
