"""Where the nodes of a graph run, and how many cores a run takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import onnxruntime as ort
import pytest

from lingon.serving.runtime import sessions
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.sessions import (
    MOST_KNOWN,
    PROBES,
    RECORD_PLACEMENT,
    SHORT_STEP,
    STEP_GAP,
    ActiveThreads,
    HelpedSession,
    SessionPair,
    misplaced,
    placement,
)
from tests.support.shipped_model import bundle


def test_a_session_tells_where_its_nodes_run() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(RECORD_PLACEMENT, "1")
    path = bundle().folder / "fp16" / "copy_rows.onnx"
    nodes = placement(ort.InferenceSession(path, options, providers=[CPU]))
    sizes = {"Shape", "Concat", "Squeeze", "Unsqueeze"}
    assert {node.operator for node in nodes} == {"Gather", "ScatterND", "Range", "Expand", *sizes}
    assert {node.provider for node in nodes} == {CPU}
    assert misplaced(nodes, CPU) == []
    kinds = {each.partition(" ")[2] for each in misplaced(nodes, CUDA)}
    assert kinds == {"(ScatterND)", "(Range)", "(Expand)"}  # the others may compute sizes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def on_another_thread(work: Callable[[], object]) -> object:
    """Run work on another thread; returns its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=10)


def is_alone(threads: ActiveThreads) -> bool:
    alone = threads.begin()
    threads.end()
    return alone


def test_a_single_thread_is_alone_at_every_step() -> None:
    threads = ActiveThreads(Clock())
    assert [is_alone(threads) for _ in range(3)] == [True] * 3


def test_a_thread_is_active_as_long_as_it_computes() -> None:
    clock = Clock()
    threads = ActiveThreads(clock)
    began, go = threading.Event(), threading.Event()

    def work() -> None:
        threads.begin()
        began.set()
        go.wait(10)
        threads.end()

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(10)
    clock.now += 1000
    assert not is_alone(threads)
    go.set()
    thread.join()


def test_a_thread_stays_active_for_a_short_time_after_a_step() -> None:
    clock = Clock()
    threads = ActiveThreads(clock)
    on_another_thread(lambda: is_alone(threads))
    assert not is_alone(threads)
    clock.now += 2 * STEP_GAP
    assert is_alone(threads)
    assert on_another_thread(lambda: is_alone(threads)) is False


def test_with_another_active_thread_the_session_of_shared_cores_is_used() -> None:
    clock = Clock()
    sessions = SessionPair("all cores", "shared cores", ActiveThreads(clock))

    def used() -> str:
        with sessions as session:
            return session

    assert used() == "all cores"
    assert on_another_thread(used) == "shared cores"
    clock.now += 2 * STEP_GAP
    assert used() == "all cores"


def test_a_short_step_of_a_single_thread_uses_shared_cores() -> None:
    sessions = SessionPair("all cores", "shared cores", ActiveThreads(Clock()))

    def chosen_for(rows: int) -> str:
        with sessions as session:
            return sessions.for_step(session, rows)

    seconds = {1: SHORT_STEP / 2, 16: 2 * SHORT_STEP}
    for rows, each in seconds.items():
        for _ in range(PROBES):
            assert chosen_for(rows) == "shared cores"
            sessions.measure_step("shared cores", rows, each)
    assert chosen_for(1) == "shared cores"
    assert chosen_for(16) == "all cores"


def test_a_slow_step_among_the_first_ones_decides_nothing() -> None:
    sessions = SessionPair("all cores", "shared cores", ActiveThreads(Clock()))
    for number in range(2 * PROBES):
        sessions.measure_step("shared cores", 1, (SHORT_STEP / 2) if number % PROBES == 1 else 1.0)
        sessions.measure_step("all cores", 2, SHORT_STEP / 2)
    assert sessions.for_step("all cores", 1) == "shared cores"
    assert sessions.for_step("all cores", 2) == "shared cores"  # still to be measured there


def test_helpers_serve_a_thread_that_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(sessions, "helper_switch", lambda: asked.append)
    clock = Clock()
    session = HelpedSession("the session", ActiveThreads(clock), helpers=3)
    assert asked == [3, 0]  # the helpers start
    asked.clear()

    def use() -> str:
        with session as used:
            asked.append(-1)  # the run
        return used

    assert use() == "the session"
    assert asked == [3, -1, 0]
    asked.clear()
    assert on_another_thread(use) == "the session"
    assert asked == [-1, 0]  # both threads have been active a moment ago
    clock.now += 2 * STEP_GAP
    asked.clear()
    use()
    assert asked == [3, -1, 0]


def test_steps_of_a_helped_session_are_never_without_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "helper_switch", lambda: lambda _: None)
    session = HelpedSession("the session", ActiveThreads(Clock()), helpers=1)
    assert not session.chooses
    with session.around("another one") as used:
        assert used == "another one"


def test_threads_that_ended_long_ago_are_forgotten() -> None:
    clock = Clock()
    threads = ActiveThreads(clock)
    barrier = threading.Barrier(2 * MOST_KNOWN)  # so that all live at once, and have numbers of their own

    def work() -> None:
        is_alone(threads)
        barrier.wait(10)

    with ThreadPoolExecutor(2 * MOST_KNOWN) as pool:
        list(pool.map(lambda _: work(), range(2 * MOST_KNOWN)))
    clock.now += 2 * STEP_GAP
    assert is_alone(threads)
    assert len(threads._last_active) == 1
