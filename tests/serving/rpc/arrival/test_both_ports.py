"""Calls of HTTP and of gRPC beside each other: they are different callers, with equal shares above the capacity."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from lingon.errors import RequestError
from lingon.serving.auth.callers import OWN_GATEWAY, find_caller
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.rpc.arrival.shedding import EarlyRefusal, LoadShedder
from lingon.serving.rpc.calls import SERVICE
from lingon.status import CLIENT_ADDRESS, DEFAULT_DEADLINE
from tests.support.scheduler_steps import Clock, calls, make_scheduler, next_step

CAPACITY = 100  # sentences a second
SECONDS = 30
HTTP_LIMIT = 120.0  # seconds of a call for a client of HTTP that does not say how long it waits


def context(port: str, deadline: float | None) -> Any:
    """A call of one address; deadline: seconds that its client waits."""
    metadata = ((CLIENT_ADDRESS, "127.0.0.1"),)
    if deadline is None:
        metadata += ((DEFAULT_DEADLINE, "1"),)
    return SimpleNamespace(
        peer=lambda: OWN_GATEWAY if port == "http" else "ipv4:127.0.0.1:5000",
        invocation_metadata=lambda: metadata,
        auth_context=dict,
        time_remaining=lambda: deadline or HTTP_LIMIT,
    )


def answered(deadlines: dict[str, float | None], seed: int) -> tuple[Counter[str], float]:
    """Return the calls of each port that end in time at twice the capacity, and the longest wait of one, in seconds."""
    clock, draw = Clock(), random.Random(seed)
    scheduler = make_scheduler(1, clock, max_rows=1, max_queue_texts=100_000, max_queue_tokens=1_000_000)
    gate, counts = AdmissionGate(), None
    gate.open()
    refusal = EarlyRefusal(LoadShedder(gate, lambda: [scheduler], clock), counts, None)  # type: ignore[arg-type,list-item]
    found, longest, arrived = Counter[str](), 0.0, clock.now
    submitted: dict[int, tuple[str, float]] = {}
    for _ in range(SECONDS * CAPACITY):
        while arrived <= clock.now:
            arrived += draw.expovariate(2 * CAPACITY)
            port = draw.choice(list(deadlines))
            call = context(port, deadlines[port])
            if refusal.of_load(SERVICE + "Translate", call, caller := find_caller(call)) is not None:
                continue
            job = DecodeJob(
                source_ids=(5, 2),
                options=Options(),
                on_done=print,
                deadline=clock.now + call.time_remaining(),
                call=next(calls),
                caller=caller,
            )
            try:
                scheduler.submit([job])
            except RequestError:
                continue
            submitted[job.number] = port, clock.now
        if not len(scheduler._queue):
            clock.now = arrived
            continue
        admitted, removed = next_step(scheduler, 0)
        clock.now += 1 / CAPACITY if admitted else 0
        for job, *_ in removed:
            scheduler.close(job)
        for job in admitted:
            port, since = submitted[job.number]
            found[port] += 1
            longest = max(longest, clock.now - since)
            scheduler.close(job)
    return found, longest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("http_deadline", [3.0, None])
def test_at_twice_the_capacity_both_ports_get_equal_shares_of_all_of_it(http_deadline: float | None, seed: int):
    found, longest = answered({"http": http_deadline, "grpc": 3.0}, seed)
    assert found.total() >= 0.9 * SECONDS * CAPACITY
    assert found["grpc"] == pytest.approx(found["http"], rel=0.2)
    assert longest < (11 if http_deadline is None else 3.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_queue_holds_what_begins_within_the_bound_on_waiting(seed: int):
    _, longest = answered({"http": None}, seed)
    assert 5 < longest < 11
