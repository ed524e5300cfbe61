"""The connections of the HTTP port. Each reads one request at a time, within bounds of bytes and of time."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import logging
import math
import sys
import termios
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from lingon.client.connection import block_of
from lingon.gateway.body import BODY_SECONDS, MAX_FIELDS, BodyBudget
from lingon.gateway.endpoint import WATCH_CLIENT
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.problem import Problem
from lingon.gateway.web_socket import WebSocket

QUEUE_SECONDS = 0.005  # seconds of work in one iteration of the event loop


class WorkQueue:
    """A queue of functions, called in the order of arrival. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], None]]()

    def enqueue(self, work: Callable[[], None]) -> None:
        """Add a function, to be called in the next iteration of the event loop or later."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        end = time.monotonic() + QUEUE_SECONDS
        for _ in range(len(self._waiting)):  # functions that are added meanwhile run in the next iteration
            self._waiting[0]()
            self._waiting.popleft()
            if time.monotonic() > end:
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)


MOST_REFUSED = 256  # connections above the limits that stay open until their 503 is sent
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class OpenConnections:
    """A count of connections. Belongs to the event loop.

    budget: bounds the bytes that connections hold beyond FREE_BYTES each
    work_queue: work that takes long in the event loop
    """

    def __init__(self, most: int, trusted: Sequence[Network], held_bytes: int, metrics: GatewayMetrics) -> None:
        """most: connections; an address has half of them at most, unless it is of a trusted proxy.

        held_bytes: bound for all connections together
        """
        self._most, self._share, self._trusted = most, max(most // 2, 1), trusted
        self._by_address = Counter[str]()
        self._refused = 0
        self._open = metrics.connections
        self.budget = BodyBudget(held_bytes, "the connections")
        self.work_queue = WorkQueue()

    def refusal(self, address: str) -> str | None:
        """Return why one more connection of an address is refused, or None if it is not."""
        if self._by_address.total() >= self._most:
            return f"the server may have {self._most:,} connections, and has them"
        if self._by_address[block_of(address)] >= self._share and not self._is_trusted(address):
            return f"an address may have {self._share:,} connections, and this one has them"
        return None

    def open(self, address: str, *, refused: bool) -> bool:
        """Count a connection and return whether it may stay open. A refused one does until its reply is sent."""
        self._open.inc()
        if refused:
            self._refused += 1
            return self._refused <= MOST_REFUSED
        self._by_address[block_of(address)] += 1
        return True

    def closed(self, address: str, *, refused: bool) -> None:
        """Forget a connection that was counted."""
        self._open.dec()
        if refused:
            self._refused -= 1
            return
        block = block_of(address)
        self._by_address[block] -= 1
        if not self._by_address[block]:
            del self._by_address[block]

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:  # the path of a Unix socket
            return False
        return any(found in network for network in self._trusted)


HEADER_SECONDS = 10.0  # seconds for the headers of a request to arrive
IDLE_SECONDS = 75.0  # seconds; a connection without a request then closes
UNREAD_SECONDS = 30.0  # seconds; a client that reads nothing of a reply is then disconnected
REFUSED_SECONDS = 2.0  # seconds for a client to send a request to refuse, and to close a refused connection
HEADER_BYTES = 65_536  # bytes of the address and the headers, or between two parts of a body
HEADER_LINES = 128  # headers of a request; even a short one takes some hundred bytes of memory
WAITING_BYTES = 16_384  # bytes that may arrive during the reply to the previous request; reading then pauses
UNSENT_BYTES = 16_384  # bytes of a reply that wait in the process; the reply then pauses
SLICE_BYTES = 4096  # bytes of a body in chunks, parsed in one call
FREE_BYTES = 16_384  # bytes that a connection holds outside the budget
COPIES = 6  # copies of the address and the headers: as they arrived, decoded, split
FIELD_BYTES = 400  # bytes of memory for a field of the address, which may be one byte
END = b"\r\n\r\n"
INTERIM = b"HTTP/1.1 100 "  # status line that asks for the body, before the reply
logger = logging.getLogger(__name__)


class _Refused(Exception):
    """A request that is not served; status: HTTP status of the reply."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _too_long() -> _Refused:
    return _Refused(431, f"the address and the headers may have {HEADER_BYTES:,} bytes at most")


