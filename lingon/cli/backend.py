"""Where a verb translates: on a server, or with a bundle in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, Unpack

from lingon.cli.options.backend import BackendOptions
from lingon.cli.options.connection import Credentials
from lingon.client.client import DEFAULT_SERVER, Client, Texts
from lingon.client.protocol import (
    DEFAULT_MAX_TEXTS,
    LIST_MODELS,
    SCORE,
    TRANSLATE,
    ClientProtocol,
    Send,
    Sleep,
    drive,
)
from lingon.client.retry import Retry
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.results import ModelInfo, ScoreResult, TextResult
from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError
from lingon.extras import find_entry_points, name_missing_extra

SERVER_TIMEOUT = 60.0  # seconds for a request to a server, without --timeout
IN_PROCESS_TIMEOUT = 9e6  # seconds for a request in this process, without --timeout: no other work competes


class Translator(Protocol):
    """Translates and scores lists: a client of a server, or a bundle in this process."""

    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """See Client."""

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """See Client."""

    def list_models(self) -> list[ModelInfo]:
        """See Client."""

    def close(self) -> None:
        """Cancel the calls in progress and accept no more."""


def server_address(server: str | None) -> str:
    """The server that was given, or that of the environment, or the default."""
    return server or os.environ.get("LINGON_SERVER") or DEFAULT_SERVER


@contextmanager
def open_translator(options: BackendOptions) -> Iterator[Translator]:
    """The translator of these options. Until its timeout it waits for a full queue and for a restarting server.

    A server that has never answered is not waited for: it is probably not running.
    """
    if not options.in_process:
        retry = Retry(retries=3, longest_pause=1.0, wait_when_full=True, wait_when_away=True)
        arguments = (options.credentials or Credentials()).client_arguments()
        timeout = options.timeout or SERVER_TIMEOUT
        with Client(server_address(options.server), timeout=timeout, retries=retry, **arguments) as client:
            yield client
        return
    entry = find_entry_points("lingon.translators").get("local")
    if entry is None:
        raise LingonError("this installation has no translator for bundles (entry point lingon.translators: local)")
    with name_missing_extra("translating with --model", entry.extras):
        local = entry.load()(
            options.model,
            device=options.device or "auto",
            precision=options.precision,
            engines=options.engines,
            threads=options.threads,
        )
    timeout = options.timeout or IN_PROCESS_TIMEOUT
    with local, closing(InProcessTranslator(local, timeout=timeout)) as translator:
        yield translator


class InProcessTranslator:
    """Answers like a Client, with a bundle in this process.

    local: has translate(TranslateRequest, timeout) -> TranslateResponse, score(ScoreRequest, timeout) -> ScoreResponse
        and list_models(ListModelsRequest, timeout) -> ListModelsResponse, which threads may call; timeout is in seconds
    """

    def __init__(self, local: Any, *, timeout: float) -> None:
        retry = Retry(retries=0, longest_pause=1.0, wait_when_full=True)  # a failed engine is not restarted here
        self._protocol = ClientProtocol(timeout=timeout, retry=retry, max_texts=DEFAULT_MAX_TEXTS)
        self._methods = {
            TRANSLATE.path: local.translate,
            SCORE.path: local.score,
            LIST_MODELS.path: local.list_models,
        }
        self._closed = threading.Event()

    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """As `Client.translate` of a list."""
        results: list[TextResult] = drive(self._protocol.translate(texts, options), self._perform)
        return results

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """As `Client.score`."""
        return drive(self._protocol.score(pairs, options), self._perform)

    def list_models(self) -> list[ModelInfo]:
        """As `Client.list_models`."""
        return drive(self._protocol.list_models(), self._perform)

    def close(self) -> None:
        """Accept no more requests."""
        self._closed.set()

    def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return self._closed.wait(step.seconds)
        if self._closed.is_set():
            raise LingonError("this translator is closed")
        try:
            return self._methods[step.method.path](step.request, step.timeout)
        except RequestError as error:
            fields = ((error.field, str(error)),) if isinstance(error, InvalidRequest) else ()
            raise ServerError(str(error), error.code, reason=error.reason, violations=fields) from None
