"""Work beside what is served comes after it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from lingon.serving.engine.policy import EngineLimits
from lingon.serving.models.loading import load_translator
from lingon.serving.system.threads import LOW_PRIORITY, run_at_low_priority
from tests.support.eventually import eventually_blocking
from tests.support.shipped_model import bundle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")


def priority(thread: int = 0) -> int:
    """The nice value of a thread; 0 is this one."""
    return os.getpriority(os.PRIO_PROCESS, thread)


def alive() -> set[int]:
    """The threads of this process."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def test_work_done_gently_has_a_low_priority_and_who_waits_for_it_keeps_his_own():
    usual = priority()
    assert run_at_low_priority(priority) == max(usual, LOW_PRIORITY)
    assert priority() == usual


def test_an_error_of_work_done_gently_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_at_low_priority(lambda: 1 // 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_loaded_beside_others_serves_at_the_usual_priority(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though most of the work of loading it is done at a low one."""
    lowered = list[int]()
    step_back = threads._lower_priority

    def noted() -> None:
        step_back()
        lowered.append(threading.get_native_id())

    monkeypatch.setattr(threads, "_lower_priority", noted)
    before = alive()
    limits = EngineLimits()
    translator = load_translator(
        bundle(), device="cpu", precision=None, engines=2, threads=threads, limits=limits, golden=True, beside=True
    )
    try:
        assert len(lowered) >= 3
        eventually_blocking(lambda: not alive() & set(lowered))
        started = alive() - before
        assert len(started) >= 2 + threads  # the engines', and those of their sessions
        assert {priority(thread) for thread in started} == {priority()}
    finally:
        translator.engine.stop(0)
