"""Metrics say what happened also at overload, while the event loop is blocked, and when a model is not loaded."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.serving.event_loop import BEAT_INTERVAL, LagMonitor
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import write_key_file
from tests.support.echo_engine import SERVING, EchoRunner, RunningServer, running
from tests.support.http2 import get
from tests.support.reload_harness import TEXT, AdministeredServer, refused, running_with_admin_port
from tests.support.timing import eventually

FIRST = {"model": "en-de", "version": "1"}
SECOND = {"model": "en-de", "version": "2"}


def durations(server: RunningServer, outcome: str) -> float:
    """The number of durations of Translate."""
    return server.metric("lingon_request_duration_seconds_count", method="Translate", outcome=outcome)


def ready(server: RunningServer) -> float | None:
    return server.server.metrics.registry.get_sample_value("lingon_ready")


async def series_of_the_second_version(admin: AdministeredServer) -> list[str]:
    _, page = await asyncio.to_thread(get, admin.server.server.metrics_port, "/metrics")
    return [line for line in page.splitlines() if 'version="2"' in line]


def break_second_version() -> EchoRunner:
    raise RuntimeError("planted")


async def test_calls_that_are_refused_at_overload_do_not_shorten_the_durations_of_the_others():
    async with running(EchoRunner(delay=0.02), max_queue_texts=2) as server:
        calls = [server.call("Tom lives in Boston.", "The sea") for _ in range(12)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        late = [end for end in ends if isinstance(end, grpc.aio.AioRpcError)]
        assert 0 < len(late) < len(ends)
        assert {end.code() for end in late} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert (durations(server, "served"), durations(server, "refused")) == (len(ends) - len(late), len(late))


@pytest.mark.parametrize("ended", ["by the engine", "by the deadline"])
async def test_a_call_that_fails_after_its_work_began_is_no_refusal(ended: str):
    async with running() as server:
        if ended == "by the engine":
            server.runner.dies_at = 1
        else:
            server.runner.gate.clear()
        status, _ = await refused(server.call("Tom", seconds=1.0 if ended == "by the deadline" else 20))
        assert status == ("UNAVAILABLE" if ended == "by the engine" else "DEADLINE_EXCEEDED")
        await eventually(lambda: durations(server, "served") == 1)
        assert durations(server, "refused") == 0


async def test_the_share_of_refused_calls_is_never_above_1(tmp_path: Path):
    """Also if all of them are calls of other services, which lingon_requests_total does not count."""
    async with running(api_keys=write_key_file(tmp_path, {"shop": "a-key"})) as server:
        for method in ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/no.such/Method"):
            call: Any = server.channel.unary_unary(method)
            assert (await refused(call(b"")))[0] == "UNAUTHENTICATED"
        assert await server.health() == SERVING
        assert server.metric("lingon_other_requests_total", code="UNAUTHENTICATED") == 2
        assert server.metric("lingon_rejected_total", reason="UNAUTHENTICATED") == 2
        assert server.metric("lingon_other_requests_total", code="OK") == 1
        assert server.metric("lingon_requests_total", method="Translate", code="UNAUTHENTICATED") == 0


async def test_the_calls_of_the_admin_port_are_counted_apart():
    async with running_with_admin_port() as admin:
        await admin.models()
        await refused(admin.swap("/nowhere"))
        assert admin.server.metric("lingon_other_requests_total", code="OK") == 1
        assert admin.server.metric("lingon_other_requests_total", code="INVALID_ARGUMENT") == 1


async def test_a_server_whose_event_loop_is_blocked_is_not_ready():
    async with running(hang_seconds=0.5) as server:
        await eventually(lambda: ready(server) == 1)
        time.sleep(0.8)  # noqa: ASYNC251 - blocks the event loop
        assert ready(server) == 0
        await eventually(lambda: ready(server) == 1)


async def test_a_block_of_the_event_loop_counts_for_all_the_measurements_that_it_prevented():
    found: list[float] = []
    task = asyncio.create_task(LagMonitor().measure(found.append))
    await eventually(lambda: found)
    time.sleep(20 * BEAT_INTERVAL)  # noqa: ASYNC251 - blocks the event loop
    await eventually(lambda: max(found) >= 18 * BEAT_INTERVAL)
    task.cancel()
    assert sum(lag >= 9 * BEAT_INTERVAL for lag in found) >= 9
    assert sum(lag >= 2 * BEAT_INTERVAL for lag in found) >= 16


async def test_a_model_that_was_never_served_leaves_no_series():
    async with running_with_admin_port() as admin:
        admin.versions.broken[2] = break_second_version
        await refused(admin.swap(admin.publish(2)))
        assert await series_of_the_second_version(admin) == []


async def test_the_counters_of_a_model_survive_a_later_load_that_fails():
    async with running_with_admin_port() as admin:
        path = admin.publish(2)
        await admin.swap(path)
        await admin.server.translate(TEXT)
        await admin.swap(admin.server.folder / "en-de" / "1")
        admin.versions.broken[2] = break_second_version
        await refused(admin.swap(path))
        assert admin.server.metric("lingon_sentences_total", **SECOND, outcome="OK") == 1
        assert not any("queue_depth" in line for line in await series_of_the_second_version(admin))


async def test_a_model_that_is_being_loaded_has_the_limits_of_its_queue():
    """A share of a limit of 0 would be no number."""
    async with running_with_admin_port(max_queue_texts=77) as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        await eventually(lambda: admin.server.metric("lingon_models_to_load") == 1)
        registry = admin.server.server.metrics.registry
        await eventually(lambda: registry.get_sample_value("lingon_queue_limit", SECOND) == 77)
        assert registry.get_sample_value("lingon_queue_tokens_limit", SECOND) > 0
        admin.versions.gate.set()
        await swap


async def test_the_time_that_score_takes_from_translations_is_a_figure_of_its_own():
    options = pb.DecodingOptions(return_alignment=True)
    async with running() as server:
        pairs = [pb.ScorePair(source=f"Tom {number}", target="Tom") for number in range(5)]
        await server.stub.Score(pb.ScoreRequest(pairs=pairs))
        assert server.metric("lingon_scored_pairs_total", **FIRST) == 5
        runs = server.metric("lingon_scorer_duration_seconds_count", **FIRST)
        assert 1 <= runs <= 5
        assert server.metric("lingon_encoder_duration_seconds_count", **FIRST) == 0
        await server.translate("Tom", "The sea", options=options)
        assert server.metric("lingon_scored_pairs_total", **FIRST) == 7
        assert server.metric("lingon_scorer_duration_seconds_count", **FIRST) > runs
