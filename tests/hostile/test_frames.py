"""Random bytes, HTTP/2 frames that break the rules, calls that break the rules of gRPC, and floods."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.processes import (
    CONTRACT,
    MEBIBYTE,
    MOST_IN_FLIGHT_MIB,
    RESPONSE_SECONDS,
    SERVICE,
    ServerProcess,
    is_prompt,
    stays_healthy,
)
from tests.support.repository import scaled

REQUEST = pb.TranslateRequest(texts=["Tom"]).SerializeToString()
USUAL = http2.call_headers(SERVICE + "Translate")
GOOD = http2.opening() + http2.call(USUAL, http2.message(REQUEST))
CODES = {code.value[0]: code for code in grpc.StatusCode}
BROKEN_CALLS = {
    "another content type": http2.call(http2.call_headers(SERVICE + "Translate", content_type="text/html"), b""),
    "GET": http2.call(http2.call_headers(SERVICE + "Translate", **{":method": "GET"}), http2.message(REQUEST)),
    "no path": http2.call(http2.call_headers(""), http2.message(REQUEST)),
    "no message": http2.call(USUAL, b""),
    "half a length": http2.call(USUAL, b"\0\0\0"),
    "less than its length": http2.call(USUAL, http2.message(REQUEST, length=len(REQUEST) + 50)),
    "more than its length": http2.call(USUAL, http2.message(REQUEST, length=2)),
    "a length of four gigabytes": http2.call(USUAL, http2.message(REQUEST, length=2**32 - 1)),
    "two messages": http2.call(USUAL, http2.message(REQUEST) * 2),
    "compressed without an encoding": http2.call(USUAL, http2.message(REQUEST, compressed=1)),
    "a wrong compression": http2.call(
        http2.call_headers(SERVICE + "Translate", grpc_encoding="gzip"), http2.message(REQUEST, compressed=1)
    ),
    "an unknown compression": http2.call(
        http2.call_headers(SERVICE + "Translate", grpc_encoding="zopfli"), http2.message(REQUEST, compressed=1)
    ),
    "an invalid flag": http2.call(USUAL, http2.message(REQUEST, compressed=77)),
    "an invalid deadline": http2.call(
        http2.call_headers(SERVICE + "Translate", grpc_timeout="soon"), http2.message(REQUEST)
    ),
}

HALF = {"no message", "half a length", "less than its length", "another content type"}
"""Incomplete calls, for whose rest gRPC waits until their connection is closed."""


def test_a_handwritten_call_is_answered(server: ServerProcess):
    heard, ended = http2.converse(server.port, GOOD, 10 * RESPONSE_SECONDS)
    assert ended
    assert http2.status(heard) == 0
    assert pb.TranslateResponse(model="en-de").SerializeToString() in heard


@pytest.mark.parametrize("name", BROKEN_CALLS)
def test_an_invalid_call_ends_at_once_with_a_documented_code(server: ServerProcess, name: str):
    sent = http2.opening() + BROKEN_CALLS[name]
    heard, ended = http2.converse(server.port, sent, RESPONSE_SECONDS if name in HALF else 10 * RESPONSE_SECONDS)
    assert ended or name in HALF, "neither a status nor a closed connection"
    assert name in HALF or is_prompt(lambda: http2.converse(server.port, sent, 10 * RESPONSE_SECONDS))
    code = http2.status(heard)
    allowed = CONTRACT | {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
    }  # gRPC itself ends invalid transports with these
    assert code is None or CODES[code] in allowed, CODES[code]
    assert server.is_healthy()


def throw(server: ServerProcess, raw: bytes) -> None:
    """Send bytes and close the connection; the server may close or refuse it."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(raw)
    except (BrokenPipeError, ConnectionResetError, ConnectionRefusedError):
        return


def noise(draw: random.Random) -> bytes:
    return draw.randbytes(draw.randrange(2000))


def noise_after_the_opening(draw: random.Random) -> bytes:
    return http2.opening() + noise(draw)


