"""The memory that a server may need, against the memory that it may have."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.machine import granted_bytes, resident_bytes
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models import memory_need as module
from lingon.serving.models.memory_need import MIB, MemoryNeed, memory_need, report_memory
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.translation.translator import Translator
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually
from tests.support.reload_harness import running_with_admin_port
from tests.support.shipped_model import bundle as shipped_bundle

NEED = MemoryNeed(resident=800 * MIB, states=900 * MIB, runs=200 * MIB, requests=120 * MIB)


def membership(folder: Path, line: str) -> Path:
    path = folder / "membership"
    path.write_text(f"{line}\n")
    return path


@pytest.mark.parametrize(("limit", "found"), [("2147483648", 2 << 30), ("max", None)])
def test_the_lowest_memory_limit_of_the_control_groups_applies(tmp_path: Path, limit: str, found: int | None):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text(f"{limit}\n")
    assert granted_bytes(tmp_path, membership(tmp_path, "0::/a/b")) == found


@pytest.mark.parametrize(("limit", "found"), [("536870912", 512 << 20), ("9223372036854771712", None)])
def test_a_memory_limit_of_control_groups_v1_applies(tmp_path: Path, limit: str, found: int | None):
    (tmp_path / "memory" / "a").mkdir(parents=True)
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text(f"{limit}\n")
    assert granted_bytes(tmp_path, membership(tmp_path, "4:memory:/a")) == found


@pytest.mark.parametrize(
    ("limit", "level", "rest"),
    [
        (None, logging.INFO, ""),
        (2048 * MIB, logging.INFO, ""),
        (2000 * MIB, logging.WARNING, ", more than its limit of 2000 MiB; raise the limit or lower max_rows"),
    ],
)
def test_the_formula_is_logged_and_a_limit_below_it_is_a_warning(
    limit: int | None, level: int, rest: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "granted_bytes", lambda: limit)
    metrics = Metrics()
    report_memory(NEED, metrics)
    (record,) = caplog.records
    assert (record.levelno, record.message) == (level, f"may need 2020 MiB of memory{rest}")
    parts = [record.fields[name] for name in ("resident_mib", "states_mib", "runs_mib", "requests_mib")]
    assert sum(parts) == 2020
    assert metrics.memory_need._value.get() == 2020 * MIB
    assert metrics.memory_limit._value.get() == (limit or 0)


def test_what_is_resident_and_the_largest_request_are_parts_of_the_need():
    found = memory_need([], max_message_bytes=4 * MIB)
    assert found.requests == (92 + 120 + 128 + 64) * MIB
    assert found.resident == pytest.approx(resident_bytes(), rel=0.2)
    assert found.total == found.resident + found.requests


def test_bodies_connections_and_documents_of_http_are_a_part_of_the_need_of_a_server_with_http_apis():
    without, few, many = (memory_need([], max_message_bytes=4 * MIB, http_connections=most) for most in (0, 100, 4196))
    assert few.requests - without.requests == (5 + 1) * 64 * MIB + 2 * (32 + 192) * MIB + 100 * 49_152
    assert many.requests - few.requests == 192 * MIB


def translator_on(provider: str) -> Translator:
    engine = Engine(EchoRunner(), EngineLimits(max_rows=8))
    return Translator(shipped_bundle(), engine, EngineLimits(), provider=provider, graph_bytes=5 * MIB)


def test_a_model_on_a_card_needs_its_memory_and_not_that_of_the_process():
    here, there = (memory_need([translator_on(provider)], max_message_bytes=0) for provider in (CPU, CUDA))
    assert (here.card, there.states, there.runs) == (0, 0, 0)
    assert there.card == 3 * 5 * MIB + here.states + here.runs


@pytest.mark.parametrize(
    ("size", "level", "rest"),
    [
        (None, logging.INFO, ""),
        (40 * MIB, logging.INFO, ""),
        (39 * MIB, logging.WARNING, ", more than its 39 MiB; lower max_rows or serve fewer models"),
    ],
)
def test_a_card_that_is_too_small_is_a_warning(
    size: int | None, level: int, rest: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "card_bytes", lambda: size)
    report_memory(replace(NEED, card=40 * MIB), Metrics())
    found = caplog.records[-1]
    assert (found.levelno, found.message) == (level, f"may need 40 MiB of the graphics card{rest}")


async def test_a_server_states_its_need_when_its_models_are_loaded(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with running(EchoRunner()) as server:
        assert any(record.message.startswith("may need ") for record in caplog.records)
        assert server.metric("lingon_memory_need_bytes") > 0


async def test_the_need_is_stated_again_when_an_unloaded_model_is_freed(monkeypatch: pytest.MonkeyPatch):
    held = [900 * MIB]
    monkeypatch.setattr(module, "resident_bytes", lambda: held.pop(0) if len(held) > 1 else held[0])
    async with running_with_admin_port() as admin:
        await admin.load(admin.publish(2))
        before = admin.server.metric("lingon_memory_need_bytes")
        held[:] = [900 * MIB, 700 * MIB]  # when it is unpublished, and when it is freed
        await admin.unload("en-de", "1")
        await eventually(lambda: admin.server.metric("lingon_memory_need_bytes") <= before - 200 * MIB)
