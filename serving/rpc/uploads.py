"""Calls that store data: a stream of messages, of which the first one has a header and all have items."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from lingon.errors import InvalidRequest
from lingon.message_batches import MOST_ITEMS
from lingon.serving.auth.charges import charged
from lingon.serving.rpc.calls import Context


class Upload(NamedTuple):
    """The data of a call; parts: yields its messages. Raises InvalidRequest."""

    header: Any
    parts: AsyncIterator[Any]


@asynccontextmanager
async def upload_of(requests: AsyncIterator[Any], items: str, context: Context) -> AsyncIterator[Upload]:
    """Read the first message of a call, and charge the call as one request. Raises InvalidRequest.

    items: the field of a message with its items; context: of the call
    """
    first = await anext(requests, None)
    if first is None or not first.HasField("header"):
        raise InvalidRequest("header", "the first message must have a header")
    with charged(first):
        yield Upload(first.header, _parts(first, requests, items, context))


async def _parts(first: Any, requests: AsyncIterator[Any], items: str, context: Context) -> AsyncIterator[Any]:
    yield _checked(first, items)
    async for request in requests:
        if request.HasField("header"):
            raise InvalidRequest("header", "only the first message may have a header")
        yield _checked(request, items)
    # A call that its client cancels, or whose connection breaks, mostly ends its requests as one that is complete, and
    # is cancelled after that, if at all (grpcio 1.85). Metadata can be sent in a complete call alone.
    await context.send_initial_metadata(())


def _checked(request: Any, field: str) -> Any:
    count = len(getattr(request, field))
    if count > MOST_ITEMS:
        raise InvalidRequest(field, f"a message may have at most {MOST_ITEMS} {field}, got {count}")
    return request
