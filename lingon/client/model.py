"""A bundle in this process, with the calls of a client: `Model`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lingon.client.calls.blocking import BlockingCalls
from lingon.client.protocol.exchanges import DEFAULT_MAX_TEXTS, ClientProtocol
from lingon.client.protocol.steps import DETECT_LANGUAGES, LIST_MODELS, SCORE, STREAM, TRANSLATE, Send, Sleep
from lingon.client.retry import Retry
from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError, SettingsError
from lingon.extras import find_entry_points, name_missing_extra

NO_TIMEOUT = 9e6  # seconds
METHODS = {
    TRANSLATE: "translate",
    STREAM: "translate_stream",
    SCORE: "score",
    LIST_MODELS: "list_models",
    DETECT_LANGUAGES: "detect_languages",
}
"""The methods of lingon.serving.in_process.LocalTranslator that answer those of the service."""


class Model(BlockingCalls):
    """Translates with a bundle in this process, without a server; threads may share one.

    It has the calls of `Client`, with the same options, results and errors. A call has no deadline unless the option
    `timeout` sets one. Every process, forked or spawned, has to load a model of its own. The extra `serve`, or `gpu`,
    has to be installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        precision: str | None = None,
        engines: int | None = None,
        threads: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Load the model and warm it up, which takes about a second for a small one.

        path: a bundle (models/NAME/VERSION), or a model (models/NAME), of which the highest version that is whole is
            loaded
        device: auto, cpu or cuda; auto takes a usable GPU, else the CPU
        precision: of the graphs, such as fp32; None is the best that the bundle has for the device
        engines: batches that run in parallel; None is 1 on a GPU, and on a CPU one for each core up to four
        threads: cores for each engine; None shares all cores among the engines
        timeout: seconds for each call; None sets no limit

        Raises LingonError if the bundle is damaged, or cannot run here.
        """
        for name, value in (("engines", engines), ("threads", threads)):
            if value is not None and value < 1:
                raise SettingsError(f"{name} must be at least 1, got {value}")
        entry = find_entry_points("lingon.translators").get("local")
        if entry is None:
            raise LingonError("this installation has no translator for bundles (entry point lingon.translators: local)")
        with name_missing_extra("a model in this process", entry.extras):
            self._local = entry.load()(path, device=device, precision=precision, engines=engines, threads=threads)
        retry = Retry(retries=0, longest_pause=1.0, wait_when_full=True)  # a failed engine is not restarted here
        timeout = NO_TIMEOUT if timeout is None else timeout
        self._protocol = ClientProtocol(timeout=timeout, retry=retry, max_texts=DEFAULT_MAX_TEXTS)
        self._closed, self._process = threading.Event(), os.getpid()

    def close(self) -> None:
        """Free the model; calls in progress are cancelled, and further ones raise LingonError."""
        if not self._closed.is_set():
            self._closed.set()
            if os.getpid() == self._process:  # the threads of the model are in the process that loaded it
                self._local.close()

    def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return self._closed.wait(step.seconds)
        if self._closed.is_set():
            raise LingonError("this model is closed; load it again")
        if os.getpid() != self._process:
            raise LingonError("this model was loaded before a fork; load one in this process")
        try:
            reply = getattr(self._local, METHODS[step.method])(step.request, step.timeout)
            return (next(reply, None), reply) if step.method.streams else reply
        except RequestError as error:
            raise _server_error(error) from None

    def _received(self, rest: Any) -> Iterator[Any]:
        try:
            yield from rest
        except RequestError as error:
            raise _server_error(error) from None


def _server_error(error: RequestError) -> ServerError:
    """The error that a client of a server gets."""
    fields = ((error.field, str(error)),) if isinstance(error, InvalidRequest) else ()
    return ServerError(str(error), error.code, reason=error.reason, violations=fields)
