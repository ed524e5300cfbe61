"""Counts the iterations of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def counted_iterations() -> AsyncIterator[list[int]]:
    """A list with a 1 for each iteration that the loop has begun within the context."""
    found: list[int] = []

    async def count() -> None:
        while True:
            found.append(1)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yield found
    counting.cancel()
