"""Hundreds of invalid requests leak no memory, and put no text into a log and no internals into a reply."""

from __future__ import annotations

import re

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.processes import CONTRACT, MEBIBYTE, SERVICE, ServerProcess, log_entries
from tests.support.repository import scaled

CANARY = "kanarienvogel"
TEXT = f"The {CANARY} sings."
COUNT = scaled(200, 10_000)
INNER = re.compile(rb"Traceback|\.py\b|Error\b|Exception|0x[0-9a-f]{8,}|site-packages|/home/|<class")
Attack = tuple[str, bytes, list[tuple[str, str]]]


def translate(**values: object) -> bytes:
    request = pb.TranslateRequest(**{"texts": [TEXT], **values})  # type: ignore[arg-type]
    return request.SerializeToString()


def with_options(**values: object) -> bytes:
    return translate(options=pb.DecodingOptions(**values))  # type: ignore[arg-type]


def score(*pairs: tuple[str, str]) -> bytes:
    return pb.ScoreRequest(pairs=[pb.ScorePair(source=one, target=other) for one, other in pairs]).SerializeToString()


ATTACKS: dict[str, Attack] = {
    "no texts": ("Translate", b"", []),
    "too many texts": ("Translate", translate(texts=[TEXT] * 257), []),
    "empty texts": ("Translate", translate(texts=["", " \u200b "]), []),
    "texts too long": ("Translate", translate(texts=[TEXT * 100]), []),
    "a stream of texts too long": ("TranslateStream", translate(texts=[TEXT * 100]), []),
    "no UTF-8": ("Translate", b"\x0a\x20\xff" + CANARY.encode(), []),
    "no message": ("TranslateStream", CANARY.encode() * 9, []),
    "half a message": ("Score", score((TEXT, TEXT))[:-3], []),
    "too many prefixes": ("Translate", translate(target_prefixes=[TEXT] * 2), []),
    "a prefix too long": ("Translate", translate(target_prefixes=[TEXT * 200]), []),
    "no beam": ("Translate", with_options(beam_size=0), []),
    "a penalty of NaN": ("TranslateStream", with_options(length_penalty=float("nan")), []),
    "an unknown policy": ("Translate", with_options(long_text=9), []),
    "sampling from a shortlist": ("Translate", with_options(shortlist=True, sampling=pb.SamplingOptions()), []),
    "no such model": ("Translate", translate(model=CANARY), []),
    "no such language": ("TranslateStream", translate(source_language_code=f"x-{CANARY[:8]}"), []),
    "no language": ("Translate", translate(target_language_code=TEXT), []),
    "nothing to score": ("Score", score((TEXT, ""), ("", TEXT)), []),
    "too much to score": ("Score", score((TEXT, TEXT * 200)), []),
    "no such method": (CANARY, translate(), []),
    "an invalid request id": ("Translate", b"", [("x-request-id", TEXT)]),
    "large headers": ("Translate", translate(), [("x-canary", CANARY * 2000)]),
}
SLOW = {"large headers"}  # gRPC takes 0.2 s for each of them


@pytest.mark.parametrize("name", ATTACKS)
def test_invalid_requests_leak_no_memory_and_no_internals(server: ServerProcess, name: str):
    method, raw, metadata = ATTACKS[name]
    count = COUNT // 20 if name in SLOW else COUNT
    for _ in range(count):
        server.send(method, raw, metadata=metadata)
    before = server.resident()
    answers = [server.send(method, raw, metadata=metadata) for _ in range(count)]
    growth = server.resident() - before
    assert {answer.code for answer in answers} <= CONTRACT
    assert growth <= COUNT / 100 * MEBIBYTE, f"{growth / MEBIBYTE:.1f} MiB after {COUNT} requests"
    received = [answer.received for answer in answers]
    assert [each for each in received if INNER.search(each)] == []
    own = name in (
        "no such model",
        "no such language",
        "no language",
        "no such method",
    )  # these replies repeat a name of the request, but no text
    assert own or [each for each in received if CANARY.encode() in each] == []


def test_afterwards_the_server_is_healthy_and_its_log_holds_no_text(server: ServerProcess):
    assert server.is_healthy()
    server.translate(TEXT, TEXT * 3)
    answer = server.call(f"{SERVICE}Translate", translate(), metadata=[("x-request-id", "the-last-one")])
    assert answer.code == grpc.StatusCode.OK
    log = log_entries(server)
    assert [line for line in log if line.get("request_id") == "the-last-one"], "debug lines are there"
    assert len(log) > COUNT
    assert [line for line in log if CANARY in str(line)] == []
