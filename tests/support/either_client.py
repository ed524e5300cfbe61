"""A call of a new client of either kind, "sync" or "async". What it iterates over comes as a list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from lingon import AsyncClient, Client

KINDS = ("sync", "async")


async def asked(kind: str, settings: dict[str, Any], name: str, /, *values: Any, **options: Any) -> Any:
    """The answer of the method of a name; settings: of the client."""
    if kind == "sync":
        return await asyncio.to_thread(_asked, settings, name, *values, **options)
    async with AsyncClient(**settings) as client:
        answer = getattr(client, name)(*values, **options)
        return [each async for each in answer] if hasattr(answer, "__aiter__") else await answer


def _asked(settings: dict[str, Any], name: str, /, *values: Any, **options: Any) -> Any:
    with Client(**settings) as client:
        answer = getattr(client, name)(*values, **options)
        return list(answer) if isinstance(answer, Iterator) else answer
