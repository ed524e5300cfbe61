"""The memory that models may need, and freed memory that goes back to the system."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.machine import granted_bytes, resident_bytes
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models import memory
from lingon.serving.models.memory import MIB, MemoryNeed, memory_need, release_memory, report_memory
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.settings import GLOSSARY_BYTES
from lingon.serving.translation.translator import Translator
from tests.support.echo_engine import EchoRunner, running
from tests.support.reload_harness import running_with_admin_port
from tests.support.shipped_model import bundle as shipped_bundle
from tests.support.timing import eventually

RESIDENT = """
import threading
from pathlib import Path
from lingon.serving.settings import GLOSSARY_BYTES
from lingon.serving.models.memory import limit_malloc_caches, release_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
"""

FREED = """
left = []

def work():
    blocks = [bytes(2000) for _ in range(50_000)]
    left.append(blocks[-1])  # As the last block is in use, glibc does not return the blocks before it by itself.

before = resident()
thread = threading.Thread(target=work)
thread.start()
thread.join()
kept = resident()
release_memory([])
print(kept - before, resident() - before)
"""


def output_of(code: str, variable: str = "", value: str | None = None) -> str:
    """What `code` prints in its own process; one environment variable is set to `value`, or removed if None."""
    environment = {name: each for name, each in os.environ.items() if name != variable}
    if value:
        environment[variable] = value
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_release_memory_returns_what_a_thread_freed_to_the_system():
    kept, left = map(int, output_of(RESIDENT + FREED).split())
    assert kept > 50e6
    assert left < 20e6


def test_release_memory_frees_objects_in_reference_cycles():
    class Model:
        itself: Model

    model = Model()
    model.itself = model
    reference, objects = weakref.ref(model), list[object]([model])
    del model
    gc.disable()
    try:
        release_memory(objects)
        assert reference() is None
    finally:
        gc.enable()


ARENAS = """
import ctypes, threading
from lingon.serving.settings import GLOSSARY_BYTES
from lingon.serving.models.memory import limit_malloc_caches

limit_malloc_caches()
together = threading.Barrier(8)

def work():
    together.wait()
    ctypes.CDLL(None).malloc(100)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
@pytest.mark.parametrize(("setting", "arenas"), [(None, 2), ("4", 4)])
def test_threads_share_two_arenas_unless_the_environment_sets_another_number(setting: str | None, arenas: int) -> None:
    assert output_of(ARENAS, "MALLOC_ARENA_MAX", setting).count("<heap nr=") == arenas


UNTOUCHED = """
import numpy
limit_malloc_caches()
before, kept = resident(), []
for _ in range(3):
    arrays = [numpy.zeros(2**20) for _ in range(8)]  # never written to
    kept.append(bytes(4_000_000))  # after the arrays, and too large for a hole before them: no heap ends with them
    del arrays
arrays = [numpy.zeros(2**20) for _ in range(8)]
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
@pytest.mark.parametrize(("setting", "most"), [(None, 4e6), (str(2**25), None)])
def test_untouched_arrays_take_no_memory_even_after_others_were_freed(setting: str | None, most: float | None) -> None:
    resident = int(output_of(RESIDENT + UNTOUCHED, "MALLOC_MMAP_THRESHOLD_", setting))
    if most is None:
        assert resident > 32e6  # The setting in the environment wins.
    else:
        assert resident < most


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
    monkeypatch.setattr(memory, "granted_bytes", lambda: limit)
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


def test_glossaries_that_are_kept_count():
    without, kept = (memory_need([], max_message_bytes=MIB, keeps_glossaries=each) for each in (False, True))
    assert kept.requests - without.requests == GLOSSARY_BYTES


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
    monkeypatch.setattr(memory, "card_bytes", lambda: size)
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
    monkeypatch.setattr(memory, "resident_bytes", lambda: held.pop(0) if len(held) > 1 else held[0])
    async with running_with_admin_port() as admin:
        await admin.load(admin.publish(2))
        before = admin.server.metric("lingon_memory_need_bytes")
        held[:] = [900 * MIB, 700 * MIB]  # when it is unpublished, and when it is freed
        await admin.unload("en-de", "1")
        await eventually(lambda: admin.server.metric("lingon_memory_need_bytes") <= before - 200 * MIB)
