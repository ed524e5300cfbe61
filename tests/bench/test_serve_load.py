"""The load on a server: arrivals, jobs, the load generator and the figures of latency."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingon.bench.serve.load import (
    OK,
    Answer,
    ClosedLoad,
    Objective,
    OpenLoad,
    Target,
    arrivals,
    best,
    from_json,
    offered_loads,
    saturated,
    summarise,
    to_json,
)
from lingon.bench.worker_process import Worker
from lingon.errors import LingonError, SettingsError
from tests.support import echo_engine
from tests.support.load_points import answers, point
from tests.support.timing import eventually


def test_arrivals_are_determined_by_the_seed_and_have_the_offered_rate():
    found = arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found == arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found != arrivals(rate=200, seconds=50, texts=7, seed=4)
    assert len(found) == pytest.approx(10_000, rel=0.03)
    assert {arrival.text for arrival in found} == set(range(7))


def test_the_gaps_between_arrivals_are_those_of_a_poisson_process():
    due = [arrival.due for arrival in arrivals(rate=100, seconds=100, texts=1, seed=0)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread / mean == pytest.approx(1, abs=0.05)


def test_a_load_without_a_rate_is_rejected():
    with pytest.raises(SettingsError, match="rate above 0"):
        arrivals(rate=0, seconds=1, texts=1, seed=0)


def test_the_offered_loads_go_from_light_ones_in_fine_steps_to_beyond_every_capacity():
    rungs = offered_loads({"a": 100, "b": 250}, step=1.1)
    assert rungs[:3] == [10, 25, 50]
    assert rungs[-1] > 3 * 250
    assert all(later / earlier == pytest.approx(1.1) for earlier, later in itertools.pairwise(rungs[2:]))


def test_jobs_survive_json():
    target = Target(address="127.0.0.1:1", beam_size=4)
    jobs = [
        OpenLoad(target=target, offered=1.5, seconds=2, warm_up=1, seed=3),
        ClosedLoad(target=target, clients=4, requests=5, seconds=6),
    ]
    assert [from_json(to_json(job)) for job in jobs] == jobs


def test_a_failed_request_counts_as_infinite_latency():
    found = answers([10] * 97) + answers([1] * 3, code="RESOURCE_EXHAUSTED")
    point = summarise(found, offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.p99, point.within) == (9.7, 9.7, math.inf, False)
    assert point.errors == {"RESOURCE_EXHAUSTED": 3}
    assert point.row()["p99_ms"] is None


def test_late_answers_count_as_achieved_but_not_as_goodput():
    point = summarise(answers([10] * 90 + [800] * 10), offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.within) == (10, 9, False)


def test_a_point_is_void_if_the_generator_was_late():
    assert not summarise(answers([10] * 100, lag=19), 10, 10, Objective()).void
    assert summarise(answers([10] * 100, lag=21), 10, 10, Objective()).void
    assert summarise([], 10, 10, Objective()).void


def test_goodput_is_the_highest_valid_load_that_met_the_objective():
    points = [point(10, 20), point(20, 600), point(30, 499), point(40, 501), point(50, 10, lag=30)]
    chosen = best(points)
    assert chosen is not None
    assert chosen.offered == 30
    assert best([point(10, 501)]) is None


def test_a_system_is_saturated_after_two_misses_in_a_row():
    assert not saturated([point(10, 600), point(20, 20), point(30, 600)])
    assert not saturated([point(10, 600), point(20, 600, lag=30)])
    assert saturated([point(10, 20), point(20, 600), point(30, 10, lag=30), point(40, 700)])


ALL_CORES = frozenset(os.sched_getaffinity(0))


async def ask(worker: Worker, **message: Any) -> list[Answer]:
    found = await asyncio.to_thread(worker.ask, **message)
    return [Answer(*answer) for answer in found.get("answers", [])]


@asynccontextmanager
async def generator(texts: list[str]) -> AsyncIterator[Worker]:
    with Worker("lingon.bench.serve.load", cores=ALL_CORES) as worker:
        await ask(worker, texts=texts)
        yield worker


async def test_latency_counts_from_the_time_at_which_a_request_was_due():
    """The engine stands still until all requests have arrived: none waits for the answer to another one."""
    runner = echo_engine.EchoRunner(delay=0.002)
    async with echo_engine.running(runner) as server, generator(["Tom", "The old man and the sea"]) as worker:
        target = Target(address=f"127.0.0.1:{server.server.port}", timeout=60)
        load = OpenLoad(target=target, offered=60, seconds=1.5, warm_up=0.5, seed=1)
        due = [arrival.due for arrival in arrivals(60, 2.0, 2, 1)]
        runner.gate.clear()
        task = asyncio.create_task(ask(worker, **to_json(load)))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == len(due))
        await asyncio.sleep(0.3)
        runner.gate.set()
        found = await task
        single = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=5, seconds=60)))
    assert len(found) == sum(each >= 0.5 for each in due)
    assert {answer.code for answer in found} == {OK}
    assert all(300 < answer.latency < 60_000 for answer in found)
    assert len(single) == 5


async def test_an_error_is_an_answer_with_its_code():
    async with generator(["Tom"]) as worker:
        target = Target(address="127.0.0.1:1", timeout=1)
        found = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=2, seconds=60)))
    assert [answer.code for answer in found] == ["UNAVAILABLE"] * 2


def test_an_early_exit_of_a_worker_is_one_line():
    with (
        Worker("lingon.bench.results_file", cores=ALL_CORES) as worker,
        pytest.raises(LingonError, match="its process ended: exit code 0"),
    ):
        worker.ask(texts=[])
