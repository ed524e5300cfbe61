"""The load generator sends what is due, and answers with what it got."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingon.bench.serve.load.jobs import ClosedLoad, OpenLoad, Target, arrivals, to_json
from lingon.bench.serve.load.latency import OK, Answer
from lingon.bench.worker_process import Worker
from lingon.errors import LingonError
from tests.support import echo_engine

ALL_CORES = frozenset(os.sched_getaffinity(0))


async def ask(worker: Worker, **message: Any) -> list[Answer]:
    found = await asyncio.to_thread(worker.ask, **message)
    return [Answer(*answer) for answer in found.get("answers", [])]


@asynccontextmanager
async def generator(texts: list[str]) -> AsyncIterator[Worker]:
    with Worker("lingon.bench.serve.load.generator", cores=ALL_CORES) as worker:
        await ask(worker, texts=texts)
        yield worker


async def test_latency_counts_from_the_time_at_which_a_request_was_due():
    """The engine stops for half a second: requests that were due in that time wait, and all are sent."""
    runner = echo_engine.EchoRunner(delay=0.002)
    async with echo_engine.running(runner) as server, generator(["Tom", "The old man and the sea"]) as worker:
        target = Target(address=f"127.0.0.1:{server.server.port}", timeout=5)
        load = OpenLoad(target=target, offered=60, seconds=1.5, warm_up=0.5, seed=1)
        task = asyncio.create_task(ask(worker, **to_json(load)))
        await asyncio.sleep(1.0)
        runner.gate.clear()
        await asyncio.sleep(0.5)
        runner.gate.set()
        found = await task
        single = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=5, seconds=60)))
    assert len(found) == sum(arrival.due >= 0.5 for arrival in arrivals(60, 2.0, 2, 1))
    assert {answer.code for answer in found} == {OK}
    waited = [answer for answer in found if answer.latency > 200]
    assert len(waited) >= 10
    assert max(answer.latency for answer in found) < 5000
    assert len(single) == 5


async def test_an_error_is_an_answer_with_its_code():
    async with generator(["Tom"]) as worker:
        target = Target(address="127.0.0.1:1", timeout=1)
        found = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=2, seconds=60)))
    assert [answer.code for answer in found] == ["UNAVAILABLE"] * 2


def test_an_early_exit_of_a_worker_is_one_line():
    with (
        Worker("lingon.bench.serve.load.jobs", cores=ALL_CORES) as worker,
        pytest.raises(LingonError, match="its process ended: exit code 0"),
    ):
        worker.ask(texts=[])
