"""The same texts give the same bytes, after a restart and on any number of threads."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support import shipped_model
from tests.support.processes import serving
from tests.support.repository import FULL, scaled

TOGETHER = 100  # texts of a request
TEXTS = scaled(200, 500)


def replies(precision: str, threads: int) -> list[bytes]:
    """The results of a new server for TEXTS, greedy and with beam 4."""
    flags = ("--precision", precision, "--engines", 1, "--threads", threads)
    with serving(shipped_model.MODEL, *flags) as server, grpc.insecure_channel(server.address) as channel:
        translate = pb_grpc.TranslationServiceStub(channel).Translate
        found = [translate(request, timeout=60) for request in requests()]
        assert server.stop() == 0
    return [result.SerializeToString(deterministic=True) for reply in found for result in reply.results]


def requests() -> Iterator[pb.TranslateRequest]:
    for beam_size in (1, 4):
        wanted = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, return_tokens=True)
        for begin in range(0, TEXTS, TOGETHER):
            yield pb.TranslateRequest(texts=shipped_model.LINES[begin : begin + TOGETHER], options=wanted)


@functools.cache
def first(precision: str) -> list[bytes]:
    return replies(precision, 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", shipped_model.PRECISIONS if FULL else ["fp32"])
def test_a_restarted_server_answers_with_the_same_bytes(precision: str, threads: int) -> None:
    assert len(first(precision)) == 2 * TEXTS
    assert replies(precision, threads) == first(precision)