class _Flow(FlowControl):
    """A flow control that does not resume reading while WAITING_BYTES wait."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


class _Reply:
    """The transport of one reply. It sends the head together with the first part of the body.

    A small reply then takes one system call, and its client reads once.
    """

    def __init__(self, transport: Any) -> None:
        self._transport, self._head, self._begun = transport, b"", False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._begun or data.startswith(INTERIM):
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._begun, self._head = True, data

    def flush(self) -> None:
        """Write the head of a reply whose body is not sent."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """A connection that parses a request after the previous one is answered and the client has read the reply.

    The parser of uvicorn makes objects of all requests that arrived. It therefore gets the bytes of one request at a
    time. The bytes are cut where a request ends: at the last byte of its Content-Length, or at an empty line.
    """

    flow: _Flow

    def __init__(
        self, *args: Any, connections: OpenConnections, sockets: Collection[bytes] = (), **kwargs: Any
    ) -> None:
        """sockets: paths at which a client may ask for a WebSocket; at others the request is answered without it."""
        super().__init__(*args, **kwargs)
        self._connections, self._sockets = connections, sockets
        self.ws_protocol_class = partial(WebSocket, upgraded=self)  # type: ignore[assignment]
        self._is_upgrading, self._socket_bytes = False, 0  # bytes that the WebSocket holds
        self._address = ""
        self._refusal: str | None = None  # reason, for a connection above the limits
        self._is_refused = False  # further bytes are dropped
        self._leaving: dict[Callable[[], None], None] = {}  # functions to call when the client disconnects
        self._unparsed = bytearray()
        self._in_body = False
        self._body_left = 0  # bytes of a body with Content-Length
        self._is_queued, self._slice_left = False, 0  # whether parsing is queued; bytes left to parse in this call
        self._framing = 0  # bytes outside a body, since its last byte
        self._hosts = 0  # headers named Host
        self._request_bytes = 0  # bytes of memory for the address and the headers of the open request
        self._held = 0  # bytes in the budget of all connections
        self._seconds = self._ends = math.inf  # time limit of the client for its next bytes, and when it ends
        self._unsent, self._unsent_since = 0, 0.0  # bytes at the last check, and since when the client has read none

    # Callbacks of the event loop

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._address = self.client[0] if self.client else ""
        self._refusal = self._connections.refusal(self._address)
        if not self._connections.open(self._address, refused=self._refusal is not None):
            transport.abort()
        self._await(HEADER_SECONDS if self._refusal is None else REFUSED_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        self._framing = self._request_bytes = self._socket_bytes = 0
        super().connection_lost(exc)
        self._hold()
        self._connections.closed(self._address, refused=self._refusal is not None)
        for leave in tuple(self._leaving):
            leave()
        self._leaving.clear()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._refusal is not None:
            self._refuse(503, self._refusal)
            return
        self._unparsed += data
        self._parse()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._parse()

    def end_if_late(self, now: float) -> None:
        """Close the connection if its client is late to send or read; now: seconds of the event loop."""
        unsent = _waiting_bytes(self.transport)
        if not 0 < self._unsent <= unsent:  # nothing waited before, or the client has read some of it
            self._unsent_since = now
        self._unsent = unsent
        if unsent and now - self._unsent_since >= UNREAD_SECONDS:
            self.transport.abort()  # close() would wait for the client
        elif now >= self._ends:
            self.transport.close()

    # The requests

    @property
    def _is_replying(self) -> bool:
        """Whether a request has sent its headers and has no reply yet."""
        # cycle belongs to the latest request, and is None without one.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _parse(self) -> None:
        """Parse the bytes that arrived, as far as requests may be parsed now."""
        try:
            while self._unparsed and not self.transport.is_closing():
                if not self._in_body and (self._is_replying or self.flow.write_paused):
                    break
                if self._in_chunks and self._slice_left < len(END):
                    self._enqueue_parsing()
                    break
                if not (cut := self._next_cut()):
                    break
                del self._unparsed[: self._parse_bytes(cut)]
                if self._is_upgrading:
                    self._upgrade()
                    return
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        else:
            self._settle()

    @property
    def _in_chunks(self) -> bool:
        """Whether a body in chunks arrives, which may cost the parser a call for every few bytes."""
        return self._in_body and not self._body_left

    def _enqueue_parsing(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._connections.work_queue.enqueue(self._parse_slice)

    def _parse_slice(self) -> None:
        self._is_queued, self._slice_left = False, SLICE_BYTES
        self._parse()
        self._slice_left = 0

    def _next_cut(self) -> int:
        """Return how many bytes to parse. At most one request ends in them, at the last byte. Raises _Refused."""
        if self._in_body and self._body_left:
            cut = min(self._body_left, len(self._unparsed))
            self._body_left -= cut
            return cut
        most = min(len(self._unparsed), self._slice_left) if self._in_body else len(self._unparsed)
        found = self._unparsed.find(END, 0, most)
        cut = most if found < 0 else found + len(END)
        while found < 0 and cut and self._unparsed[cut - 1] in END and most - cut < len(END) - 1:
            cut -= 1  # the empty line may have arrived in part
        self._framing += cut
        if self._in_body:
            self._slice_left -= cut
        elif self._framing > HEADER_BYTES:
            raise _too_long()
        return cut

    def _parse_bytes(self, count: int) -> int:
        """Parse so many bytes and return how many were parsed. Raises _Refused."""
        try:
            self.parser.feed_data(self._unparsed[:count])
            if self._framing > HEADER_BYTES:  # after a body in chunks, or between them
                raise _too_long()
        except httptools.HttpParserUpgrade as upgrade:  # if it is not offered, the request is answered without it
            return int(upgrade.args[0])
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _Refused):
                raise error.__context__ from None
            raise _Refused(
                400, f"this is no request of HTTP/1.1: {str(error) or 'its address cannot be read'}"
            ) from None
        return count

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._hosts = self._body_left = 0
        self.scope[WATCH_CLIENT] = self.watch_client  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:  # trailers of a body in chunks, which have no reader
            return
        name = name.lower()
        self.headers.append((name, value))
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._body_left = int(value)  # the parser has checked it
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        if len(self.headers) > HEADER_LINES:
            raise _Refused(431, f"a request may have {HEADER_LINES} headers at most")

    def on_headers_complete(self) -> None:
        self._check_request()
        if (fields := self.url.count(b"&")) > MAX_FIELDS:
            raise _Refused(400, f"an address may have {MAX_FIELDS:,} fields at most, got {fields:,}")
        self._request_bytes = COPIES * self._framing + FIELD_BYTES * fields
        self._framing, self._in_body = 0, True
        try:
            self._hold()
        except Problem as problem:
            raise _Refused(503, str(problem)) from None
        super().on_headers_complete()
        self._is_upgrading = self.parser.should_upgrade() and self._should_upgrade()
        if not self._is_upgrading:
            self.cycle.transport = _Reply(self.transport)  # type: ignore[assignment]

    def _check_request(self) -> None:
        """Raise _Refused for a request that proxies and servers may parse in different ways."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise _Refused(400, f"HTTP/{version} is not served here; use HTTP/1.1")
        if self._hosts > 1 or (not self._hosts and version == "1.1"):
            raise _Refused(400, f"a request must have one header Host, got {self._hosts}")
        if self.parser.should_upgrade() and (
            self._body_left or any(name == b"transfer-encoding" for name, _ in self.headers)
        ):  # the parser would take the body for the next request
            raise _Refused(400, "a request with a body cannot ask for another protocol; leave out Upgrade")

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._framing, self._in_body = 0, False
        if self._is_upgrading:  # the WebSocket needs the request
            return
        if not self._is_replying:
            self._forget_request()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.cycle.transport.flush()  # type: ignore[attr-defined]
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.cycle.body = bytearray()  # the application did not read these bytes
        if not self._in_body:
            self._forget_request()
        self._parse()

    def _forget_request(self) -> None:
        """Free the memory of an answered request, because the connection may be idle for long."""
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.url, self.headers, self._request_bytes = b"", [], 0

    def _should_upgrade(self) -> bool:
        offered = self.url.partition(b"?")[0].rstrip(b"/") in self._sockets and self.scope["method"] == "GET"
        return offered and self.scope["http_version"] == "1.1" and super()._should_upgrade()

    def _upgrade(self) -> None:
        """Make a WebSocket of this connection, which goes on to count it, and to close it if it is late."""
        self._await(math.inf)
        self.handle_websocket_upgrade()
        rest = bytes(self._unparsed)
        self._unparsed.clear()
        self._forget_request()
        self.hold_for_socket(0)
        if rest:
            self.transport.get_protocol().data_received(rest)  # type: ignore[attr-defined]

    def hold_for_socket(self, size: int) -> bool:
        """See lingon.gateway.web_socket.Upgraded."""
        self._socket_bytes = size
        try:
            self._hold()
        except Problem as problem:
            logger.info("a connection was closed: %s", str(problem))
            return False
        return True

    def enqueue(self, work: Callable[[], None]) -> None:
        """See lingon.gateway.web_socket.Upgraded."""
        self._connections.work_queue.enqueue(work)

    def watch_client(self, leave: Callable[[], None]) -> Callable[[], None]:
        """See lingon.gateway.endpoint.WatchClient."""
        if self.transport.is_closing():
            self.loop.call_soon(leave)
            return lambda: None
        self.flow.resume_reading()  # a long body pauses reading, which hides the disconnect of the client
        self._leaving[leave] = None
        return partial(self._leaving.pop, leave, None)

    # The bounds

    def _settle(self) -> None:
        """Set the bounds for the present state. Close a connection whose bytes exceed the budget."""
        if self._is_refused or self.transport.is_closing():
            return
        flow = self.flow
        full = len(self._unparsed) >= WAITING_BYTES
        if full is not flow.is_full:
            flow.is_full = full
            (flow.pause_reading if full else flow.resume_reading)()
        if self._is_replying or flow.write_paused:
            self._await(math.inf)
        elif self._in_body:
            self._await(BODY_SECONDS)
        else:
            self._await(HEADER_SECONDS if self._framing or self._unparsed else IDLE_SECONDS)
        try:
            self._hold()
        except Problem as problem:
            if not (self._is_replying or flow.write_paused):
                self._refuse(503, str(problem))
                return
            logger.info("a connection was closed: %s", str(problem))
            self.loop.call_soon(self.transport.abort)  # the transport may be in the middle of a write

    def _await(self, seconds: float) -> None:
        """Set the time limit of the client. The same limit again does not restart the time."""
        if seconds != self._seconds:
            self._seconds, self._ends = seconds, self.loop.time() + seconds

    def _hold(self) -> None:
        """Update the budget with the bytes that the connection holds. Raises Problem if they do not fit."""
        size = len(self._unparsed) + self._framing + self._request_bytes + self._socket_bytes
        if self.flow.write_paused:
            size += self.transport.get_write_buffer_size()
        if size <= FREE_BYTES:
            if not self._held:
                return
            size = 0
        if size > self._held:
            self._connections.budget.hold(block_of(self._address), size - self._held)
        elif size < self._held:
            self._connections.budget.release(block_of(self._address), self._held - size)
        self._held = size

    def _refuse(self, status: int, message: str) -> None:
        """Answer with an error and read no more requests.

        Further bytes are dropped for a while, because closing the connection at once would lose the reply.
        """
        logger.info("an HTTP request was refused with %d: %s", status, message)
        self._is_refused = True
        self._unparsed.clear()
        started = self._is_replying and self.cycle.response_started
        if self._is_replying:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if started:
            self.transport.close()
            return
        self.transport.write(
            b"%sconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%s"
            % (STATUS_LINE[status], len(message), message.encode())
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._await(REFUSED_SECONDS)


def _waiting_bytes(transport: Any) -> int:
    """Return how many bytes the client has not read, or 0 if all are in the kernel's buffer, of some megabytes."""
    unsent: int = transport.get_write_buffer_size()
    if not unsent:
        return 0
    with suppress(OSError, ValueError):
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        unsent += int.from_bytes(queued, sys.byteorder)
    return unsent
