"""HTTP/2 written by hand: invalid frames, calls whose request is never whole, and a plain GET request."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from urllib.error import HTTPError
from urllib.request import urlopen

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
RESET = bytes([0, 0, 4, RST_STREAM, 0, 0, 0, 0, 1])  # the start of a frame that ends stream 1 without a status
_STATUS = re.compile(rb"grpc-status(?:\x01(\d)|\x02(\d\d))")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def fields(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Return a header block without compression: every header is a literal."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def call_headers(path: str, **others: str) -> list[tuple[str, str]]:
    """Return the headers of a gRPC call; `others` replace or extend them, with dashes for underscores; empty ones
    go.
    """
    usual = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    usual |= {"content-type": "application/grpc", **{name.replace("_", "-"): value for name, value in others.items()}}
    return [(name, value) for name, value in usual.items() if value]


def opening(window: int | None = None) -> bytes:
    """Return the connection preface. window: the initial flow-control window in bytes, by default that of HTTP/2."""
    ours = b"" if window is None else INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
    return PREFACE + frame(SETTINGS, 0, 0, ours)


def message(body: bytes, compressed: int = 0, length: int | None = None) -> bytes:
    """Return a gRPC message: compression flag, length (or a wrong one), body."""
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4, "big") + body


def call(pairs: Sequence[tuple[str, str]], data: bytes, stream: int = 1) -> bytes:
    """Return a call that is sent whole and half-closed."""
    return frame(HEADERS, END_HEADERS, stream, fields(pairs)) + frame(DATA, END_STREAM, stream, data)


def converse(port: int, sent: bytes, seconds: float) -> tuple[bytes, bool]:
    """Send bytes and read until a status arrives, the server closes the connection, or the time is up.

    Returns the bytes received, and whether the call or the connection ended in time.
    """
    end, heard = time.monotonic() + seconds, b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            connection.sendall(sent)
            while (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                more = connection.recv(65_536)
                heard += more
                if not more or status(heard) is not None or RESET in heard:
                    return heard, True
        except (BrokenPipeError, ConnectionResetError):
            return heard, True
        except TimeoutError:
            pass
    return heard, False


def stand_still(port: int, path: str, body: bytes) -> socket.socket:
    """Return a call with a flow-control window of zero: the server cannot send a single byte of its answer."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(opening(window=0) + call(call_headers(path), message(body)))
    return connection


def status(heard: bytes) -> int | None:
    """Return the grpc-status of the first call of a connection if it is a literal header, else None."""
    found = _STATUS.search(heard)
    return int(found[1] or found[2]) if found else None


def _text(text: str) -> bytes:
    raw = text.encode("latin-1")
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    rest, digits = len(raw) - 127, [127]
    while rest >= 128:
        digits.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*digits, rest]) + raw


WINDOW = 65_535  # bytes, the initial window of HTTP/2
MAX_FRAME = 16_384  # bytes


class HalfCall:
    """A connection with one call that has sent its headers. `pump` sends as much of the request as the server allows.

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
        """Read the arrived bytes, then send as much of the request as the windows allow."""
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
            for position in range(0, len(payload), 6):
                if int.from_bytes(payload[position : position + 2], "big") == INITIAL_WINDOW_SIZE:
                    initial = int.from_bytes(payload[position + 2 : position + 6], "big")
                    self._stream += initial - self._initial
                    self._initial = initial
            self.socket.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.send(frame(PING, ACK, 0, payload))
        elif stream == 1 and (kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM)):
            self.ended = True
            self.status = status(self._heard)


def count_open(calls: Sequence[HalfCall]) -> int:
    """Return the calls that the server has not ended."""
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


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of the HTTP endpoint."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
