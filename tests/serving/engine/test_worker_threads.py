"""The threads of all engines of a process."""

from __future__ import annotations

import subprocess
import sys
import threading

from lingon.serving.engine.engine import Engine, any_worker_alive, worker_threads
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


def test_the_threads_of_workers_are_known_while_they_run():
    engine = Engine(EchoRunner(), EngineLimits(), workers=2)
    before = set(worker_threads())
    engine.start()
    started = set(worker_threads()) - before
    assert started == {thread.native_id for thread in engine._threads}
    assert len(started) == 2
    engine.stop(10)
    assert not started & set(worker_threads())


UNFINISHED = """
import atexit
import sys

atexit.register(lambda: print(any_worker_alive()))  # called after what Lingon registers later
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.engine import Engine, any_worker_alive
from lingon.serving.engine.limits import EngineLimits
from tests.support.echo_engine import EchoRunner

engine = Engine(EchoRunner(delay=0.05, endless=True), EngineLimits(), workers=2)
engine.start()
options = Options(max_output_tokens=40)
engine.submit([DecodeJob(source_ids=(5, 2), options=options, on_done=lambda _: print("ended")) for _ in range(3)])
sys.exit(7)
"""


def test_a_process_with_translations_under_way_ends_them_and_its_workers_first():
    """A worker that is in a graph when Python ends would end the process with SIGABRT."""
    done = subprocess.run([sys.executable, "-c", UNFINISHED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert done.stdout.split() == ["ended"] * 3 + ["False"]
