"""The API keys that the server accepts, so that a key is checked before a body is read, and not by a call each time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from google.rpc import code_pb2

from lingon.errors import ServerError
from lingon.gateway.backend import Backend, Caller

KNOWN_SECONDS = 1.0  # after which a key is checked again; the calls of a request check it too
MOST_KNOWN = 4096
WITHOUT_KEY = Caller(None, "", "")


class KnownCallers:
    """Asks the server whether it accepts a key, and remembers for a second that it does."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend, self._clock = backend, clock
        self._ends = OrderedDict[str | None, float]()  # by what tells keys apart; None for callers without one
        self._needs_key_until = 0.0

    async def check(self, caller: Caller) -> None:
        """Raise ServerError unless the server accepts the key of a caller, or needs none."""
        known, now = None if caller.key is None else caller.owner, self._clock()
        if self._ends.get(known, 0.0) > now:
            return
        await self._backend.models(caller)
        self._ends[known] = now + KNOWN_SECONDS
        self._ends.move_to_end(known)
        if len(self._ends) > MOST_KNOWN:
            self._ends.popitem(last=False)

    async def as_known(self, caller: Caller) -> Caller:
        """Return a caller, without its key if the server needs none; raises ServerError.

        A caller could otherwise send another key with each request, and have the share of many callers.
        """
        if caller.key is None or self._needs_key_until > self._clock():
            return caller
        if await self.accepts(WITHOUT_KEY):
            return replace(caller, key=None)
        self._needs_key_until = self._clock() + KNOWN_SECONDS
        return caller

    async def accepts(self, caller: Caller) -> bool:
        """Whether the server accepts the key of a caller, or needs none; raises ServerError for other errors."""
        try:
            await self.check(caller)
        except ServerError as error:
            if error.code != code_pb2.UNAUTHENTICATED:
                raise
            return False
        return True
