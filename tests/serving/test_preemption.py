"""Which threads take a core from each other, by what other processes use of the cores."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lingon.serving import threads
from lingon.serving.engine.engine import worker_threads
from lingon.serving.threads import OtherProcesses, avoid_preemption, new_threads_never_preempt
from tests.support.echo_engine import EchoRunner, running
from tests.support.timing import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies of Linux")
HOUR = 3600 * os.sysconf("SC_CLK_TCK")  # ticks: much longer than any test
USER, NICE, SYSTEM, IDLE, WAITING, INTERRUPTS, SOFT_INTERRUPTS, STOLEN = range(8)


def write_stat(path: Path, ticks: dict[int, int], cores: set[int] | None = None) -> None:
    """Write the times of these cores, by default of all that this process may use, and of a core that it may not."""
    line = " ".join(str(ticks.get(column, 0)) for column in range(10))
    cores = os.sched_getaffinity(0) if cores is None else cores
    path.write_text("\n".join([f"cpu  {line}", *(f"cpu{core} {line}" for core in cores), "intr 1 2 3"]))


@pytest.mark.parametrize(
    ("column", "share"),
    [(USER, 1), (NICE, 1), (SYSTEM, 1), (IDLE, 0), (WAITING, 0), (INTERRUPTS, 1), (SOFT_INTERRUPTS, 1), (STOLEN, 0)],
)
def test_what_others_compute_counts(tmp_path: Path, column: int, share: int):
    stat = tmp_path / "stat"
    write_stat(stat, {})
    others = OtherProcesses(stat)
    write_stat(stat, {column: HOUR})
    assert others.take() == share
    assert others.take() == 0  # nothing since the last call


def test_other_cores_do_not_count(tmp_path: Path):
    stat, other = tmp_path / "stat", {max(os.sched_getaffinity(0)) + 1}
    write_stat(stat, {}, other)
    others = OtherProcesses(stat)
    write_stat(stat, {USER: HOUR}, other)
    assert others.take() == 0


@pytest.mark.parametrize("written", [None, "", "cpu0 what is this"])
def test_a_system_that_tells_nothing_has_no_others(tmp_path: Path, written: str | None):
    stat = tmp_path / "stat"
    if written is not None:
        stat.write_text(written)
    assert OtherProcesses(stat).take() == 0


def test_what_this_process_computes_does_not_count(tmp_path: Path):
    stat, core, start = tmp_path / "stat", {min(os.sched_getaffinity(0))}, time.process_time()
    write_stat(stat, {}, core)
    others = OtherProcesses(stat)
    while time.process_time() < start + 0.2:
        pass
    write_stat(stat, {USER: int(0.2 * os.sysconf("SC_CLK_TCK"))}, core)
    assert others.take() == 0


@contextmanager
def waiting_thread() -> Iterator[threading.Thread]:
    """A thread that waits."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        yield thread
    finally:
        end.set()
        thread.join()


def test_only_threads_that_start_inside_the_block_wait_for_a_core():
    found: dict[str, int] = {}

    def note(name: str) -> None:
        found[name] = os.sched_getscheduler(0)

    def start(name: str) -> threading.Thread:
        thread = threading.Thread(target=note, args=(name,))
        thread.start()
        return thread

    with new_threads_never_preempt():
        inside = start("inside")
    outside = start("outside")
    inside.join()
    outside.join()
    assert found == {"inside": os.SCHED_BATCH, "outside": os.SCHED_OTHER}


def test_a_system_that_forbids_the_policy_keeps_no_server_from_starting(monkeypatch: pytest.MonkeyPatch):
    """As systemd does for a service with SystemCallFilter=~@resources."""

    def forbid(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    with new_threads_never_preempt():
        assert policies(0) == {os.SCHED_OTHER}


async def test_threads_spare_each_other_while_other_processes_use_little():
    share, contended = 1.0, False
    with waiting_thread() as thread, waiting_thread() as chosen:
        os.sched_setscheduler(chosen.native_id or 0, os.SCHED_IDLE, os.sched_param(0))
        threads = [thread.native_id or 0, chosen.native_id or 0, 2**22 + 1]  # the last one has ended

        def has(policy: int) -> bool:
            found = [os.sched_getscheduler(each) for each in (0, *threads[:2])]
            return found == [policy, policy, os.SCHED_IDLE]

        sparing = asyncio.create_task(avoid_preemption(lambda: threads, lambda: contended, lambda: share, 0.001))
        await asyncio.sleep(0.05)
        assert has(os.SCHED_OTHER)
        share = 0.2
        await eventually(lambda: has(os.SCHED_BATCH))
        share = 0.3
        await eventually(lambda: has(os.SCHED_OTHER))
        share = 0.2
        await eventually(lambda: has(os.SCHED_BATCH))
        contended = True
        await eventually(lambda: has(os.SCHED_OTHER))
        contended = False
        await eventually(lambda: has(os.SCHED_BATCH))
        sparing.cancel()
        await asyncio.wait([sparing])
        assert os.sched_getscheduler(0) == os.SCHED_OTHER  # new threads inherit it


async def test_the_event_loop_and_the_workers_of_a_server_spare_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "MOST_OF_OTHERS", 1.0)  # whatever else this machine does
    async with running(EchoRunner()):
        await eventually(lambda: worker_threads() and policies(0, *worker_threads()) == {os.SCHED_BATCH})


def policies(*threads: int) -> set[int]:
    """The scheduling policies of threads."""
    return {os.sched_getscheduler(thread) for thread in threads}
