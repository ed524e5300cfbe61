"""Calls whose message never ends: all of it is sent but the last byte, and the connection stays open.

gRPC's clients send whole messages, so the frames of HTTP/2 (RFC 9113) are written here by hand.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS = 4, 3  # settings of a peer
FRAME = 16_384  # bytes of a frame's payload at most, unless the peer allows more
WINDOW = 65_535  # bytes that may be sent before the peer says more


class UnfinishedCalls:
    """One connection with a number of calls, each of which sends `size` bytes of a message of `size` + 1 bytes.

    A thread answers the pings of the server, so that its keepalive finds the caller alive. `sent` is the number of
    bytes of messages that were sent, `ended` the number of calls that the server ended, `closed` whether it closed the
    connection.
    """

    def __init__(self, port: int, path: str, calls: int, size: int) -> None:
        self._path, self._calls, self._size = path, calls, size
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10.0)
        self._left = {2 * number + 1: size + 5 for number in range(calls)}  # bytes that each open stream has to send
        self._windows: Counter[int] = Counter()
        self._window, self._initial, self._most = WINDOW, WINDOW, calls
        self._opened: set[int] = set()
        self.sent, self.ended, self.closed = 0, 0, False
        self._thread = threading.Thread(target=self._run, name="unfinished calls", daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(PREFACE + _frame(SETTINGS, 0, 0))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10.0)
        self._socket.close()

    @property
    def settled(self) -> bool:
        """Whether every call has sent what it may, or was ended, or the connection is closed."""
        opened_all = len(self._opened) == self._calls or len(self._windows) >= self._most
        return self.closed or (opened_all and not any(self._left[stream] for stream in list(self._opened)))

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._send_what_fits()
                self._read_frame()
        self.closed = True

    def _send_what_fits(self) -> None:
        """Open streams as far as the server allows, and send as much of each as its window allows."""
        for stream in sorted(self._left):
            if stream not in self._opened and len(self._windows) < self._most:
                self._socket.sendall(_frame(HEADERS, END_HEADERS, stream, _headers(self._path)))
                self._windows[stream] = self._initial
                self._opened.add(stream)
            while stream in self._windows and (size := self._may_send(stream)) > 0:
                self._socket.sendall(_frame(DATA, 0, stream, self._piece(stream, size)))
                self._window -= size
                self._windows[stream] -= size
                self._left[stream] -= size
                self.sent += size

    def _may_send(self, stream: int) -> int:
        return min(self._left[stream], self._window, self._windows[stream], FRAME)

    def _piece(self, stream: int, size: int) -> bytes:
        """The next bytes of a stream; the first five are the header of the message, which is one byte longer."""
        if self._left[stream] < self._size + 5:
            return b"a" * size
        header = b"\0" + (self._size + 1).to_bytes(4, "big")
        return (header + b"a" * size)[:size]

    def _read_frame(self) -> None:
        head = self._exactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = self._exactly(int.from_bytes(head[:3], "big"))
        if kind == GOAWAY:
            raise EOFError
        if kind == PING and not flags & ACK:
            self._socket.sendall(_frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == WINDOW_UPDATE:
            self._more(stream, int.from_bytes(payload, "big"))
        elif kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self._end(stream)

    def _settings(self, payload: bytes) -> None:
        for place in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[place : place + 2], "big"), payload[place + 2 : place + 6]
            if name == INITIAL_WINDOW_SIZE:
                grown, self._initial = int.from_bytes(value, "big") - self._initial, int.from_bytes(value, "big")
                for stream in self._windows:
                    self._windows[stream] += grown
            elif name == MAX_CONCURRENT_STREAMS:
                self._most = min(self._calls, int.from_bytes(value, "big"))
        self._socket.sendall(_frame(SETTINGS, ACK, 0))

    def _more(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
        elif stream in self._windows:
            self._windows[stream] += size

    def _end(self, stream: int) -> None:
        if self._windows.pop(stream, None) is not None:
            self._left[stream] = 0
            self.ended += 1  # a server ends a call by its trailers, and then resets the stream

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            self._socket.settimeout(None)
            more = self._socket.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found


def wait(calls: UnfinishedCalls, seconds: float) -> None:
    """Wait until the calls have sent what they may, for so many seconds at most."""
    end = time.monotonic() + seconds
    while not calls.settled and time.monotonic() < end:
        time.sleep(0.05)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _headers(path: str) -> bytes:
    """The header block of a gRPC call, without compression (RFC 7541, literals without indexing)."""
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return b"".join(b"\0" + _literal(name) + _literal(value) for name, value in pairs)


def _literal(text: str) -> bytes:
    raw = text.encode("ascii")
    assert len(raw) < 127, "longer texts need another form of the length"
    return bytes([len(raw)]) + raw
