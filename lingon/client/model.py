"""A bundle in this process, with the calls of a client: `Model`, and `AsyncModel` for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from google.rpc import code_pb2

from lingon.client.calls import AsyncCalls, BlockingCalls, Pending, closed_as_error
from lingon.client.live import AsyncTalk, Talk
from lingon.client.options import SecondServer
from lingon.client.protocol import DEFAULT_MAX_TEXTS, ClientProtocol
from lingon.client.steps import Method, Retry, Send, Sleep
from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError, SettingsError
from lingon.extras import check_system, find_entry_points, name_missing_extra

NO_TIMEOUT = 9e6  # seconds
CLOSED = "the model was closed during this call"

Begun = TypeVar("Begun")
Result = TypeVar("Result")


class _ModelBase:
    """The settings, the translator and the protocol of a model in this process of either kind."""

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        precision: str | None = None,
        engines: int | None = None,
        threads: int | None = None,
        timeout: float | None = None,
        cache: int | None = None,
        second: SecondServer | None = None,
    ) -> None:
        """Store the settings. `Model` also loads the model and warms it up, which takes about a second for a small one.

        path: a bundle (models/NAME/VERSION), or a model (models/NAME), of which the highest version that is whole is
            loaded
        device: auto, cpu or cuda. Auto takes a usable GPU, else the CPU
        precision: of the graphs, such as fp32. None is the best that the bundle has for the device
        engines: batches that run in parallel. None is 1 on a GPU, and on a CPU one for each core up to four
        threads: cores for each engine. None shares all cores among the engines
        timeout: seconds for each call. None sets no limit
        cache: MiB of memory for translations that are kept: a text that was translated before with the same options is
            not decoded again, and has the same result. Streams and sampled texts are not kept. None keeps none
        second: is asked about doubtful sentences; needs the extra `second`. None: no text leaves this process

        `Model` raises LingonError if the bundle is damaged, or cannot run here.
        """
        for name, value in (("engines", engines), ("threads", threads), ("cache", cache)):
            if value is not None and value < 1:
                raise SettingsError(f"{name} must be at least 1, got {value}")
        self._path = path
        self._load_options = {
            "device": device,
            "precision": precision,
            "engines": engines,
            "threads": threads,
            "cache": cache,
            "second": second,
        }
        retry = Retry(retries=0, longest_pause=1.0, wait_when_full=True)  # a failed engine is not restarted here
        timeout = NO_TIMEOUT if timeout is None else timeout
        self._protocol = ClientProtocol(timeout=timeout, retry=retry, max_texts=DEFAULT_MAX_TEXTS)
        self._local: Any = None
        self._process: int | None = None  # that loaded the model, and has its threads
        self._closed, self._beginning = threading.Event(), threading.Lock()
        self._start()

    def _start(self) -> None:
        """Called at the end of the initialisation."""

    def _load(self) -> Any:
        """Return a new translator of the bundle."""
        entry = find_entry_points("lingon.translators").get("local")
        if entry is None:
            raise LingonError("this installation has no translator for bundles (entry point lingon.translators: local)")
        check_system("a model in this process", entry.extras)
        self._process = os.getpid()
        with name_missing_extra("a model in this process", entry.extras):
            return entry.load()(self._path, **self._load_options)

    def _call(self, begin: Callable[[Any], Begun]) -> Begun:
        """begin(translator), if it may be called now. The lock lets no call begin on a translator that closes."""
        self._check_process()
        with self._beginning:
            self._check_open()
            if self._local is None:
                raise LingonError("this model is not loaded; use `async with`, or await load()")
            return begin(self._local)

    def _opened(self) -> Any:
        """Return the translator, if it may be called now. It refuses the calls that begin after `close` itself."""
        return self._call(lambda local: local)

    def _check_process(self) -> None:
        if self._process not in (None, os.getpid()):
            raise LingonError("this model was loaded before a fork; load one in this process")

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise LingonError("this model is closed; load it again")

    def _close(self) -> None:
        if self._process not in (None, os.getpid()):
            return
        with self._beginning:
            closed = self._closed.is_set()
            self._closed.set()
        if not closed:
            self._free()

    def _free(self) -> None:
        self._local.close()


class Model(_ModelBase, BlockingCalls):
    """A bundle that translates in this process, without a server. Threads may share one.

    It has the calls of `Client`, with the same options, results and errors. A call has no deadline unless the option
    `timeout` sets one. Every process, forked or spawned, has to load a model of its own. The extra `serve`, or `gpu`,
    has to be installed.
    """

    def _start(self) -> None:
        self._local = self._load()

    def close(self) -> None:
        """Free the model. Calls in progress are cancelled, and further ones raise LingonError."""
        self._close()

    def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return self._closed.wait(step.seconds)
        if step.method.talks:
            talk = _ErrorsOfTalk(self._call(lambda local: local.talk(step.request)))
            return talk.read(), talk
        if not step.method.streams:
            with _as_server_errors():
                return self._opened().call(_name(step.method), step.request, step.timeout)
        stream = self._call(lambda local: local.translate_stream(step.request, step.timeout))
        with _as_server_errors():
            return next(stream, None), stream

    def _begin(self, step: Send) -> Pending:
        return _PendingReply(self._call(lambda local: local.begin(_name(step.method), step.request, step.timeout)))

    def _received(self, rest: Any) -> Iterator[Any]:
        with _as_server_errors():
            yield from rest


class AsyncModel(_ModelBase, AsyncCalls):
    """`Model` for asyncio: the calls of `AsyncClient` without a server, in a program such as one of FastAPI.

        async with AsyncModel("models/en-de") as model:
            print((await model.translate("Tom lives in Boston.")).text)

    Nothing of it blocks the event loop. Cancelling a task ends its work in the engine. Several event loops may share
    one. `async with` loads the model, or `load`.
    """

    _loading: Future[Any] | None = None

    async def load(self) -> None:
        """Load the model and warm it up, in a thread, nothing if it is loaded. Raises what `Model` raises."""
        self._check_process()
        with self._beginning:
            self._check_open()
            if self._loading is None or self._loading.cancelled():
                self._loading = _in_thread(self._load)
        self._local = await asyncio.wrap_future(self._loading)

    async def close(self) -> None:
        """Free the model. Calls in progress are cancelled, and further ones raise LingonError."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        try:
            await self.load()
        except BaseException:  # such as a cancellation: there is no `async with` that closes what is being loaded
            _in_thread(self._close)
            raise
        return self

    def _free(self) -> None:
        if self._loading is not None:
            with suppress(Exception, CancelledError):  # the error of a load has been raised by `load`
                self._loading.result().close()

    async def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        request, seconds = step.request, step.timeout
        if step.method.talks:
            talk = _AsyncErrorsOfTalk(self._call(lambda local: local.talk_async(request)), self._server_errors)
            return await talk.read(), talk
        with self._server_errors():
            if not step.method.streams:
                return await asyncio.wrap_future(self._call(lambda it: it.begin(_name(step.method), request, seconds)))
            stream = self._call(lambda local: local.translate_stream_async(request, seconds))
            return await anext(stream, None), stream

    @contextmanager
    def _server_errors(self) -> Iterator[None]:
        with _as_server_errors(), closed_as_error(self._closed, CLOSED):
            yield


