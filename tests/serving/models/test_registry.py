"""Models are loaded, swapped and unloaded under load: no request fails, no reply mixes versions, nothing leaks."""

from __future__ import annotations

import asyncio
import threading
import weakref

from grpc_health.v1 import health_pb2

from lingon.serving.engine.engine import Engine
from lingon.serving.observability.metrics import KEPT_MODELS
from tests.support.echo_engine import SERVING, EchoRunner
from tests.support.http2 import get
from tests.support.reload_harness import (
    TEXT,
    AdministeredServer,
    expected,
    gauges,
    refused,
    running_with_admin_port,
)
from tests.support.timing import eventually

LONG = "The old man and the sea near the station of Boston"


async def test_twenty_swaps_under_load_fail_no_request_and_mix_no_versions():
    async with running_with_admin_port(EchoRunner(delay=0.002)) as admin:
        paths, stop, versions_seen = {1: admin.server.folder / "en-de" / "1", 2: admin.publish(2)}, asyncio.Event(), []

        async def send_requests(number: int) -> None:
            texts = [TEXT, LONG, f"Tom {number}"]
            while not stop.is_set():
                reply = await admin.server.translate(*texts)
                assert [one.hypotheses[0].text for one in reply.results] == [expected(t, reply.version) for t in texts]
                versions_seen.append(reply.version)

        async def listen() -> None:
            while not stop.is_set():
                start, *events = await admin.server.stream(TEXT, LONG)
                joined = ["", ""]
                for event in events:
                    joined[event.delta.text_index] += event.delta.text
                assert joined == [expected(TEXT, start.start.version), expected(LONG, start.start.version)]

        clients = [asyncio.create_task(send_requests(number)) for number in range(6)] + [asyncio.create_task(listen())]
        for swap in range(20):
            before = len(versions_seen)
            reply = await admin.swap(paths[2 - swap % 2])
            assert (reply.model.version, list(reply.unloaded)) == (str(2 - swap % 2), [f"en-de/{1 + swap % 2}"])
            await eventually(lambda before=before: len(versions_seen) > before + 6 or any(c.done() for c in clients))
        stop.set()
        await asyncio.gather(*clients)
        assert set(versions_seen) == {"1", "2"}
        assert [admin.changes(outcome) for outcome in ("loaded", "unloaded", "refused")] == [20, 20, 0]
        assert len(admin.threads()) == 1


async def test_a_running_request_ends_on_its_version_and_new_ones_use_the_new_version():
    async with running_with_admin_port() as admin:
        admin.versions.runners[1].gate.clear()
        in_flight = admin.server.call(TEXT)
        await eventually(lambda: admin.server.metric("lingon_running_sentences", model="en-de", version="1"))
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        await eventually(lambda: _in_state(admin, ("en-de", "1", "LEAVING")))
        assert await admin.version() == "2"
        assert await admin.server.health("model/en-de") == SERVING
        assert not swap.done()
        admin.versions.runners[1].gate.set()
        reply = await in_flight
        assert (reply.version, reply.results[0].hypotheses[0].text) == ("1", TEXT)
        assert list((await swap).unloaded) == ["en-de/1"]
        assert await admin.models() == [("en-de", "2", "SERVING")]


async def test_requests_are_answered_while_a_model_is_loaded():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        await eventually(lambda: _in_state(admin, ("en-de", "2", "LOADING")))
        assert [await admin.version() for _ in range(20)] == ["1"] * 20
        admin.versions.gate.set()
        await swap
        assert await admin.version() == "2"


async def test_a_replaced_model_leaves_no_threads_and_no_memory():
    async with running_with_admin_port() as admin:
        old = weakref.ref(admin.versions.runners.pop(1))
        thread = admin.threads()
        await admin.swap(admin.publish(2))
        await eventually(lambda: old() is None)
        assert not any(each.is_alive() for each in thread)
        await eventually(lambda: len(admin.threads()) == 1)


