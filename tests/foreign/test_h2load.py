"""h2load, which knows HTTP/2 and nothing of gRPC: every answer arrives whole, and the server's counters have each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.foreign_server import ForeignServer, h2load
from tests.support.repository import scaled
from tests.support.shipped_model import LINES

pytestmark = pytest.mark.foreign("h2load")

METHOD = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/Translate"
REQUEST = pb.TranslateRequest(texts=[LINES[0]], options=pb.DecodingOptions(beam_size=1)).SerializeToString()


@pytest.fixture
def body(tmp_path: Path) -> Path:
    """A file with a gRPC message."""
    path = tmp_path / "body"
    path.write_bytes(http2.message(REQUEST))
    return path


def answer_of(server: ForeignServer) -> bytes:
    """The message with which the server answers."""
    with grpc.insecure_channel(server.address) as channel:
        reply: bytes = channel.unary_unary(METHOD)(REQUEST, timeout=60)
    return http2.message(reply)


def answered(server: ForeignServer) -> Counter[str]:
    """The calls that the server has counted, by their codes, once it is idle."""
    return server.scrape().by("lingon_requests_total", "code")


@pytest.mark.parametrize(
    ("connections", "streams"), [(1, 100), (16, 8), (200, 1)], ids=["many streams", "both", "many connections"]
)
def test_every_request_is_answered_in_full(server: ForeignServer, body: Path, connections: int, streams: int):
    expected, before, count = (
        answer_of(server),
        answered(server),
        connections * scaled(max(streams // 4, 1), streams * 5),
    )
    load = h2load(server.address, METHOD, body, requests=count, connections=connections, streams=streams)
    assert (load.requests, load.succeeded, load.failed, load.ok) == (count, count, 0, count)
    assert load.data == count * len(expected)
    assert answered(server) - before == Counter(OK=count)
    assert server.violations([]) == []


def test_more_streams_than_may_wait_and_queue_are_all_answered(server: ForeignServer, body: Path):
    """1,024 texts are queued; calls that find the queue full are refused, and others wait to be read meanwhile."""
    expected, before, count = answer_of(server), answered(server), scaled(4000, 20_000)
    load = h2load(server.address, METHOD, body, requests=count, connections=10, streams=400)
    codes = answered(server) - before
    assert (load.requests, load.succeeded, load.failed, load.ok) == (count, count, 0, count)
    assert codes.keys() <= {"OK", "RESOURCE_EXHAUSTED"}
    assert codes.total() == count
    assert load.data == codes["OK"] * len(expected)
    assert server.violations([]) == []
