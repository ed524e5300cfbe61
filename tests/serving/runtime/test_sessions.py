"""Whether a thread computes alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lingon.serving.runtime.sessions import STEP_GAP, ActiveThreads, SessionPair


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def elsewhere(work: Callable[[], object]) -> object:
    """What work returns on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=10)


def alone_in(company: ActiveThreads) -> bool:
    with company.computing() as alone:
        return alone


def test_who_computes_alone_stays_so_from_step_to_step() -> None:
    company = ActiveThreads(Clock())
    assert [alone_in(company) for _ in range(3)] == [True] * 3


def test_somebody_who_computes_now_is_company_however_long_it_takes() -> None:
    clock = Clock()
    company = ActiveThreads(clock)
    began, go = threading.Event(), threading.Event()

    def work() -> None:
        with company.computing():
            began.set()
            go.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(10)
    clock.now += 1000
    assert not alone_in(company)
    go.set()
    thread.join()


def test_somebody_between_two_steps_is_company_for_a_moment() -> None:
    clock = Clock()
    company = ActiveThreads(clock)
    elsewhere(lambda: alone_in(company))
    assert not alone_in(company)
    clock.now += 2 * STEP_GAP
    assert alone_in(company)
    assert elsewhere(lambda: alone_in(company)) is False


def test_who_has_company_uses_a_share() -> None:
    clock = Clock()
    shared = SessionPair("alone", "apart", ActiveThreads(clock))

    def used() -> str:
        with shared.acquire() as chosen:
            return chosen

    assert used() == "alone"
    assert elsewhere(used) == "apart"
    clock.now += 2 * STEP_GAP
    assert used() == "alone"
