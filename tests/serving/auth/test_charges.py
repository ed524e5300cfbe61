"""What a request costs a quota, and which refused requests are refunded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.serving.auth.api_keys import new_key
from lingon.serving.auth.charges import characters_of, rows_of
from lingon.serving.auth.quota import BURST, REFUNDED, REFUSAL
from lingon.serving.settings import MAX_TEXTS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.eventually import eventually
from tests.support.key_files import bearer, write_key_file
from tests.support.statuses import details, failure

SHOP, OPS = new_key(), new_key()
QUEUE, QUOTA, TRIES = 16, 10, 40
SPACES = 20_000  # characters of a text that make work for the tokeniser and no tokens
SPLIT = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)
LONG = pb.TranslateRequest(texts=["The old man and the sea. " * 12 + " " * SPACES], options=SPLIT)
SAMPLING = pb.SamplingOptions()


@asynccontextmanager
async def full(folder: Path, key: str, **shop: int) -> AsyncIterator[RunningServer]:
    """A server whose queue is full of short texts of a key; shop: the quota of the shop."""
    runner = EchoRunner()
    keys = write_key_file(folder, {"shop": SHOP, "ops": OPS}, shop=shop)
    async with running(runner, api_keys=keys, max_rows=2, max_queue_texts=QUEUE) as server:
        runner.gate.clear()
        first = asyncio.ensure_future(
            server.stub.Translate(pb.TranslateRequest(texts=["Tom"] * 2), metadata=bearer(OPS))
        )
        await eventually(lambda: _metric(server, "running_sentences") == 2)
        rest = server.stub.Translate(pb.TranslateRequest(texts=["Tom"] * QUEUE), metadata=bearer(key))
        await eventually(lambda: _metric(server, "queue_depth") == QUEUE)
        yield server
        runner.gate.set()
        await asyncio.gather(first, rest)


def _metric(server: RunningServer, name: str) -> float:
    return server.metric(f"lingon_{name}", model="en-de", version="1")


async def reasons(server: RunningServer, request: pb.TranslateRequest, tries: int) -> Counter[str]:
    """The reasons with which requests of the shop are refused, one after the other."""
    found: Counter[str] = Counter()
    for _ in range(tries):
        status, _ = await failure(server.stub.Translate(request, metadata=bearer(SHOP)))
        found[details(status)["ErrorInfo"].reason] += 1
    return found


async def test_a_key_whose_requests_are_tokenised_and_refused_runs_into_its_quota(tmp_path: Path):
    async with full(tmp_path, OPS, requests_per_minute=QUOTA) as server:
        start = time.monotonic()
        found = await reasons(server, LONG, TRIES)
        seconds = BURST + time.monotonic() - start
    # One refund may be larger than what is left of the limit, and the quota regains some requests too.
    refunds = 1 + seconds * REFUNDED / (REFUSAL + characters_of(LONG))
    assert found["QUEUE_FULL"] <= QUOTA + refunds + seconds * QUOTA / 60 + 1
    assert found.total() == TRIES
    assert found["QUOTA_EXCEEDED"] or seconds > 10


async def test_a_key_whose_requests_are_refused_before_they_are_tokenised_keeps_its_quota(tmp_path: Path):
    async with full(tmp_path, SHOP, requests_per_minute=QUOTA) as server:
        found = await reasons(server, LONG, TRIES)
    assert found == {"QUEUE_FULL": TRIES}


REQUESTS: list[tuple[Any, int]] = [
    (pb.TranslateRequest(texts=["Tom", "äöü"]), 6),
    (pb.TranslateStreamRequest(texts=["Tom"]), 3),
    (pb.TranslateRequest(texts=["Tom"], options=pb.DecodingOptions(beam_size=4)), 12),
    (pb.TranslateRequest(texts=["Tom"], options=pb.DecodingOptions(beam_size=4, num_hypotheses=2)), 12),
    (pb.TranslateRequest(texts=["Tom"], options=pb.DecodingOptions(sampling=SAMPLING, num_hypotheses=4)), 12),
    (pb.TranslateRequest(texts=["Tom"], options=pb.DecodingOptions(return_alignment=True)), 6),
    (
        pb.TranslateRequest(
            texts=["Tom"], options=pb.DecodingOptions(beam_size=4, num_hypotheses=4, return_alignment=True)
        ),
        24,
    ),
    (pb.TranslateRequest(texts=["Tom"], target_prefixes=["the sea"]), 10),
    (pb.ScoreRequest(pairs=[pb.ScorePair(source="Tom", target="sea!")]), 7),
    (pb.ScoreRequest(pairs=[pb.ScorePair(source="Tom", target="sea!")], return_alignment=True), 7),
]


@pytest.mark.parametrize(("request_", "characters"), REQUESTS)
def test_a_quota_counts_the_characters_once_for_each_row(request_: Any, characters: int):
    assert characters_of(request_) * rows_of(request_) == characters


@pytest.mark.parametrize("field", ["texts", "target_prefixes"])
def test_very_many_texts_are_not_counted_one_by_one(field: str):
    request = pb.TranslateRequest(**{field: ["a"] * (MAX_TEXTS + 1)})
    assert characters_of(request) == request.ByteSize()


async def test_the_quota_and_the_metric_count_rows(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop={"characters_per_minute": 24})
    async with running(api_keys=keys) as server:

        async def translate(beam_size: int) -> Any:
            options = pb.DecodingOptions(beam_size=beam_size)
            request = pb.TranslateRequest(texts=["Tom lives"], options=options)
            return await server.stub.Translate(request, metadata=bearer(SHOP))

        status, _ = await failure(translate(3))
        assert status.message.startswith("the request counts as 27 characters; the key may send 24 in a minute")
        await translate(2)
        assert server.metric("lingon_key_characters_total", key="shop") == 18
        with pytest.raises(grpc.aio.AioRpcError, match="24 characters in a minute; try again in"):
            await translate(2)
        assert server.metric("lingon_key_characters_total", key="shop") == 18
