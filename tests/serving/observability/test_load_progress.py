"""While a model is loaded, the log, the metrics and the admin port show the phase that is under way, and since when."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from lingon.admin.v1 import admin_pb2
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.observability.load_progress import PHASES, LoadProgress
from tests.support import shipped_model
from tests.support.echo_engine import running
from tests.support.eventually import eventually
from tests.support.real_server import serving
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port
from tests.support.shipped_model import bundle

SECOND = {"model": "en-de", "version": "2"}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def events(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    """The values of all log lines with a message."""
    return [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == message]


def phases_under_way(admin: AdministeredServer) -> dict[str, float]:
    """The value of the metric of each phase of en-de/2."""
    return {phase: admin.server.metric("lingon_model_load_phase", phase=phase, **SECOND) for phase in PHASES}


def test_the_phases_add_up_to_the_load():
    clock = Clock()
    progress = LoadProgress("en-de/2", clock)
    clock.now += 1
    for seconds, phase in enumerate(PHASES, 2):
        progress.begin(phase)
        assert (progress.phase, progress.ended) == (phase, False)
        clock.now += seconds
        assert progress.seconds(phase) == seconds
    total = progress.total()
    progress.end()
    clock.now += 1000
    assert (progress.phase, progress.ended) == ("", True)
    assert [progress.seconds(phase) for phase in PHASES] == [2, 3, 4, 5, 6]
    assert progress.total() == total == 1 + sum(map(progress.seconds, PHASES))


def test_a_phase_that_did_not_begin_took_no_time():
    clock = Clock()
    progress = LoadProgress("en-de/2", clock)
    progress.begin("checksums")
    clock.now += 5
    progress.fail()
    clock.now += 1000
    assert {phase: progress.seconds(phase) for phase in PHASES} == {**dict.fromkeys(PHASES, 0.0), "checksums": 5.0}
    assert progress.total() == 5


def test_loading_a_model_goes_through_all_phases_in_order():
    begun: list[str] = []
    options = LoadOptions(device="cpu", engines=1, threads=1, golden=True, on_phase=begun.append)
    translator = load_translator(shipped_model.bundle(), options)
    translator.engine.stop(0)
    assert tuple(begun) == PHASES


async def test_a_server_logs_each_phase_and_exports_its_duration(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    manifest = bundle().manifest
    label, shipped = f"{manifest.name}/{manifest.version}", {"model": manifest.name, "version": str(manifest.version)}
    async with serving() as server:
        spent = [server.counted("lingon_model_load_phase_duration_seconds", phase=phase, **shipped) for phase in PHASES]
        total = server.counted("lingon_model_load_duration_seconds", **shipped)
        assert all(server.counted("lingon_model_load_phase", phase=phase, **shipped) == 0 for phase in PHASES)
        assert server.counted("lingon_models_to_load") == 0
    assert all(spent)
    assert sum(spent) <= total
    assert [(line["model"], line["phase"]) for line in events(caplog, "loading")] == [(label, p) for p in PHASES]
    (loaded,) = events(caplog, "loaded")
    assert [loaded[phase] for phase in PHASES] == pytest.approx(spent, abs=0.01)
    assert loaded["seconds"] == pytest.approx(total, abs=0.01)


async def test_metrics_and_the_admin_port_show_a_load_that_is_under_way():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        registry, checksums = admin.server.server.metrics.registry, {**SECOND, "phase": "checksums"}
        await eventually(lambda: registry.get_sample_value("lingon_model_load_phase", checksums) == 1)
        assert sum(phases_under_way(admin).values()) == 1
        assert admin.server.metric("lingon_models_to_load") == 1
        one = await spent_on_checksums(admin)
        await eventually(lambda: admin.server.metric("lingon_model_load_duration_seconds", **SECOND) > one)
        assert await spent_on_checksums(admin) > one
        (loading,) = [each for each in await models(admin) if each.state == admin_pb2.MODEL_STATE_LOADING]
        assert (loading.load_phase, loading.load_seconds > 0) == ("checksums", True)
        admin.versions.gate.set()
        await swap
        assert set(phases_under_way(admin).values()) == {0}
        assert admin.server.metric("lingon_models_to_load") == 0
        total = admin.server.metric("lingon_model_load_duration_seconds", **SECOND)
        assert total == admin.server.metric("lingon_model_load_duration_seconds", **SECOND) > one
        (serves,) = await models(admin)
        assert (serves.load_phase, serves.load_seconds) == ("", 0)


async def models(admin: AdministeredServer) -> list[admin_pb2.Model]:
    return list((await admin.call("ListModels", admin_pb2.ListModelsRequest())).models)


async def spent_on_checksums(admin: AdministeredServer) -> float:
    return admin.server.metric("lingon_model_load_phase_duration_seconds", phase="checksums", **SECOND)


async def test_a_load_that_fails_is_logged_with_its_phase_and_leaves_no_gauge(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with running_with_admin_port() as admin:
        assert (await refused(admin.swap(admin.publish(2, golden="another translation"))))[0] == "FAILED_PRECONDITION"
        with pytest.raises(KeyError):
            phases_under_way(admin)
        assert admin.server.metric("lingon_models_to_load") == 0
        (loading,) = events(caplog, "loading failed")
        assert (loading["model"], loading["phase"]) == ("en-de/2", "golden_sentences")


async def test_models_that_wait_for_their_turn_are_counted():
    async with running(ready=False, bundles=({}, {"name": "en-fr"}, {"name": "en-it"})) as server:
        await eventually(lambda: server.metric("lingon_models_to_load") == 3)
        server.loader.gate.set()
        await eventually(lambda: server.metric("lingon_ready") == 1)
        assert server.metric("lingon_models_to_load") == 0
