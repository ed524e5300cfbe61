"""The calls that translate texts of one language: each as large as the server takes, and again while it is full."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from lingon.client.protocol.exchanges import ClientProtocol
from lingon.client.protocol.halves import ask_in_halves
from lingon.client.protocol.steps import TRANSLATE, Exchange
from lingon.client.retry import Retry
from lingon.client.values.messages import MAX_BYTES, cut, write_request
from lingon.errors import ServerError, TextTooLong
from lingon.gateway.backend import Backend, Caller
from lingon.segments.halves import halves
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

IN_FLIGHT = 2  # calls for one request: one is decoded while the next is planned

ONCE = Retry(retries=0)
PATIENT = Retry(retries=0, longest_pause=1.0, wait_when_full=True)

Result = pb.TextResult | ServerError
Piece = tuple[str, Result]
"""A text, or a part of one that was too large for a call, and its result."""


class Calls:
    """Sends the calls of one request of HTTP.

    A single call is refused at once by a full server, unless no client waits for it. Several wait for each other in the
    queue, and each has the time limit of a call.
    """

    def __init__(self, backend: Backend, caller: Caller, like: pb.TranslateRequest) -> None:
        """like: a request without texts."""
        self._backend, self._caller, self._like = backend, caller, like
        self._limit = asyncio.Semaphore(IN_FLIGHT)

    async def pieces(self, texts: Sequence[str], most: int) -> list[list[Piece]]:
        """Return the pieces of each text; most: texts of one call."""
        parts = [part for _, part in cut(texts, most)]
        if len(parts) == 1:
            return await self._part(texts, patient=self._caller.in_background)
        found = await _all(self._part(part, patient=True) for part in parts)
        return [pieces for part in found for pieces in part]

    async def _part(self, texts: Sequence[str], *, patient: bool) -> list[list[Piece]]:
        if len(texts) == 1 and len(texts[0].encode()) > MAX_BYTES and (halved := await self._halved(texts[0])):
            return [halved]
        async with self._limit:
            results = await self._send(texts, patient=patient)
        return [await self._whole(text, result) for text, result in zip(texts, results, strict=True)]

    async def _send(self, texts: Sequence[str], *, patient: bool) -> list[Result]:
        """Return a result for each text; an error for one that is too large for a call by itself."""

        def ask(begin: int, end: int, _: float) -> Exchange[list[Result]]:
            protocol = ClientProtocol(retry=PATIENT if patient or end - begin < len(texts) else ONCE)
            request = write_request(pb.TranslateRequest, texts=texts[begin:end])
            request.MergeFrom(self._like)
            deadline = time.monotonic() + self._caller.seconds(self._backend.timeout)
            reply = yield from protocol.call_until(deadline, TRANSLATE, request)
            return list(reply.results)

        exchange = ask_in_halves(ask, lambda error: error, 0, len(texts), 0.0)
        return await self._backend.drive(exchange, self._caller)

    async def _whole(self, text: str, result: Result) -> list[Piece]:
        """Return the piece of a text, or those of its halves if it was too large."""
        halved = await self._halved(text) if _is_too_large(result) else None
        return halved or [(text, result)]

    async def _halved(self, text: str) -> list[Piece] | None:
        """Return the pieces of a text in two parts; None if it cannot be cut."""
        # In a thread: a text of megabytes takes longer than the event loop may stand still.
        both = await asyncio.to_thread(halves, text, self._like.text, self._like.source_language_code)
        if both is None:
            return None
        return [piece for half in both for pieces in await self._part([half], patient=True) for piece in pieces]


def _is_too_large(result: Result) -> bool:
    """Whether a text was refused for its size, which its parts may not be."""
    if isinstance(result, ServerError):
        return True
    return result.status.code == TextTooLong.code and server_error(result.status).reason == TextTooLong.reason


async def _all(work: Iterable[Coroutine[Any, Any, list[list[Piece]]]]) -> list[list[list[Piece]]]:
    """Return all results; the first error ends the other calls, so that none goes on unseen."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
