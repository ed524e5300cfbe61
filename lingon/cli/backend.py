"""What translates for a verb: a server, or a bundle in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from lingon.client.client import DEFAULT_SERVER, Client, Texts, play
from lingon.client.messages import ScoreOptions, TranslateOptions
from lingon.client.protocol import DEFAULT_MAX_TEXTS, SCORE, TRANSLATE, Calls, Send, Sleep
from lingon.client.results import ScoreResult, TextResult
from lingon.client.retry import Retry
from lingon.client.tls import Credentials
from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError, SettingsError
from lingon.extras import find_entry_points, name_missing_extra


class Answers(Protocol):
    """What answers lists: a client of a server, or a bundle here."""

    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """See Client."""

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """See Client."""

    def close(self) -> None:
        """End what is under way."""


TIMEOUT = 60.0
NO_HURRY = 9e6  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """What a person said of where to translate.

    server: host:port; without it and without model, that of LINGON_SERVER or the default
    model: with server the name of a model there; without it the path of a bundle
    device, precision: of a bundle in this process
    timeout: seconds for each request; without it TIMEOUT with a server, and in this process none: nobody else waits
    credentials: how the server is trusted, and what it is shown
    """

    server: str | None = None
    model: str | None = None
    device: str | None = None
    precision: str | None = None
    timeout: float | None = None
    credentials: Credentials | None = None

    @property
    def here(self) -> bool:
        """Whether a bundle in this process translates."""
        return self.server is None and self.model is not None

    def __post_init__(self) -> None:
        if not self.here and (self.device or self.precision):
            raise SettingsError("--device and --precision are of a bundle in this process: give --model PATH alone")


def server_address(server: str | None) -> str:
    """The server that was named, or that of the environment, or the default."""
    return server or os.environ.get("LINGON_SERVER") or DEFAULT_SERVER


@contextmanager
def connected(where: Where) -> Iterator[Answers]:
    """What is to translate; it waits where the queue is full or the server away, until the timeout.

    A server that never answered is told of soon: nobody has started it.
    """
    if not where.here:
        retry = Retry(retries=3, longest_pause=1.0, wait_when_full=True, wait_when_away=True)
        address, shown = server_address(where.server), (where.credentials or Credentials()).arguments()
        with Client(address, timeout=where.timeout or TIMEOUT, retries=retry, **shown) as client:
            yield client
        return
    entry = find_entry_points("lingon.translators").get("local")
    if entry is None:
        raise LingonError("this installation translates with no bundle (entry point local of lingon.translators)")
    with name_missing_extra("translating with --model", entry):
        local = entry.load()(where.model, device=where.device or "auto", precision=where.precision)
    with local, closing(InProcess(local, timeout=where.timeout or NO_HURRY)) as here:
        yield here


class InProcess:
    """What answers as a Client does, out of a bundle in this process.

    local: has translate(TranslateRequest, timeout) -> TranslateResponse and score(ScoreRequest, timeout) ->
        ScoreResponse, for threads; timeout is in seconds
    """

    def __init__(self, local: Any, *, timeout: float) -> None:
        retry = Retry(retries=0, longest_pause=1.0, wait_when_full=True)  # nobody starts its engine anew
        self._calls = Calls(timeout=timeout, retry=retry, max_texts=DEFAULT_MAX_TEXTS)
        self._answers = {TRANSLATE.path: local.translate, SCORE.path: local.score}
        self._closed = threading.Event()

    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """As `Client.translate` of several."""
        results: list[TextResult] = play(self._calls.translate(texts, options), self._take)
        return results

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """As `Client.score`."""
        return play(self._calls.score(pairs, options), self._take)

    def close(self) -> None:
        """Begin nothing more."""
        self._closed.set()

    def _take(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return self._closed.wait(step.seconds)
        if self._closed.is_set():
            raise LingonError("this translator is closed")
        try:
            return self._answers[step.method.path](step.request, step.timeout)
        except RequestError as error:
            fields = ((error.field, str(error)),) if isinstance(error, InvalidRequest) else ()
            raise ServerError(str(error), error.code, reason=error.reason, violations=fields) from None
