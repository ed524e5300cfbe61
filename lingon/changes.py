"""Changes of a stored glossary that others change at the same time, for APIs whose requests name no version."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.rpc import code_pb2

from lingon.errors import RequestError, ServerError

TRIES = 30  # attempts; one fails only if another change was made meanwhile
FIRST_PAUSE = 0.02  # seconds at most before the second attempt; the bound doubles with each attempt
LONGEST_PAUSE = 1.0  # seconds, the highest bound

ResultT = TypeVar("ResultT")


async def change_again(change: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of `change`, which reads a glossary and stores it with the version that it read.

    It is called again if another change came between, after a random pause, so that many changes at a time do not all
    begin again together. Raises what it raises, and the ABORTED of the last attempt.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await change()
        except (ServerError, RequestError) as error:
            if error.code != code_pb2.ABORTED or attempt == TRIES:
                raise
        await asyncio.sleep(random.uniform(0, min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)))
    raise AssertionError("the last attempt returns or raises")
