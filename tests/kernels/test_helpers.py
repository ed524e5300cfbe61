"""Helpers: threads that compute parts of the operators of a thread that has the cores to itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from lingon.serving.runtime.device import helper_switch
from tests.support.native_operators import in_process, same_bits, session_of

pytestmark = pytest.mark.usefixtures("native_library")
WIDTH = 512


def use_helpers(count: int) -> None:
    helper_switch()(count)


@pytest.fixture(autouse=True)
def no_helpers_afterwards() -> Iterator[None]:
    yield
    use_helpers(0)


def product(rows: int) -> tuple[ort.InferenceSession, dict[str, np.ndarray]]:
    """A product of some rows with so many weights that it has parts for helpers."""
    draw = np.random.default_rng(rows)
    columns = draw.integers(-63, 64, (WIDTH, WIDTH)).astype(np.int8)
    given = [draw.normal(size=size).astype(np.float32) for size in ((rows, WIDTH), WIDTH, WIDTH)]
    given.insert(1, columns)
    return session_of("Linear", given, norm=0, epsilon=1e-5, relu=0), {"0": given[0]}


def helper_threads() -> list[Path]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # another thread that has just ended
            if (task / "comm").read_text() == "lingon helper\n":
                found.append(task)
    return found


def cores_of(task: Path) -> str:
    (line,) = [line for line in (task / "status").read_text().splitlines() if line.startswith("Cpus_allowed_list:")]
    return line.split()[1]


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_results_are_the_same_with_helpers_to_the_last_bit(rows: int) -> None:
    session, feed = product(rows)
    expected = session.run(None, feed)[0]
    for count in (1, 2, 15, 1000):
        use_helpers(count)
        for _ in range(50):
            assert same_bits(session.run(None, feed)[0], expected)
    assert 15 <= len(helper_threads()) < 1000


def test_threads_that_ask_at_the_same_time_all_have_the_right_results() -> None:
    session, feed = product(3)
    expected = session.run(None, feed)[0]

    def work() -> bool:
        use_helpers(1)
        return all(same_bits(session.run(None, feed)[0], expected) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: work(), range(4)))


def test_a_part_is_computed_by_a_helper() -> None:
    session, feed = product(64)
    use_helpers(1)
    before = cpu_ticks()
    for _ in range(100_000):
        session.run(None, feed)
        if cpu_ticks() > before:  # a helper sleeps while there is nothing to compute
            return
    pytest.fail("no helper has computed anything")


def cpu_ticks() -> int:
    """The hundredths of a second that helpers have used."""
    return sum(int((task / "stat").read_text().rpartition(")")[2].split()[11]) for task in helper_threads())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_helper_leaves_the_core_of_the_thread_that_it_helps() -> None:
    session, feed = product(3)
    allowed = os.sched_getaffinity(0)
    core = min(allowed)

    def work() -> None:
        os.sched_setaffinity(threading.get_native_id(), {core, max(allowed)})
        use_helpers(1)
        for _ in range(200):
            session.run(None, feed)
            threading.Event().wait(0.001)  # so that the helper sleeps and has to be woken

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert {cores_of(task) for task in helper_threads()} <= {str(core), str(max(allowed))}


IN_A_STEP_AT_LOW_PRIORITY = """
import os
from pathlib import Path
from lingon.serving.runtime.sessions import ActiveThreads, HelpedSession
from lingon.serving.threads import run_at_low_priority

session = HelpedSession(None, ActiveThreads(), 1)
run_at_low_priority(lambda: session.__enter__() or session.__exit__())
names = {int(task.name): (task / "comm").read_text() for task in Path("/proc/self/task").iterdir()}
helpers = [thread for thread, name in names.items() if name == "lingon helper\\n"]
print([os.getpriority(os.PRIO_PROCESS, thread) for thread in (0, *helpers)])
"""


def test_helpers_have_the_priority_of_the_thread_that_makes_their_session() -> None:
    """Also if the first step of a model is one of its check, which runs at low priority."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert in_process("", IN_A_STEP_AT_LOW_PRIORITY).decode().strip() == str([own, own])


def test_helpers_end_with_the_process(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:  # a child has none of the threads, and computes all parts itself
        session, feed = product(3)
        use_helpers(1)
        expected = session.run(None, feed)[0]
        os._exit(0 if all(same_bits(session.run(None, feed)[0], expected) for _ in range(50)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