async def test_swapping_an_older_version_in_is_a_rollback():
    async with running_with_admin_port() as admin:
        await admin.swap(admin.publish(2))
        assert await admin.version() == "2"
        before = admin.server.metric("lingon_sentences_total", model="en-de", version="1", outcome="OK")
        await admin.swap(admin.server.folder / "en-de" / "1")
        assert [await admin.version(), await admin.version(model="en-de")] == ["1", "1"]
        assert (await refused(admin.version(model="en-de/2")))[0] == "NOT_FOUND"
        after = admin.server.metric("lingon_sentences_total", model="en-de", version="1", outcome="OK")
        assert after == before + 2  # counters continue


async def test_a_swap_replaces_all_versions_of_a_name():
    async with running_with_admin_port(bundles=[{"version": 2}]) as admin:
        await admin.load(admin.publish(1))
        assert [await admin.version(), await admin.version(model="en-de/1")] == ["2", "1"]
        reply = await admin.swap(admin.publish(3))
        assert list(reply.unloaded) == ["en-de/1", "en-de/2"]
        status, details = await refused(admin.version(model="en-de/1"))
        assert (status, "served: en-de/3 (en to de)" in details) == ("NOT_FOUND", True)


async def test_the_path_of_a_model_means_its_highest_version():
    async with running_with_admin_port() as admin:
        admin.publish(2)
        admin.publish(10)
        assert (await admin.swap(admin.server.folder / "en-de")).model.version == "10"


async def test_health_knows_the_versions_that_are_served():
    async with running_with_admin_port() as admin:
        await admin.swap(admin.publish(2))
        assert [await admin.server.health(name) for name in ("en-de", "en-de/2")] == [SERVING, SERVING]
        for name in ("en-de/1", "model/en-de/1"):
            assert (await refused(admin.server.health(name)))[0] == "NOT_FOUND"


async def test_health_lists_a_second_model_while_it_is_served():
    async with running_with_admin_port() as admin:
        model = await admin.load(admin.publish(4, name="en-fr", target_language="fr"))
        assert (model.precision, model.provider, model.graph_bytes) == ("fp32", "CPUExecutionProvider", 7)
        assert [await admin.version(target_language_code=code) for code in ("de", "fr")] == ["1", "4"]
        assert await admin.server.health("model/en-fr") == SERVING
        await admin.unload("en-fr", "4")
        assert (await refused(admin.version(target_language_code="fr")))[0] == "NOT_FOUND"
        assert (await refused(admin.server.health("model/en-fr")))[0] == "NOT_FOUND"
        assert await admin.server.health("model/en-de") == SERVING
        await admin.load(admin.server.folder / "en-fr" / "4")
        assert await admin.server.health("model/en-fr") == SERVING


async def test_the_only_model_cannot_be_unloaded():
    async with running_with_admin_port() as admin:
        status, details = await refused(admin.unload("en-de", "1"))
        assert (status, "the only model" in details) == ("FAILED_PRECONDITION", True)
        for name, version in (("en-de", "2"), ("nope", "1"), ("", ""), ("en-de", "01")):
            status, details = await refused(admin.unload(name, version))
            assert (status, "served: en-de/1" in details) == ("NOT_FOUND", True)
        assert await admin.version() == "1"


async def test_one_change_runs_at_a_time_and_continues_without_its_caller():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        first = asyncio.create_task(admin.swap(admin.publish(2)))
        await eventually(lambda: _in_state(admin, ("en-de", "2", "LOADING")))
        others = [admin.swap(admin.publish(4)), admin.load(admin.publish(5)), admin.unload("en-de", "1")]
        assert [(await refused(other))[0] for other in others] == ["ABORTED"] * 3
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await refused(admin.swap(admin.server.folder)))[0] == "ABORTED"
        admin.versions.gate.set()
        await eventually(lambda: _only(admin, ("en-de", "2", "SERVING")))
        assert await admin.version() == "2"
        await eventually(lambda: admin.changes("unloaded") == 1)
        await admin.load(admin.server.folder / "en-de" / "5")


