"""Where a verb translates: on a server, or with a bundle in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Unpack

from lingon.cli.options.backend import BackendOptions
from lingon.cli.options.connection import Credentials

if TYPE_CHECKING:
    from lingon.client.calls.blocking import Texts
    from lingon.client.values.options import ScoreOptions, TranslateOptions
    from lingon.client.values.results import ModelInfo, ScoreResult, TextResult

SERVER_TIMEOUT = 60.0  # seconds for a request to a server, without --timeout


class Translator(Protocol):
    """Translates and scores lists: a client of a server, or a bundle in this process."""

    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """See Client."""

    def find_source(self, texts: Texts, **options: Unpack[TranslateOptions]) -> str:
        """See Client."""

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """See Client."""

    def list_models(self) -> list[ModelInfo]:
        """See Client."""

    def close(self) -> None:
        """Cancel the calls in progress and accept no more."""


def server_address(server: str | None) -> str:
    """The server that was given, or that of the environment, or the default."""
    from lingon.client.client import DEFAULT_SERVER

    return server or os.environ.get("LINGON_SERVER") or DEFAULT_SERVER


@contextmanager
def open_translator(options: BackendOptions) -> Iterator[Translator]:
    """The translator of these options. Until its timeout it waits for a full queue and for a restarting server.

    A server that has never answered is not waited for: it is probably not running.
    """
    from lingon.client.client import Client
    from lingon.client.model import Model
    from lingon.client.retry import Retry

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
