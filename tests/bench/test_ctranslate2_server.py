"""The gRPC server for CTranslate2: its batching, and its service."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.bench.serve.ctranslate2_server import Batcher, BatchPolicy, CTranslate2Service, Search, pick
from lingon.errors import QueueFull
from lingon.text import EOS
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support import echo_engine

GREEDY = Search(1, 0.0)


def test_the_next_batch_has_the_oldest_sentence_and_those_of_similar_length():
    policy = BatchPolicy(max_batch=3, window=2)
    assert pick([5, 30, 6, 31, 4, 32, 5], policy) == [2, 0, 4]  # The seventh is outside the window.
    assert pick([9], policy) == [0]


class Echo:
    """A fake model that returns the source and records the batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.batches, self.released = seconds, list[list[int]](), threading.Event()
        self.released.set()

    def __call__(self, sources: list[Sequence[int]], search: Search) -> list[list[int]]:
        time.sleep(self.seconds)
        self.released.wait(10)
        if any(len(source) > 90 for source in sources):
            raise ValueError("too much")
        self.batches.append([len(source) for source in sources])
        return [[token for token in source if token != EOS] for source in sources]


async def test_queued_sentences_are_translated_together_and_each_gets_its_result():
    echo = Echo(0.02)
    batcher = Batcher(echo, workers=2, policy=BatchPolicy(max_batch=4, max_wait=0.05))
    sources = [[*range(10, 10 + length), EOS] for length in range(1, 9)]
    searches = [GREEDY if length % 2 else Search(4, 0.0) for length in range(1, 9)]
    found = await asyncio.gather(*map(batcher.translate, sources, searches))
    await batcher.close()
    assert found == [source[:-1] for source in sources]
    assert sorted(echo.batches) == [[8, 6, 4, 2], [9, 7, 5, 3]]


async def test_an_error_fails_only_its_batch_and_a_cancelled_sentence_is_not_translated():
    echo = Echo()
    echo.released.clear()
    batcher = Batcher(echo, workers=1, policy=BatchPolicy(max_batch=1, max_wait=0))
    first, left, bad, last = (asyncio.create_task(batcher.translate([7] * length, GREEDY)) for length in (1, 2, 99, 4))
    await asyncio.sleep(0.01)  # All are queued; the first is in the model.
    left.cancel()
    echo.released.set()
    with pytest.raises(ValueError, match="too much"):
        await bad
    assert (await first, await last) == ([7], [7] * 4)
    await batcher.close()
    assert echo.batches == [[1], [4]]


async def test_a_full_queue_rejects():
    batcher = Batcher(Echo(0.05), workers=1, policy=BatchPolicy(max_batch=1, max_wait=0, max_queue=2))
    found = await asyncio.gather(*(batcher.translate([7], GREEDY) for _ in range(4)), return_exceptions=True)
    await batcher.close()
    assert [isinstance(each, QueueFull) for each in found] == [False, False, True, True]


async def test_the_ctranslate2_server_follows_the_proto():
    batcher = Batcher(Echo(), workers=1, policy=BatchPolicy())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (CTranslate2Service(echo_engine.manifest(), echo_engine.tokenizer(), batcher).handler(),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = pb_grpc.TranslationServiceStub(channel)
        reply = await stub.Translate(pb.TranslateRequest(texts=["Tom  lives in Boston.", " "]))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    await server.stop(None)
    await batcher.close()
    assert reply.results[0].hypotheses[0].text == "Tom lives in Boston."
    assert reply.results[0].usage.target_tokens == reply.results[0].usage.source_tokens
    assert reply.results[1].status.code == code_pb2.INVALID_ARGUMENT
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