def random_frames(draw: random.Random) -> bytes:
    frames = (
        http2.frame(
            draw.randrange(12),
            draw.randrange(256),
            draw.choice([0, 1, 3, 2**31 - 1]),
            draw.randbytes(draw.randrange(60)),
        )
        for _ in range(draw.randrange(20))
    )
    return http2.opening() + b"".join(frames)


def damaged_call(draw: random.Random) -> bytes:
    raw = bytearray(GOOD)
    for _ in range(draw.randint(1, 5)):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw[: draw.randint(1, len(raw))])


@pytest.mark.parametrize("kind", [noise, noise_after_the_opening, random_frames, damaged_call])
def test_random_bytes_on_the_port_do_not_affect_other_clients(
    server: ServerProcess, kind: Callable[[random.Random], bytes]
):
    draw = random.Random(kind.__name__)
    with stays_healthy(server):
        for _ in range(scaled(150, 25_000)):
            throw(server, kind(draw))


HEADERS = http2.fields(USUAL)
OPEN = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, HEADERS)
RESET = 500  # calls that are started and reset at once

FLOODS = {
    "rapid reset": lambda: b"".join(
        http2.frame(http2.HEADERS, http2.END_HEADERS, stream, HEADERS)
        + http2.frame(http2.RST_STREAM, 0, stream, bytes(4))
        for stream in range(1, 2 * RESET, 2)
    ),
    "pings": lambda: http2.frame(http2.PING, 0, 0, bytes(8)) * 50_000,
    "settings": lambda: http2.frame(http2.SETTINGS, 0, 0, b"\0\4\0\1\0\0") * 50_000,
    "a continuation without end": lambda: (
        http2.frame(http2.HEADERS, 0, 1, HEADERS)
        + http2.frame(http2.CONTINUATION, 0, 1, http2.fields([("x", "y" * 1000)])) * 3000
    ),
    "one indexed header many times": lambda: http2.frame(
        http2.HEADERS, http2.END_HEADERS, 1, b"\x40\x01x\x7f\x81\x1e" + b"y" * 4000 + b"\xbe" * 12_000
    ),
    "empty data": lambda: OPEN + http2.frame(http2.DATA, 0, 1) * 100_000,
    "a window above the limit": lambda: http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "data of an unknown stream": lambda: http2.frame(http2.DATA, 0, 7, bytes(16_000)) * 500,
    "a frame larger than agreed": lambda: b"\xff\xff\xff\0\0\0\0\0\1" + bytes(2 * MEBIBYTE),
    "a message that never ends": lambda: OPEN + http2.frame(http2.DATA, 0, 1, b"\0\0\x3f\xff\xff" + bytes(10_000)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_affects_no_other_client_and_takes_no_memory(server: ServerProcess, name: str):
    flood = http2.opening() + FLOODS[name]()
    throw(server, flood)

    def thrice() -> None:
        for _ in range(3):
            throw(server, flood)
        assert server.is_healthy()

    # 1,500 calls that are started and reset take 0.4 s of the event loop.
    with stays_healthy(server, within=2 * RESPONSE_SECONDS):
        peaks, growths = server.rounds(scaled(12, 30), thrice)
    assert max(peaks) <= MOST_IN_FLIGHT_MIB, peaks
    assert min(growths[len(growths) // 2 :]) < 1.0, growths


@pytest.mark.parametrize("name", sorted(HALF))
def test_an_incomplete_call_is_freed_with_its_connection(server: ServerProcess, name: str):
    half = http2.opening() + BROKEN_CALLS[name]

    def some() -> None:
        for _ in range(scaled(100, 2500)):
            throw(server, half)

    with stays_healthy(server):
        peaks, growths = server.rounds(6, some)
    assert max(peaks) <= MOST_IN_FLIGHT_MIB, peaks
    assert min(growths) < 1.0, growths


def test_idle_connections_keep_no_client_out(server: ServerProcess):
    with stays_healthy(server):
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(scaled(300, 1000))]
        for place, connection in enumerate(idle):
            connection.sendall([b"", http2.PREFACE[:10], http2.opening(), http2.opening() + OPEN][place % 4])
        assert server.is_healthy()
        for connection in idle:
            connection.close()
