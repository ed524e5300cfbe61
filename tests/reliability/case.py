"""Cases: tests of a real server under load and faults, whose results make the table of the reliability page.

A new case is a function in a file of this folder:

    @case("50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of them")
    async def test_expired_in_queue(context: CaseContext, checks: Checks) -> None: ...

It fails if one of its checks fails. It runs again while only times are out of bounds. `make reliability` runs all cases
and saves their results.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from lingon.bench.results_file import percentile
from lingon.bench.worker_process import on_cores
from tests.reliability.checks import FAIL, SKIP, Checks, Row, Skip, best, save
from tests.reliability.clients import lag_measured
from tests.reliability.context import CaseContext, Session
from tests.support.repository import FULL, ROOT

RESULTS = ROOT / "bench" / "results"
COMMAND = ("TEST_SCALE=full", "python", "-m", "pytest")
Body = Callable[[CaseContext, Checks], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One reliability test.

    bound: the promise in words, which the checks state in numbers
    figures: the checks whose values the table shows, by the beginnings of their names
    """

    name: str
    bound: str
    body: Body
    figures: Sequence[str] = ()


def case(
    bound: str, *, figures: Sequence[str] = (), mark: str = "reliability", daily: bool = False
) -> Callable[[Body], Callable[[Session], None]]:
    """Make a test of a function that is named `test_` and the name of the case.

    mark: the mark of pytest that selects it; daily: whether `make test` runs its short version
    """

    def declare(body: Body) -> Callable[[Session], None]:
        name = getattr(body, "__name__", "")
        which = Case(name.removeprefix("test_"), bound, body, figures)

        @pytest.mark.timeout(0)
        @pytest.mark.filterwarnings("default")
        def test(session: Session) -> None:
            with on_cores(session.pinning.clients):  # this process generates the load, beside the server's core
                row = run(which, session)
            if not session.quick:
                save([row], RESULTS, [*COMMAND, *sys.argv[1:]])
            if row.verdict == SKIP:
                pytest.skip(row.found)
            assert row.verdict != FAIL, row.found

        test.__name__, test.__qualname__, test.__doc__, test.__module__ = name, name, body.__doc__, body.__module__
        return test if daily and not FULL else getattr(pytest.mark, mark)(test)

    return declare


def run(which: Case, session: Session) -> Row:
    """Run a case, up to `session.tries` times while only times are out of bounds, and return its row of the results."""
    tries: list[Checks] = []
    while len(tries) < session.tries:
        try:
            tries.append(_run_once(which, session, len(tries) + 1))
        except Skip as reason:
            return Row(which.name, f"not run: {reason}", which.bound, SKIP)
        except Exception as error:  # an exception fails its case, and the row says where it was raised
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = f"ended by {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            return Row(which.name, found, which.bound, FAIL)
        if not tries[-1].worth_another_try:
            break
    checks = best(tries)
    note = f" (best of {len(tries)})" if len(tries) > 1 else ""
    return Row(which.name, checks.found(which.figures) + note, which.bound, checks.verdict, checks.details())


def _run_once(which: Case, session: Session, attempt: int) -> Checks:
    async def body() -> Checks:
        checks, lags = Checks(), list[float]()
        async with AsyncExitStack() as stack:
            context = CaseContext(session, stack, session.folder / f"{which.name}-{attempt}")
            await stack.enter_async_context(lag_measured(lags))
            try:
                await which.body(context, checks)
            finally:
                context.save_histories()
        lags += [outcome.lag / 1000 for outcome in context.all_outcomes()]
        checks.lag = 1000 * percentile(lags, 99) if lags else 0.0
        return checks

    return asyncio.run(body())
