"""Too large messages, plain or after decompression, and too large headers are refused without taking memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.processes import MEBIBYTE, MOST_IN_FLIGHT_MIB, CallEnd, ServerProcess

LIMIT = 4 * MEBIBYTE  # bytes: the default of max_message_bytes
MOST_GROWTH = 10.0  # MiB that memory may grow by


def message(size: int) -> bytes:
    """A request of exactly this many bytes: a short text, and an unknown field repeated many times."""
    request = pb.TranslateRequest(texts=["Tom lives in Boston."]).SerializeToString()
    entry = b"\xba\x3e\x01x"  # field 999, one byte long
    padding, rest = divmod(size - len(request), len(entry))
    longer = {0: b"", 1: b"\xba\x3e\x02xx", 2: b"\xba\x3e\x03xxx", 3: b"\xba\x3e\x04xxxx"}[rest]
    return request + entry * (padding - bool(rest)) + longer


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_a_message_up_to_the_limit_is_read(server: ServerProcess, size: int):
    raw = message(size)
    assert len(raw) == size
    answer = server.send("Translate", raw)
    assert answer.code == grpc.StatusCode.OK
    assert pb.TranslateResponse.FromString(answer.reply).results[0].hypotheses[0].text


def one_more(server: ServerProcess) -> CallEnd:
    return server.send("Translate", message(LIMIT + 1))


def five_megabytes(server: ServerProcess) -> CallEnd:
    return server.send("Translate", pb.TranslateRequest(texts=["x" * 5_000_000]).SerializeToString())


def bomb(server: ServerProcess) -> CallEnd:
    """100 KB that decompress to 100 MB, three times what connections may hold."""
    return server.send("Translate", bytes(100 * MEBIBYTE), 60, compression=grpc.Compression.Gzip)


def headers(server: ServerProcess) -> CallEnd:
    request = pb.TranslateRequest(texts=["Tom"]).SerializeToString()
    return server.send("Translate", request, metadata=[(f"x-{place}", "y" * 1000) for place in range(20)])


@pytest.mark.parametrize("attack", [one_more, five_megabytes, bomb, headers])
def test_a_request_that_is_too_large_is_refused_and_takes_no_memory(
    server: ServerProcess, attack: Callable[[ServerProcess], CallEnd]
):
    def thrice() -> None:
        assert {attack(server).code for _ in range(3)} == {grpc.StatusCode.RESOURCE_EXHAUSTED}

    peaks, growths = server.rounds(3, thrice)
    assert min(growths) <= MOST_GROWTH, growths
    assert statistics.median(peaks) <= MOST_IN_FLIGHT_MIB, peaks
    assert server.is_healthy()


def test_the_limit_holds_for_the_decompressed_message(server: ServerProcess):
    for size, code in ((LIMIT, grpc.StatusCode.OK), (LIMIT + 1, grpc.StatusCode.RESOURCE_EXHAUSTED)):
        assert server.send("Translate", message(size), compression=grpc.Compression.Gzip).code == code
    assert server.send("Translate", message(100), compression=grpc.Compression.Deflate).code == grpc.StatusCode.OK
