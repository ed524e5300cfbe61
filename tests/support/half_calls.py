"""Calls whose request is never whole: each has a connection of its own and obeys flow control, as a client has to."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from tests.support.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    fields,
    frame,
    opening,
    status,
)

WINDOW = 65_535  # bytes; the initial window of HTTP/2
MAX_FRAME = 16_384  # bytes


class HalfCall:
    """A connection with one call that has sent its headers; `pump` sends the request as far as the server lets it.

    ended: whether the server ended the call; status: its grpc-status, if that is a literal header
    """

    def __init__(self, port: int, path: str, request: bytes, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
        headers = frame(HEADERS, END_HEADERS, 1, fields(call_headers(path)))
        self.socket.sendall(opening() + headers)
        self.socket.setblocking(False)
        self.rest, self.ended, self.status = request, False, None
        self._heard, self._parsed = b"", 0
        self._stream = self._connection = self._initial = WINDOW

    def pump(self) -> None:
        """Read what has arrived, then send as much of the request as the windows allow."""
        self._read()
        while not self.ended and (size := min(len(self.rest), self._stream, self._connection, MAX_FRAME)) > 0:
            try:
                sent = self.socket.send(frame(DATA, 0, 1, self.rest[:size]))
            except BlockingIOError:
                return
            except OSError:
                self.ended = True
                return
            if sent < size + 9:  # the rest of the frame
                self.socket.setblocking(True)
                self.socket.sendall(frame(DATA, 0, 1, self.rest[:size])[sent:])
                self.socket.setblocking(False)
            self.rest = self.rest[size:]
            self._stream -= size
            self._connection -= size

    def __enter__(self) -> HalfCall:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _read(self) -> None:
        try:
            while more := self.socket.recv(65_536):
                self._heard += more
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        while (end := self._frame_end()) is not None:
            self._take(self._heard[self._parsed : end])
            self._parsed = end

    def _frame_end(self) -> int | None:
        start = self._parsed
        if len(self._heard) < start + 9:
            return None
        end = start + 9 + int.from_bytes(self._heard[start : start + 3], "big")
        return end if len(self._heard) >= end else None

    def _take(self, received: bytes) -> None:
        kind, flags, stream, payload = received[3], received[4], int.from_bytes(received[5:9], "big"), received[9:]
        if kind == WINDOW_UPDATE:
            if stream:
                self._stream += int.from_bytes(payload, "big")
            else:
                self._connection += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            for place in range(0, len(payload), 6):
                if int.from_bytes(payload[place : place + 2], "big") == INITIAL_WINDOW_SIZE:
                    initial = int.from_bytes(payload[place + 2 : place + 6], "big")
                    self._stream += initial - self._initial
                    self._initial = initial
            self.socket.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.send(frame(PING, ACK, 0, payload))
        elif stream == 1 and (kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM)):
            self.ended = True
            self.status = status(self._heard)


def count_open(calls: Sequence[HalfCall]) -> int:
    """The calls that the server has not ended."""
    for call in calls:
        call.pump()
    return sum(not call.ended for call in calls)


def pump_all(calls: Sequence[HalfCall], seconds: float) -> None:
    """Send as much as the server takes, until all is sent or the calls have ended, for so many seconds at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(call.rest and not call.ended for call in calls):
        for call in calls:
            call.pump()
        time.sleep(0.001)
