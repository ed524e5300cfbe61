"""Node's own HTTP clients on the gRPC port: what is not gRPC ends at once, and gRPC goes on beside it."""

from __future__ import annotations

import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.foreign_server import ForeignServer, call, http_request, make_calls, ping, send_requests
from tests.support.repository import FULL
from tests.support.shipped_model import LINES

pytestmark = pytest.mark.foreign("node")

METHOD = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/Translate"
BODY = http2.message(pb.TranslateRequest(texts=[LINES[0]]).SerializeToString())
GOOD = http_request("h2", METHOD, BODY)
CONTENT_TYPES = ["application/grpc", "application/grpc+proto"]
BROKEN = {
    "GET": http_request("h2", METHOD, method="GET"),
    "HEAD": http_request("h2", METHOD, method="HEAD"),
    "OPTIONS": http_request("h2", METHOD, method="OPTIONS"),
    "PUT": http_request("h2", METHOD, BODY, method="PUT"),
    "the path of a page": http_request("h2", "/"),
    "an unknown method": http_request("h2", METHOD + "x", BODY),
    "garbage as gzip": http_request("h2", METHOD, b"\1" + BODY[1:], headers={"grpc-encoding": "gzip"}),
    "an unknown compression": http_request("h2", METHOD, b"\1" + BODY[1:], headers={"grpc-encoding": "br"}),
    "a deadline that is no number": http_request("h2", METHOD, BODY, headers={"grpc-timeout": "soon"}),
    "a deadline that has passed": http_request("h2", METHOD, BODY, headers={"grpc-timeout": "1n"}),
    "a form": http_request("h2", METHOD, b"texts=Tom", headers={"content-type": "application/x-www-form-urlencoded"}),
    "JSON": http_request("h2", METHOD, b'{"texts": ["Tom"]}', headers={"content-type": "application/json"}),
    "HTTP/1.1": http_request("h1", METHOD, BODY),
    "HTTP/1.1, GET": http_request("h1", "/", method="GET"),
}


def test_a_request_that_is_no_call_ends_at_once_and_the_connection_goes_on(server: ForeignServer):
    """Every broken request is followed by a good one on the same HTTP/2 connection."""
    found = send_requests(server.address, [each for request in BROKEN.values() for each in (request, GOOD)])
    for name, broken, good in zip(BROKEN, found[::2], found[1::2], strict=True):
        assert broken["error"] != "no end", name
        assert broken["error"] or broken["headers"].get("grpc-status", "0") != "0", (name, broken)
        assert broken["bytes"] == 0, name
        assert (good["status"], good["trailers"].get("grpc-status"), good["error"]) == (200, "0", None), name


@pytest.mark.parametrize("protocol", ["h2", "h1"])
def test_calls_of_grpc_go_on_beside_other_protocols(server: ForeignServer, protocol: str):
    send_requests(server.address, [http_request(protocol, METHOD, BODY, method="GET")] * 20)
    answers = make_calls(server.address, [call(f"beside-{protocol}-{place}", LINES[place]) for place in range(5)])
    assert server.violations([answer.outcome for answer in answers]) == []
    assert {answer.code for answer in answers} == {"OK"}


def test_the_content_types_of_grpc_are_answered_with_its_own(server: ForeignServer):
    requests = [http_request("h2", METHOD, BODY, headers={"content-type": kind}) for kind in CONTENT_TYPES]
    for found in send_requests(server.address, requests):
        assert found["headers"]["content-type"] == "application/grpc"
        assert (found["status"], found["trailers"]["grpc-status"]) == (200, "0")


def test_an_idle_connection_may_ping_every_ten_seconds(server: ForeignServer):
    if not FULL:
        pytest.skip("foreign: takes a minute; make e2e runs it")
    assert ping(server.address, 10.5, 5) == {"pongs": 5, "closed": None}


def test_an_idle_connection_that_pings_more_often_is_closed(server: ForeignServer):
    found = ping(server.address, 0.1, 20)
    assert found["closed"] == "too_many_pings"
    assert found["pongs"] < 20