class _ErrorsOfTalk:
    """The talk of a translator, with the errors that a client of a server gets."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self.cancel = talk, talk.cancel

    def write(self, message: Any) -> None:
        """See Talk."""
        with _as_server_errors():
            self._talk.write(message)

    def read(self) -> Any:
        """See Talk."""
        with _as_server_errors():
            return self._talk.read()


class _AsyncErrorsOfTalk:
    """`_ErrorsOfTalk` for asyncio."""

    def __init__(self, talk: AsyncTalk, server_errors: Callable[[], AbstractContextManager[None]]) -> None:
        """server_errors: see AsyncModel."""
        self._talk, self._server_errors, self.cancel = talk, server_errors, talk.cancel

    async def write(self, message: Any) -> None:
        """See AsyncTalk."""
        with self._server_errors():
            await self._talk.write(message)

    async def read(self) -> Any:
        """See AsyncTalk."""
        with self._server_errors():
            return await self._talk.read()


class _PendingReply:
    """A call that the translator works on."""

    def __init__(self, reply: Future[Any]) -> None:
        self._reply, self.cancel = reply, reply.cancel

    def result(self) -> Any:
        """Wait for the reply. Raises ServerError."""
        try:
            with _as_server_errors():
                return self._reply.result()
        except CancelledError:
            raise ServerError(CLOSED, code_pb2.CANCELLED) from None


def _in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Return the outcome of work on a thread of its own."""
    pool = ThreadPoolExecutor(1, "lingon model")
    outcome = pool.submit(work)
    pool.shutdown(wait=False)
    return outcome


def _name(method: Method[Any]) -> str:
    return method.path.rpartition("/")[2]


@contextmanager
def _as_server_errors() -> Iterator[None]:
    """Raise the error of a request as a client of a server gets it."""
    try:
        yield
    except RequestError as error:
        fields = ((error.field, str(error)),) if isinstance(error, InvalidRequest) else ()
        raise ServerError(str(error), error.code, reason=error.reason, violations=fields) from None
