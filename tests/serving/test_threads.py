"""Work at low priority, and the priority of the threads that serve."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from lingon.serving import threads as serving_threads
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.threads import LOW_PRIORITY, SHORT_TURN, ShortTurns, run_at_low_priority
from tests.support.shipped_model import bundle
from tests.support.timing import eventually_blocking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux do threads have their own priorities")


def priority(thread: int = 0) -> int:
    """The nice value of a thread; 0 is the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, thread)


def alive() -> set[int]:
    """The ids of the threads of this process."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def test_work_at_low_priority_leaves_the_priority_of_the_caller():
    usual = priority()
    assert run_at_low_priority(priority) == max(usual, LOW_PRIORITY)
    assert priority() == usual


def test_an_error_of_work_at_low_priority_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_at_low_priority(lambda: 1 // 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_loaded_while_serving_serves_at_the_usual_priority(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although most of the loading runs at low priority."""
    lowered = list[int]()
    lower_priority = serving_threads._lower_priority

    def lower_and_record() -> None:
        lower_priority()
        lowered.append(threading.get_native_id())

    monkeypatch.setattr(serving_threads, "_lower_priority", lower_and_record)
    before = alive()
    options = LoadOptions(device="cpu", engines=2, threads=threads, golden=True, low_priority=True)
    translator = load_translator(bundle(), options)
    try:
        assert len(lowered) >= 3
        eventually_blocking(lambda: not alive() & set(lowered))
        started = alive() - before
        assert len(started) >= 2 + threads  # the threads of the engines and of their sessions
        assert {priority(thread) for thread in started} == {priority()}
    finally:
        translator.engine.stop(0)


def test_threads_take_short_turns_until_the_last_context_ends() -> None:
    before = sys.getswitchinterval()
    with ShortTurns():
        with ShortTurns():
            assert sys.getswitchinterval() == pytest.approx(SHORT_TURN)
        assert sys.getswitchinterval() == pytest.approx(SHORT_TURN)
    assert sys.getswitchinterval() == pytest.approx(before)
