"""A connection of the HTTP port after its upgrade to a WebSocket, with the bounds of the other connections.

uvicorn and the library websockets (RFC 6455) do the work. This class adds what an open port needs. It parses a few
bytes at a time, because a read of the system may hold ten thousand frames. It parses nothing while the application has
a message to read, or while the client does not read its answers. What it holds is in the budget of all connections.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from lingon.gateway.endpoint import WATCH_CLIENT, WatchClient

MESSAGE_BYTES = 2**18  # bytes of one message
PING_SECONDS = 20.0  # seconds between two pings
GONE_SECONDS = 30  # seconds without an acknowledgement of the client's system, after which the connection ends
SLICE_BYTES = 2048  # bytes that are parsed in one call: some hundred frames
WAITING_BYTES = 16_384  # bytes that may wait to be parsed; reading then pauses
FRAGMENTS = 1000  # frames of one message; the empty ones among them count no bytes


class Upgraded(Protocol):
    """The connection as it was before: it counts what is open and held, and closes what is late."""

    @property
    def watch_client(self) -> WatchClient:
        """Registers a function to call when the client disconnects."""

    def hold_for_socket(self, size: int) -> bool:
        """Count the bytes that the socket holds, and return whether they fit."""

    def enqueue(self, work: Callable[[], None]) -> None:
        """Call a function in a later iteration of the event loop, in turn with the work of other connections."""

    def end_if_late(self, now: float) -> None:
        """Close the connection if its client reads nothing; now: seconds of the event loop."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""


class WebSocket(WebSocketsSansIOProtocol):
    """The protocol of a connection after its upgrade."""

    def __init__(self, *args: Any, upgraded: Upgraded, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._upgraded = upgraded
        self._unparsed, self._is_queued, self._is_full = bytearray(), False, False
        # uvicorn would pause reading while one message waits, which hides the disconnect of a client. Reading pauses
        # here while WAITING_BYTES wait.
        self.read_paused = True

    def connection_made(self, transport: Any) -> None:
        """Take over a connection. A client whose machine vanished is noticed by the pings that it does not receive.

        The time limit is that of the system for unacknowledged bytes. A limit for the pong would also end a connection
        whose messages wait while the server is busy.
        """
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family != socket.AF_UNIX:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * GONE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        super().connection_lost(exc)
        self._upgraded.connection_lost(exc)

    def shutdown(self) -> None:
        """Begin the shutdown of the server. An open call goes on until it ends, or until its task is cancelled."""
        if not self.handshake_complete:
            super().shutdown()

    def end_if_late(self, now: float) -> None:
        """See Upgraded."""
        self._upgraded.end_if_late(now)

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope[WATCH_CLIENT] = self._upgraded.watch_client  # type: ignore[literal-required]

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._settle_reading()
        self._enqueue_parsing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._enqueue_parsing()

    async def receive(self) -> Any:
        message = await self.queue.get()
        self._enqueue_parsing()
        return message

    def _settle_reading(self) -> None:
        is_full = len(self._unparsed) >= WAITING_BYTES
        if is_full is not self._is_full and not self.transport.is_closing():
            self._is_full = is_full
            (self.transport.pause_reading if is_full else self.transport.resume_reading)()

    @property
    def _may_parse(self) -> bool:
        # After its own close frame this side reads until that of the client, and the application reads nothing.
        is_read = self.queue.empty() or self.close_sent
        return bool(self._unparsed) and is_read and self.writable.is_set() and not self.transport.is_closing()

    def _enqueue_parsing(self) -> None:
        if self._may_parse and not self._is_queued:
            self._is_queued = True
            self._upgraded.enqueue(self._parse)

    def _parse(self) -> None:
        self._is_queued = False
        if not self._may_parse:
            return
        part = bytes(self._unparsed[:SLICE_BYTES])
        del self._unparsed[:SLICE_BYTES]
        self._settle_reading()
        super().data_received(part)
        if len(self.frames) > FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message may have {FRAGMENTS:,} frames at most")
        elif not self._upgraded.hold_for_socket(self._held_bytes):
            self._fail(CloseCode.TRY_AGAIN_LATER, "the connections hold too many bytes; try again")
        else:
            self._enqueue_parsing()

    @property
    def _held_bytes(self) -> int:
        return len(self._unparsed) + len(self.conn.reader.buffer) + (self.conn.current_size or 0)

    def _fail(self, code: int, reason: str) -> None:
        if self.conn.close_sent is None and not self.transport.is_closing():
            self.conn.fail(code, reason)
            self.handle_parser_exception()
