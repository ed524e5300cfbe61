"""HTTP/2 written by hand, so that tests can send invalid frames: frames, headers, a call, and the bytes received."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
RESET = bytes([0, 0, 4, RST_STREAM, 0, 0, 0, 0, 1])  # the start of a frame that ends stream 1 without a status
_STATUS = re.compile(rb"grpc-status(?:\x01(\d)|\x02(\d\d))")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def fields(pairs: Sequence[tuple[str, str]]) -> bytes:
    """A header block without compression: every header is a literal."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def call_headers(path: str, **others: str) -> list[tuple[str, str]]:
    """The headers of a gRPC call; `others` replace or extend them, with dashes for underscores; empty ones go."""
    usual = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    usual |= {"content-type": "application/grpc", **{name.replace("_", "-"): value for name, value in others.items()}}
    return [(name, value) for name, value in usual.items() if value]


def opening(window: int | None = None) -> bytes:
    """The connection preface; window: the initial flow-control window in bytes, by default that of HTTP/2."""
    ours = b"" if window is None else INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
    return PREFACE + frame(SETTINGS, 0, 0, ours)


def message(body: bytes, compressed: int = 0, length: int | None = None) -> bytes:
    """A gRPC message: compression flag, length (or a wrong one), body."""
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4, "big") + body


def call(pairs: Sequence[tuple[str, str]], data: bytes, stream: int = 1) -> bytes:
    """A call that is sent whole and half-closed."""
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
    """A call with a flow-control window of zero: the server cannot send a single byte of its answer."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(opening(window=0) + call(call_headers(path), message(body)))
    return connection


def status(heard: bytes) -> int | None:
    """The grpc-status of the first call of a connection if it is a literal header, else None."""
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
