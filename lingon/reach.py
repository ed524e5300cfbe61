"""What translates for a verb: a server, or a bundle in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lingon.calls import DEFAULT_MAX_TEXTS, SCORE, TRANSLATE, Send, Sleep
from lingon.client import DEFAULT_SERVER, Client
from lingon.credentials import Credentials
from lingon.errors import LingonError, RequestError, ServerError, SettingsError
from lingon.extras import found, needed_by
from lingon.retry import Retry


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """What a person said of where to translate.

    server: host:port; without it and without model, that of LINGON_SERVER or the default
    model: with server the name of a model there; without it the path of a bundle
    device, precision: of a bundle in this process
    timeout: seconds for each request
    credentials: how the server is trusted, and what it is shown
    """

    server: str | None = None
    model: str | None = None
    device: str | None = None
    precision: str | None = None
    timeout: float = 60.0
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
def connected(where: Where) -> Iterator[Client]:
    """A client of what is to translate; it waits where the queue is full or the server away, until the timeout.

    A server that never answered is told of soon: nobody has started it.
    """
    retry = Retry(retries=3, longest_pause=1.0, wait_when_full=True, wait_when_away=True)
    if not where.here:
        address, shown = server_address(where.server), (where.credentials or Credentials()).arguments()
        with Client(address, timeout=where.timeout, retries=retry, **shown) as client:
            yield client
        return
    entry = found("lingon.translators").get("local")
    if entry is None:
        raise LingonError("this installation translates with no bundle (entry point local of lingon.translators)")
    with needed_by("translating with --model", entry):
        local = entry.load()(where.model, device=where.device or "auto", precision=where.precision)
    with local, InProcess(local, timeout=where.timeout, retries=retry) as client:
        yield client


class InProcess(Client):
    """A client whose server is a bundle in this process.

    local: has translate(TranslateRequest) -> TranslateResponse and score(ScoreRequest) -> ScoreResponse, for threads
    """

    def __init__(self, local: Any, *, timeout: float, retries: Retry) -> None:
        super().__init__("this process", timeout=timeout, retries=retries)
        self._calls.max_texts = DEFAULT_MAX_TEXTS
        self._answers = {TRANSLATE.path: local.translate, SCORE.path: local.score}

    def _take(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return super()._take(step)
        try:
            return self._answers[step.method.path](step.request)
        except RequestError as error:
            raise ServerError(str(error), error.code, reason=error.reason) from None
