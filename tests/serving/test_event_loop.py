"""Long work on an event loop: one slice in each iteration, callers by turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from types import SimpleNamespace

import pytest

from lingon.serving import event_loop
from lingon.serving.event_loop import TimeSlice
from tests.support.timing import counted_iterations


@pytest.fixture
def _every_slice_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "MAX_SLICE", 1e-9)
    monkeypatch.setattr(event_loop, "SLICES_SHARE", 0.0)  # one slice in an iteration, however long it takes


@pytest.mark.usefixtures("_every_slice_is_over")
async def test_only_one_request_has_a_slice_in_each_iteration_however_many_have_long_work():
    slices: list[str] = []

    async def work(caller: str) -> None:
        for _ in range(20):
            await TimeSlice(caller).yield_if_due()
            slices.append(caller)

    tasks = [asyncio.create_task(work(f"caller {number}")) for number in range(8)]
    most = 0
    while not all(task.done() for task in tasks):
        before = len(slices)
        await asyncio.sleep(0)
        most = max(most, len(slices) - before)
    assert most == 1


async def test_requests_get_half_of_the_time_of_an_iteration_that_took_long(monkeypatch: pytest.MonkeyPatch):
    """With one turn in each, those that need a turn wait for as many iterations as there are of them."""
    now, done = 0.0, 0
    monkeypatch.setattr(event_loop, "MAX_SLICE", 1.0)
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: now, process_time=lambda: 0.0))

    async def work(caller: str) -> None:
        nonlocal now, done
        await asyncio.sleep(0)  # so that all are there
        time_slice = TimeSlice(caller)
        now += 1.5
        await time_slice.yield_if_due()
        done += 1

    tasks = [asyncio.create_task(work(f"caller {number}")) for number in range(41)]
    counts: list[int] = []
    while done < len(tasks):
        before = done
        await asyncio.sleep(0)
        counts += [done - before] * (done > before)
    assert counts[0] == 1 + 40 * 1.5 // 2, "40 requests worked after the first one began to wait"
    assert set(counts[1:]) == {1}, "nothing else took time in these iterations"


@pytest.mark.parametrize(
    ("cores", "busy", "share"), [(1, 1.0, 0.15), (1, 0.4, 0.6), (2, 2.0, 0.3), (4, 2.5, 1.0), (8, 8.0, 1.0)]
)
async def test_long_work_has_the_time_of_idle_cores_and_a_small_part_of_busy_ones(
    cores: int, busy: float, share: float, monkeypatch: pytest.MonkeyPatch
):
    """Busy: cores that the threads of the process keep busy."""
    now, slices = 0.0, 0
    monkeypatch.setattr(event_loop, "usable_cores", lambda: cores)
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: now, process_time=lambda: busy * now))
    monkeypatch.setattr(event_loop, "PAUSE", 0.0)

    async def work() -> None:
        nonlocal slices, now
        time_slice = TimeSlice("long")
        while True:
            await time_slice.yield_if_due()
            slices += 1
            now += event_loop.MAX_SLICE * 1.0001

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    for _ in range(4000):
        await asyncio.sleep(0)
        now += event_loop.MAX_SLICE / 10  # other work
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    most = 1 / 1.1  # of the time, since other work has a tenth of a slice in each iteration
    assert slices * event_loop.MAX_SLICE / now == pytest.approx(min(share, most), rel=0.15)


@pytest.mark.usefixtures("_every_slice_is_over")
async def test_a_caller_with_many_requests_gets_no_more_slices_than_one_with_a_single_request():
    slices: list[str] = []

    async def work(caller: str) -> None:
        time_slice = TimeSlice(caller)
        for _ in range(50):
            await time_slice.yield_if_due()
            slices.append(caller)

    many = [asyncio.create_task(work("many")) for _ in range(10)]
    await work("one")
    assert abs(slices.count("many") - slices.count("one")) <= 2
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)


@pytest.mark.usefixtures("_every_slice_is_over")
async def test_a_cancelled_request_keeps_nobody_waiting():
    waiting = [asyncio.create_task(TimeSlice("a").yield_if_due()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.wait_for(waiting[2], 30)
    await asyncio.wait_for(TimeSlice("b").yield_if_due(), 30)


@pytest.mark.usefixtures("_every_slice_is_over")
async def test_a_generator_runs_in_slices_and_its_result_is_returned():
    def steps() -> Generator[None, None, int]:
        for _ in range(10):
            yield
        return 7

    async with counted_iterations() as passes:
        assert await TimeSlice().run(steps()) == 7
    assert sum(passes) >= 10


async def test_the_time_that_a_request_waits_for_others_is_no_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_loop, "MAX_SLICE", 0.001)
    time_slice = TimeSlice("short")
    waiting = [asyncio.create_task(TimeSlice(f"long {number}").run(_busy(20))) for number in range(10)]
    await asyncio.sleep(0.01)  # as for the engine
    async with counted_iterations() as turns:
        await time_slice.yield_if_due()
        assert sum(turns) == 0, "it waited for a turn although it had done nothing"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _busy(slices: int) -> Generator[None, None, None]:
    for _ in range(slices):
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            pass
        yield
