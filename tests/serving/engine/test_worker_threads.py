"""The threads of all engines of a process."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from lingon.serving.engine.engine import Engine, any_worker_alive
from lingon.serving.engine.limits import EngineLimits
from tests.support.echo_engine import EchoRunner


class Cold(Engine):
    """An engine that starts at once, with threads that end at once."""

    def __init__(self) -> None:
        super().__init__(EchoRunner(), EngineLimits())
        self._threads = [threading.Thread() for _ in range(20)]

    def warm(self) -> None: ...


def test_workers_can_be_looked_for_while_another_thread_starts_engines():
    """A server that stops does so while a restart or a load may still start an engine."""
    engines = [Cold() for _ in range(100)]

    def start_all() -> None:
        for engine in engines:
            engine.start()

    starting = threading.Thread(target=start_all)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        starting.start()
        while starting.is_alive():
            any_worker_alive()
    finally:
        sys.setswitchinterval(interval)
        starting.join()
    assert not any(thread.is_alive() for engine in engines for thread in engine._threads)


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies of Linux")
def test_a_worker_does_not_take_the_core_from_the_thread_that_submits_jobs():
    engine = Engine(EchoRunner(), EngineLimits(), workers=2)
    engine.start()
    try:
        assert {os.sched_getscheduler(thread.native_id or 0) for thread in engine._threads} == {os.SCHED_BATCH}
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    finally:
        engine.stop(0)
