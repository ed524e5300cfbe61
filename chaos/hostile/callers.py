"""Callers that keep dear requests under way; they read answers as bytes, so that they cost this process little."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from chaos.callers.clients import BACK_OFF, reason_of
from chaos.hostile.attacks import Attack
from chaos.verdict.history import OK

UNDER_WAY = 4  # requests that a hostile caller has under way at a time
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # so that every caller has its own connection
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
PATIENCE = 600.0  # seconds that a caller waits for a single answer


@dataclass(slots=True)
class Reply:
    """How a request ended; reason: that of `google.rpc.ErrorInfo`; body: the serialised answer, empty with an error."""

    code: str
    reason: str = ""
    body: bytes = b""


@dataclass(slots=True)
class Tally:
    """What a caller has sent until now, and how its requests ended, by code and by reason."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


class HostileCaller:
    """One connection of a caller; key: its API key."""

    def __init__(self, address: str, key: str | None = None) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self._methods: dict[str, Any] = {}

    async def close(self) -> None:
        """Close the connection, which cancels its calls."""
        await self.channel.close()

    async def send(self, attack: Attack, deadline: float | None = PATIENCE) -> Reply:
        """Send a request and wait for its end; deadline: in seconds, None for none."""
        if attack.path not in self._methods:
            self._methods[attack.path] = self.channel.unary_unary(attack.path)
        try:
            body = await self._methods[attack.path](attack.body, timeout=deadline, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return Reply(error.code().name, reason_of(error.trailing_metadata()))
        return Reply(OK, body=body)

    @asynccontextmanager
    async def attacking(self, attacks: Sequence[Attack], under_way: int = UNDER_WAY) -> AsyncIterator[Tally]:
        """Keep so many requests under way while the block runs; they are cancelled at its end.

        attacks: are sent in random order, if there are several
        """
        tally, numbers = Tally(), itertools.count()
        tasks = [asyncio.create_task(self._loop(attacks, tally, next(numbers))) for _ in range(under_way)]
        try:
            yield tally
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _loop(self, attacks: Sequence[Attack], tally: Tally, seed: int) -> None:
        draw = random.Random(seed)
        while True:
            tally.sent += 1
            reply = await self.send(draw.choice(attacks), None)
            tally.ended[reply.code] += 1
            tally.reasons[reply.reason] += 1
            if reply.code != OK:
                await asyncio.sleep(BACK_OFF)