async def test_a_request_that_does_not_end_is_cancelled_after_drain_seconds():
    async with running_with_admin_port(drain_seconds=0.2) as admin:
        admin.versions.runners[1].gate.clear()
        in_flight = asyncio.create_task(refused(admin.server.call(TEXT)))
        await eventually(lambda: admin.server.metric("lingon_running_sentences", model="en-de", version="1"))
        await admin.swap(admin.publish(2))
        assert await in_flight == ("UNAVAILABLE", "the model was unloaded before the request was done; try again")
        assert await admin.version() == "2"
        admin.versions.runners[1].gate.set()


class SlowRestart(Engine):
    """An engine whose restart waits for an event."""

    restart_allowed = threading.Event()

    def restarted(self) -> Engine:
        self.restart_allowed.wait()
        return super().restarted()


async def test_an_engine_that_restarts_while_its_model_drains_is_stopped_too():
    SlowRestart.restart_allowed.clear()
    async with running_with_admin_port(engine=SlowRestart) as admin:
        runner, path = admin.versions.runners[1], admin.publish(2)
        runner.dies_at = runner.steps + 1
        assert (await refused(admin.server.call(TEXT)))[0] == "UNAVAILABLE"
        await eventually(
            lambda: admin.server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death")
        )
        swap = asyncio.create_task(admin.swap(path))
        await eventually(lambda: _in_state(admin, ("en-de", "1", "LEAVING")))
        assert await admin.version() == "2"
        SlowRestart.restart_allowed.set()
        await swap
        await eventually(lambda: _in_state(admin, ("en-de", "2", "SERVING")))
        await eventually(lambda: len(admin.threads()) == 1)
        assert not admin.server.task.done()


async def test_an_engine_that_hangs_while_its_model_drains_ends_the_server():
    async with running_with_admin_port(hang_seconds=0.3) as admin:
        admin.versions.runners[1].gate.clear()
        in_flight = asyncio.create_task(refused(admin.server.call(TEXT)))
        await eventually(lambda: admin.server.metric("lingon_running_sentences", model="en-de", version="1"))
        swap = asyncio.create_task(refused(admin.swap(admin.publish(2))))
        assert (await in_flight)[0] == "UNAVAILABLE"
        assert await asyncio.wait_for(admin.server.task, 30) == 1
        admin.versions.runners[1].gate.set()
        await asyncio.gather(swap, return_exceptions=True)


async def test_a_server_that_stops_does_not_wait_for_a_load():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(refused(admin.swap(admin.publish(2))))
        await eventually(lambda: _in_state(admin, ("en-de", "2", "LOADING")))
        admin.server.server.stop()
        assert (await swap)[0] == "UNAVAILABLE"
        assert await asyncio.wait_for(admin.server.task, 30) == 0
        assert admin.server.server.has_stuck_thread
        admin.versions.gate.set()
        await eventually(lambda: not admin.threads())


async def test_gauges_are_removed_with_their_model_and_counters_later():
    async with running_with_admin_port() as admin:
        sizes = []
        for version in range(2, 2 + 2 * KEPT_MODELS + 2):
            await admin.swap(admin.publish(version))
            _, page = await asyncio.to_thread(get, admin.server.server.metrics_port, "/metrics")
            sizes.append(len(page.splitlines()))
            assert {line.split('version="')[1].split('"')[0] for line in gauges(page)} == {str(version)}
        assert set(sizes[KEPT_MODELS:]) == {sizes[KEPT_MODELS]}
        assert f'lingon_sentences_total{{model="en-de",outcome="OK",version="{version - KEPT_MODELS}"}}' in page
        assert f'lingon_sentences_total{{model="en-de",outcome="OK",version="{version - KEPT_MODELS - 1}"}}' not in page


async def test_a_health_watch_reports_an_unloaded_model():
    async with running_with_admin_port() as admin:
        await admin.load(admin.publish(1, name="en-fr", target_language="fr"))
        watch = admin.server.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(service="model/en-fr"))
        assert (await watch.read()).status == SERVING
        await admin.unload("en-fr", "1")
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def _in_state(admin: AdministeredServer, state: tuple[str, str, str]) -> bool:
    return state in await admin.models()


async def _only(admin: AdministeredServer, state: tuple[str, str, str]) -> bool:
    return await admin.models() == [state]
