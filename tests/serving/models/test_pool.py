"""Listed models are loaded for their first request, and unloaded for others, within a bound of memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.admin.v1 import admin_pb2 as admin_pb
from lingon.bundle.store import Bundle
from lingon.errors import BundleError, Expired, SettingsError
from lingon.serving.models.loading import SESSION_BYTES, LoadOptions
from lingon.serving.models.pool import CALM_SECONDS, to_unload
from lingon.serving.settings import load
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import NOT_SERVING, SERVING, EchoRunner, Loader, RunningServer, details, failure, running
from tests.support.reload_harness import AdministeredServer
from tests.support.timing import eventually

TEXT = "Tom lives in Boston."
MODELS = ("en-de", "en-fr", "en-it", "en-es")
SIZE = -(-SESSION_BYTES // 2**20)  # MiB that each of these models takes


class ManyModels(Loader):
    """A loader that counts the loads of each model and gives every load its own runner.

    broken: by name, makes the error of its load, or None if it succeeds
    late: by name, makes the error of the checks that follow its load
    events: the loads, "load NAME", and the parts of the checks that follow them, "check NAME"
    one_thread: by name, whether the latest load used one thread
    """

    def __init__(self, runner: EchoRunner, *rest: Any) -> None:
        super().__init__(runner, *rest)
        self.loads: list[str] = []
        self.events: list[str] = []
        self.one_thread: dict[str, bool] = {}
        self.low_priority: list[bool] = []
        self.runners: dict[str, EchoRunner] = {}
        self.broken: dict[str, Callable[[], Exception | None]] = {}
        self.late: dict[str, Callable[[], None]] = {}

    def __call__(self, bundle: Bundle, options: LoadOptions) -> Translator:
        name = bundle.manifest.name
        self.loads.append(name)
        self.events.append(f"load {name}")
        self.one_thread[name] = options.one_thread
        self.low_priority.append(options.low_priority)
        assert options.on_demand
        if error := self.broken.get(name, lambda: None)():
            raise error
        self.runner = self.runners[name] = EchoRunner()
        translator = super().__call__(bundle, options)
        translator._complete = lambda _: self._parts(name)
        return translator

    def _parts(self, name: str) -> Iterator[bool]:
        for check in (self.late.get(name, lambda: None), lambda: None):
            self.events.append(f"check {name}")
            check()
            yield True


def declared(*names: str) -> tuple[dict[str, Any], ...]:
    pairs = [name.split("-") for name in names]
    return tuple({"name": "-".join(pair), "source_language": pair[0], "target_language": pair[1]} for pair in pairs)


@asynccontextmanager
async def serving(room: int = 2, names: tuple[str, ...] = MODELS, **settings: Any) -> AsyncIterator[RunningServer]:
    """Run a server of models with memory for `room` of them."""
    bound = {"model_memory": room * (SIZE + 1), **settings}
    async with running(bundles=declared(*names), loader=ManyModels, **bound) as server:
        yield server


def models_of(server: RunningServer) -> ManyModels:
    assert isinstance(server.loader, ManyModels)
    return server.loader


async def call(server: RunningServer, name: str, **more: Any) -> str:
    """Translate with a model, and return the name of the model that answered."""
    reply = await server.translate(TEXT, model=name, **more)
    assert reply.results[0].hypotheses[0].text == TEXT
    return reply.model


def states(server: RunningServer) -> dict[str, float]:
    return {state: server.metric("lingon_models", state=state) for state in ("loaded", "loading", "cold")}


def in_flight(server: RunningServer, name: str) -> int:
    """The requests that keep a model loaded. Its gauge of running sentences may still count an answered request."""
    (model,) = [entry.model for entry in server.server._registry.catalog.entries if entry.name == name]
    return model.in_flight.count


async def loaded(server: RunningServer) -> list[str]:
    listed = (await server.stub.ListModels(pb.ListModelsRequest())).models
    return [model.name for model in listed if model.loaded]


async def held_in_its_checks(server: RunningServer, name: str) -> threading.Event:
    """Load a model, and return the event that ends its late checks, which have begun."""
    begun, checked = threading.Event(), threading.Event()

    def check() -> None:
        begun.set()
        checked.wait(20)

    models_of(server).late[name] = check
    await call(server, name)
    await asyncio.to_thread(begun.wait, 20)
    return checked


@dataclass
class Known:
    """A loaded model, as far as the choice of what is unloaded knows it."""

    memory_bytes: int
    last_use: int


def test_the_least_recently_used_models_are_unloaded_until_another_one_fits() -> None:
    old, middle, new = Known(10, 1), Known(30, 2), Known(10, 3)
    assert to_unload(5, 100, 0, [new, old, middle]) == []
    assert to_unload(60, 100, 0, [new, old, middle]) == [old]
    assert to_unload(61, 100, 0, [new, old, middle]) == [old, middle]
    assert to_unload(100, 100, 0, [new, old, middle]) == [old, middle, new]


def test_nothing_is_unloaded_for_a_model_that_does_not_fit_beside_those_in_use() -> None:
    assert to_unload(61, 100, 40, [Known(10, 1)]) is None
    assert to_unload(60, 100, 40, [Known(10, 1)]) == [Known(10, 1)]


async def test_no_model_is_loaded_before_its_first_request_which_waits_for_the_load() -> None:
    async with serving() as server:
        assert models_of(server).loads == []
        assert states(server) == {"loaded": 0, "loading": 0, "cold": 4}
        assert await loaded(server) == []
        assert await call(server, "en-fr") == "en-fr"
        assert await call(server, "en-fr") == "en-fr"
        assert models_of(server).loads == ["en-fr"]
        assert await loaded(server) == ["en-fr"]
        assert states(server) == {"loaded": 1, "loading": 0, "cold": 3}
        assert server.metric("lingon_model_loads_total", outcome="loaded") == 1
        assert server.metric("lingon_cold_load_seconds_count") == 1


async def test_a_model_has_the_same_description_before_and_while_it_is_loaded() -> None:
    async with serving() as server:
        (cold, *_) = (await server.stub.ListModels(pb.ListModelsRequest())).models
        await call(server, cold.name)
        (warm, *_) = (await server.stub.ListModels(pb.ListModelsRequest())).models
        assert warm.loaded
        warm.loaded = False
        cold.precision, cold.provider = warm.precision, warm.provider  # the fake loader does not choose them
        assert warm == cold


async def test_several_callers_of_a_cold_model_share_one_load() -> None:
    async with serving() as server:
        server.loader.gate.clear()
        calls = [asyncio.create_task(call(server, "en-de")) for _ in range(40)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 40)
        await eventually(lambda: states(server)["loading"] == 1)
        server.loader.gate.set()
        assert await asyncio.gather(*calls) == ["en-de"] * 40
        assert models_of(server).loads == ["en-de"]


async def test_callers_of_loaded_models_are_answered_while_many_wait_for_a_cold_one() -> None:
    async with serving() as server:
        await call(server, "en-de")
        server.loader.gate.clear()
        waiting = [asyncio.create_task(call(server, "en-fr")) for _ in range(40)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 40)
        assert await call(server, "en-de") == "en-de"
        assert models_of(server).low_priority == [False, True]
        server.loader.gate.set()
        await asyncio.gather(*waiting)


async def test_the_least_recently_used_model_is_unloaded_and_loaded_again_when_it_is_called() -> None:
    async with serving(room=2) as server:
        for name in ("en-de", "en-fr", "en-de", "en-it"):
            await call(server, name)
        assert sorted(await loaded(server)) == ["en-de", "en-it"]
        assert await call(server, "en-fr") == "en-fr"
        assert sorted(await loaded(server)) == ["en-fr", "en-it"]
        assert models_of(server).loads == ["en-de", "en-fr", "en-it", "en-fr"]
        assert server.metric("lingon_model_evictions_total") == 2
        assert server.metric("lingon_models_memory_bytes") <= server.metric("lingon_models_memory_limit_bytes")


async def test_an_unloaded_model_ends_its_threads_and_keeps_its_counters() -> None:
    async with serving(room=1) as server:
        await call(server, "en-de")
        (engine,) = server.loader.engines
        await call(server, "en-fr")
        assert not engine.healthy
        counted = {"model": "en-de", "version": "1"}
        assert server.metric("lingon_translated_texts_total", **counted) == 1
        with pytest.raises(KeyError):
            server.metric("lingon_queue_depth", **counted)
        await call(server, "en-de")
        assert server.metric("lingon_translated_texts_total", **counted) == 2
        assert server.metric("lingon_queue_depth", **counted) == 0


async def test_a_pinned_model_is_loaded_at_the_start_and_never_unloaded() -> None:
    async with serving(room=2, pinned_models=("en-it",)) as server:
        assert await loaded(server) == ["en-it"]
        for name in ("en-de", "en-fr", "en-es"):
            await call(server, name)
        assert sorted(await loaded(server)) == ["en-es", "en-it"]
        assert models_of(server).loads.count("en-it") == 1


async def test_a_model_with_a_request_in_flight_is_not_unloaded_and_its_end_makes_room() -> None:
    async with serving(room=1) as server:
        await call(server, "en-de")
        models_of(server).runners["en-de"].gate.clear()
        busy = asyncio.create_task(call(server, "en-de"))
        await eventually(lambda: in_flight(server, "en-de") == 1)
        waiting = asyncio.create_task(call(server, "en-fr"))
        await eventually(lambda: states(server)["loading"] == 1)
        assert await loaded(server) == ["en-de"]
        models_of(server).runners["en-de"].gate.set()
        assert await busy == "en-de"
        assert await waiting == "en-fr"


async def test_a_model_that_waits_for_room_in_vain_is_refused_with_the_bound_and_the_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lingon.serving.models.pool.ROOM_SECONDS", 0.01)
    async with serving(room=1) as server:
        await call(server, "en-de")
        models_of(server).runners["en-de"].gate.clear()
        busy = asyncio.create_task(call(server, "en-de"))
        await eventually(lambda: in_flight(server, "en-de") == 1)
        status, _ = await failure(call(server, "en-fr"))
        assert status.code == code_pb2.RESOURCE_EXHAUSTED
        assert status.message.startswith(f"model en-fr/1 needs {SIZE} MiB; ")
        assert f"of {SIZE + 1} MiB" in status.message
        assert details(status)["ErrorInfo"].reason == "MODEL_MEMORY_FULL"
        models_of(server).runners["en-de"].gate.set()
        await busy


async def test_a_model_that_can_never_fit_is_refused_at_once_with_the_bound_and_the_need() -> None:
    async with serving(model_memory=SIZE - 1) as server:
        status, _ = await failure(call(server, "en-de"))
        assert status.code == code_pb2.FAILED_PRECONDITION
        expected = f"model en-de/1 needs {SIZE} MiB; the server's model_memory is {SIZE - 1} MiB"
        assert (status.message, details(status)["ErrorInfo"].reason) == (expected, "MODEL_TOO_LARGE")
        assert models_of(server).loads == []


async def test_the_deadline_of_a_caller_ends_its_call_and_the_load_goes_on_for_others() -> None:
    async with serving() as server:
        server.loader.gate.clear()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(server, "en-de", seconds=0.3)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        server.loader.gate.set()
        assert await call(server, "en-de") == "en-de"
        assert models_of(server).loads == ["en-de"]


async def test_a_wait_for_a_load_ends_at_its_deadline_with_an_error_that_names_the_model() -> None:
    async with serving() as server:
        server.loader.gate.clear()
        model = server.server._registry.catalog.entries[0].model
        with pytest.raises(Expired, match="the deadline passed while en-de/1 was being loaded"):
            await server.server._pool.load_all([model], time.monotonic())


async def test_a_failed_load_is_the_answer_for_a_while_and_is_then_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server:
        errors: Iterator[Exception | None] = iter([BundleError("/secret/path: canary"), None])
        models_of(server).broken["en-de"] = lambda: next(errors)
        status, trailers = await failure(call(server, "en-de"))
        again, _ = await failure(call(server, "en-de"))
        assert (status.code, again.code) == (code_pb2.UNAVAILABLE, code_pb2.UNAVAILABLE)
        assert details(again)["ErrorInfo"].reason == "MODEL_NOT_LOADABLE"
        assert details(again)["RetryInfo"].retry_delay.seconds <= 10
        assert "en-de/1 cannot be loaded (BundleError" in again.message
        assert "secret" not in again.message
        assert 0 < int(str(trailers["retry-after-ms"])) <= 10_000
        assert models_of(server).loads == ["en-de"]
        await eventually(lambda: server.server._failed == {"en-de/1"})
        assert [await server.health(f"model/{name}") for name in ("en-de", "en-fr")] == [NOT_SERVING, SERVING]
        later = server.server._pool._clock() + 11
        monkeypatch.setattr(server.server._pool, "_clock", lambda: later)
        assert await call(server, "en-de") == "en-de"
        await eventually(lambda: not server.server._failed)
        assert await server.health("model/en-de") == SERVING
        assert server.metric("lingon_model_loads_total", outcome="failed") == 1


async def test_a_model_that_fails_the_checks_after_its_load_is_unloaded_and_not_served() -> None:
    async with serving() as server:
        answered = threading.Event()

        def fail() -> None:
            answered.wait(20)
            raise BundleError("the scorer is broken")

        models_of(server).late["en-de"] = fail
        await call(server, "en-de")
        answered.set()
        await eventually(lambda: states(server)["loaded"] == 0)
        status, _ = await failure(call(server, "en-de"))
        assert details(status)["ErrorInfo"].reason == "MODEL_NOT_LOADABLE"


async def test_a_model_is_not_unloaded_while_its_checks_run() -> None:
    async with serving(room=1) as server:
        checked = threading.Event()

        def check() -> None:
            checked.wait(20)

        models_of(server).late["en-de"] = check
        await call(server, "en-de")
        waiting = asyncio.create_task(call(server, "en-fr"))
        await eventually(lambda: states(server)["loading"] == 1)
        assert await loaded(server) == ["en-de"]
        checked.set()
        assert await waiting == "en-fr"


async def test_a_load_that_waits_comes_between_two_parts_of_the_checks_of_another_model() -> None:
    async with serving() as server:
        checked = await held_in_its_checks(server, "en-de")
        waiting = asyncio.create_task(call(server, "en-fr"))
        await eventually(lambda: states(server)["loading"] == 1)
        checked.set()
        await waiting
        await eventually(lambda: models_of(server).events.count("check en-fr") == 2)
        events = models_of(server).events
        assert events[:4] == ["load en-de", "check en-de", "load en-fr", "check en-de"]


async def test_the_checks_of_a_model_that_is_unloaded_before_them_do_not_take_place() -> None:
    async with serving(room=1) as server:
        checked = await held_in_its_checks(server, "en-de")
        waiting = [asyncio.create_task(call(server, name)) for name in ("en-fr", "en-it")]
        await eventually(lambda: states(server)["loading"] == 2)
        checked.set()
        await asyncio.gather(*waiting)
        await eventually(lambda: models_of(server).events.count("check en-it") == 2)
        # en-it waits for its turn since before en-fr was loaded, so that it comes before the checks of en-fr.
        events = models_of(server).events
        assert events == ["load en-de", "check en-de", "load en-fr", "load en-it", "check en-it", "check en-it"]


async def test_a_load_uses_one_thread_while_a_loaded_model_has_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(room=4) as server:
        now = server.server._pool._clock()
        monkeypatch.setattr(server.server._pool, "_clock", lambda: now)
        await call(server, "en-de")
        await call(server, "en-de")
        await call(server, "en-fr")
        now += CALM_SECONDS
        await call(server, "en-it")
        gate = models_of(server).runners["en-de"].gate
        gate.clear()
        busy = asyncio.create_task(call(server, "en-de"))
        await eventually(lambda: in_flight(server, "en-de") == 1)
        now += CALM_SECONDS
        await call(server, "en-es")
        gate.set()
        await busy
        assert models_of(server).one_thread == {"en-de": False, "en-fr": True, "en-it": False, "en-es": True}


async def test_a_pair_without_a_model_loads_both_of_its_models() -> None:
    async with serving(names=("de-en", "en-fr", "en-it")) as server:
        reply = await server.translate(TEXT, source_language_code="de", target_language_code="fr")
        assert (reply.model, reply.pivot_language_code) == ("de-en+en-fr", "en")
        assert sorted(models_of(server).loads) == ["de-en", "en-fr"]


async def test_two_models_of_one_request_that_do_not_fit_together_are_refused() -> None:
    async with serving(room=1, names=("de-en", "en-fr")) as server:
        status, _ = await failure(server.translate(TEXT, source_language_code="de", target_language_code="fr"))
        assert "model de-en/1 and en-fr/1 needs" in status.message
        assert models_of(server).loads == []


async def test_languages_are_detected_without_loading_a_model() -> None:
    async with serving(names=("en-de", "ru-en")) as server:
        reply = await server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=["Привет"]))
        assert reply.results[0].languages[0].language_code == "ru"
        assert models_of(server).loads == []


async def test_a_drain_waits_for_a_request_that_waits_for_a_load() -> None:
    async with serving() as server:
        server.loader.gate.clear()
        waiting = asyncio.create_task(call(server, "en-de"))
        await eventually(lambda: states(server)["loading"] == 1)
        server.server.stop()
        server.loader.gate.set()
        assert await waiting == "en-de"
        assert await server.task == 0


@asynccontextmanager
async def administered(room: int) -> AsyncIterator[AdministeredServer]:
    async with (
        serving(room, admin_port=0) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel,
    ):
        yield AdministeredServer(server, channel, set())


async def test_the_admin_port_lists_cold_models_and_unloads_and_swaps_them() -> None:
    async with administered(room=2) as admin:
        assert {state for *_, state in await admin.models()} == {"COLD"}
        await call(admin.server, "en-de")
        assert ("en-de", "1", "SERVING") in await admin.models()
        admin.server.loader.gate.clear()
        waiting = asyncio.create_task(call(admin.server, "en-fr"))
        await eventually(lambda: states(admin.server)["loading"] == 1)
        assert ("en-fr", "1", "LOADING") in await admin.models()
        admin.server.loader.gate.set()
        await waiting
        await admin.unload("en-it", "1")
        assert "en-it" not in [name for name, *_ in await admin.models()]
        reply = await admin.swap(admin.publish(2, name="en-es", source_language="en", target_language="es"))
        assert (reply.model.version, list(reply.unloaded)) == ("2", ["en-es/1"])
        assert len([state for *_, state in await admin.models() if state == "SERVING"]) == 2
        listed = (await admin.call("ListModels", admin_pb.ListModelsRequest())).models
        assert {model.memory_bytes >= SESSION_BYTES for model in listed} == {True}


def test_pinned_models_need_a_bound_of_memory() -> None:
    with pytest.raises(SettingsError, match="pinned_models needs model_memory"):
        load({"pinned_models": ("en-de",)}, {}, None)
    assert load({"pinned_models": "a,b", "model_memory": 5}, {}, None).settings.pinned_models == ("a", "b")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pinned_models": ("en-xx",)}, "pinned_models: no model is named en-xx; there are en-de, en-es"),
        ({"pinned_models": ("en-de", "en-fr"), "model_memory": SIZE}, "the pinned models need .* the bound is"),
    ],
)
async def test_pinned_models_that_are_not_there_or_do_not_fit_end_the_start(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        async with serving(**settings):
            pass
