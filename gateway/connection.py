"""The connections of the HTTP port: each reads one request at a time, within bounds of bytes and of time."""

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
from collections.abc import Callable, Sequence
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

TURN_SECONDS = 0.005  # for all turns of one iteration of the event loop


class Turns:
    """Calls what waits for its turn, in the order of arrival. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], None]]()

    def wait(self, turn: Callable[[], None]) -> None:
        """Call a function when it is its turn, not before the next iteration of the event loop."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        end = time.monotonic() + TURN_SECONDS
        for _ in range(len(self._waiting)):  # those that wait again come in the next iteration
            self._waiting[0]()
            self._waiting.popleft()
            if time.monotonic() > end:
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take)


MOST_REFUSED = 256  # connections above the limits that are open until they are told so
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class OpenConnections:
    """Counts connections. Belongs to the event loop.

    budget: bounds the bytes that connections hold beyond a small part which each may have
    turns: for what costs connections time
    """

    def __init__(self, most: int, trusted: Sequence[Network], held_bytes: int, metrics: GatewayMetrics) -> None:
        """most: connections; an address that is not of a trusted proxy has half of them at most.

        held_bytes: of all connections together
        """
        self._most, self._share, self._trusted = most, max(most // 2, 1), trusted
        self._by_address = Counter[str]()
        self._refused = 0
        self._open = metrics.connections
        self.budget = BodyBudget(held_bytes, "the connections")
        self.turns = Turns()

    def refusal(self, address: str) -> str | None:
        """Why one more connection of an address is refused; None if it is not."""
        if self._by_address.total() >= self._most:
            return f"the server may have {self._most:,} connections, and has them"
        if self._by_address[block_of(address)] >= self._share and not self._is_trusted(address):
            return f"an address may have {self._share:,} connections, and this one has them"
        return None

    def open(self, address: str, *, refused: bool) -> bool:
        """Count a connection; returns whether it may stay open, for a refused one until it is told so."""
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


HEADER_SECONDS = 10.0  # for the headers of a request to arrive
IDLE_SECONDS = 75.0  # for which a connection without a request stays open
UNREAD_SECONDS = 30.0  # for which a client may read nothing of a reply
REFUSED_SECONDS = 2.0  # for a client to send what is answered with 503, and to close a connection that is refused
HEADER_BYTES = 65_536  # of the address and the headers, or of what is between two parts of a body
HEADER_LINES = 128  # of a request; each takes some hundred bytes of memory, however short it is
WAITING_BYTES = 16_384  # that may arrive during the reply to the request before; then reading pauses
UNSENT_BYTES = 16_384  # of a reply that wait in the process; then the reply pauses
TURN_BYTES = 4096  # of a body in chunks, to parse at a time
FREE_BYTES = 16_384  # that a connection holds without a place in the budget
COPIES = 6  # of the bytes of the address and the headers: as they arrived, decoded, split
FIELD_BYTES = 400  # of memory for a field of the address, which may be one byte
END = b"\r\n\r\n"
INTERIM = b"HTTP/1.1 100 "  # asks for the body, before the reply
logger = logging.getLogger(__name__)


class _Refused(Exception):
    """A request that is not served; status: of the reply."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _too_long() -> _Refused:
    return _Refused(431, f"the address and the headers may have {HEADER_BYTES:,} bytes at most")


class _Flow(FlowControl):
    """Does not read on while as many bytes wait as may wait."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


class _Reply:
    """The transport of one reply: writes its head together with the first part of its body, as ASGI asks for.

    A small reply then takes one system call, and its client wakes up once.
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
    """Parses a request when the one before is answered and the client reads the reply.

    The parser of uvicorn makes objects of all requests that arrived. It is therefore given the bytes of one request at
    a time. A request ends with the last byte of its Content-Length, or else with an empty line: there the bytes are
    cut.
    """

    flow: _Flow

    def __init__(self, *args: Any, connections: OpenConnections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self._address = ""
        self._refusal: str | None = None  # of a connection above the limits
        self._is_refused = False  # what arrives is dropped
        self._leaving: dict[Callable[[], None], None] = {}  # called when the client disconnects
        self._unparsed = bytearray()
        self._in_body = False
        self._body_left = 0  # bytes of a body with Content-Length
        self._waits, self._turn_left = False, 0  # for a turn to parse, and the bytes left to parse in the present one
        self._framing = 0  # bytes that are not of a body, since the last that were
        self._hosts = 0  # headers of this name
        self._request_bytes = 0  # of memory for the address and the headers of the request that is open
        self._held = 0  # bytes in the budget of all connections
        self._seconds = self._ends = math.inf  # how long the client may take for what is awaited, and until when
        self._unsent, self._unsent_since = 0, 0.0  # bytes when the time was last checked, and since when none was read

    # What the event loop calls

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
        self._framing = self._request_bytes = 0
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
        """Close the connection if its client has not sent or read in time; now: seconds of the event loop."""
        unsent = _waiting_bytes(self.transport)
        if not 0 < self._unsent <= unsent:  # nothing waited before, or the client has read some of it
            self._unsent_since = now
        self._unsent = unsent
        if unsent and now - self._unsent_since >= UNREAD_SECONDS:
            self.transport.abort()  # to close it would wait for the client
        elif now >= self._ends:
            self.transport.close()

    # The requests

    @property
    def _is_replying(self) -> bool:
        """Whether a request whose headers have arrived is not answered."""
        # The cycle is that of the latest request, and None without one.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _parse(self) -> None:
        """Parse what has arrived, as far as requests may be parsed now."""
        try:
            while self._unparsed and not self.transport.is_closing():
                if not self._in_body and (self._is_replying or self.flow.write_paused):
                    break
                if self._in_chunks and self._turn_left < len(END):
                    self._wait_for_turn()
                    break
                if not (cut := self._next_cut()):
                    break
                del self._unparsed[: self._feed(cut)]
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        else:
            self._settle()

    @property
    def _in_chunks(self) -> bool:
        """Whether a body in chunks arrives, which may cost the parser a call for every few bytes."""
        return self._in_body and not self._body_left

    def _wait_for_turn(self) -> None:
        if not self._waits:
            self._waits = True
            self._connections.turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        self._waits, self._turn_left = False, TURN_BYTES
        self._parse()
        self._turn_left = 0

    def _next_cut(self) -> int:
        """Return how many bytes to parse, so that at most one request ends, with the last of them. Raises _Refused."""
        if self._in_body and self._body_left:
            cut = min(self._body_left, len(self._unparsed))
            self._body_left -= cut
            return cut
        most = min(len(self._unparsed), self._turn_left) if self._in_body else len(self._unparsed)
        found = self._unparsed.find(END, 0, most)
        cut = most if found < 0 else found + len(END)
        while found < 0 and cut and self._unparsed[cut - 1] in END and most - cut < len(END) - 1:
            cut -= 1  # the empty line may have arrived in part
        self._framing += cut
        if self._in_body:
            self._turn_left -= cut
        elif self._framing > HEADER_BYTES:
            raise _too_long()
        return cut

    def _feed(self, count: int) -> int:
        """Parse so many bytes; returns how many were parsed. Raises _Refused."""
        try:
            self.parser.feed_data(self._unparsed[:count])
            if self._framing > HEADER_BYTES:  # after a body in chunks, or between them
                raise _too_long()
        except httptools.HttpParserUpgrade as upgrade:  # it is not offered, and the request is answered without
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
        self.scope[WATCH_CLIENT] = self._watch_client  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:  # after a body in chunks; nobody reads such fields
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
        self.cycle.transport = _Reply(self.transport)  # type: ignore[assignment]

    def _check_request(self) -> None:
        """Raise _Refused for a request that proxies and servers may understand in different ways."""
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
        if not self._is_replying:
            self._forget_request()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.cycle.transport.flush()  # type: ignore[attr-defined]
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.cycle.body = bytearray()  # what the application did not ask for
        if not self._in_body:
            self._forget_request()
        self._parse()

    def _forget_request(self) -> None:
        """Free the memory of a request that is answered; the connection may be idle for long."""
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.url, self.headers, self._request_bytes = b"", [], 0

    def _watch_client(self, leave: Callable[[], None]) -> Callable[[], None]:
        """See lingon.gateway.endpoint.WatchClient."""
        if self.transport.is_closing():
            self.loop.call_soon(leave)
            return lambda: None
        self.flow.resume_reading()  # a long body pauses it, and the protocol then does not see that the client leaves
        self._leaving[leave] = None
        return partial(self._leaving.pop, leave, None)

    # The bounds

    def _settle(self) -> None:
        """Let the bounds be those of the present state; a connection without a place for its bytes is closed."""
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
        """Give the client so many seconds; those that it was given already count."""
        if seconds != self._seconds:
            self._seconds, self._ends = seconds, self.loop.time() + seconds

    def _hold(self) -> None:
        """Have a place in the budget for what the connection holds; raises Problem."""
        size = len(self._unparsed) + self._framing + self._request_bytes
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

        What arrives is dropped for a while: to close the connection at once would lose the reply on its way.
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
    """Return how many bytes the client has not taken, 0 if all are with the system, which takes some megabytes."""
    unsent: int = transport.get_write_buffer_size()
    if not unsent:
        return 0
    with suppress(OSError, ValueError):
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        unsent += int.from_bytes(queued, sys.byteorder)
    return unsent
