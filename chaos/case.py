"""Cases: how one is declared, how all are collected, and how one is run; again while only times are out of bounds.

A new case is a function in a file below chaos/cases:

    @case(14, "expired in queue", "50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of them")
    async def expired_in_queue(context: CaseContext, checks: Checks) -> None: ...

or, if tests of `make test` prove it already, their node ids:

    backed(22, "batch invariance", "identical tokens and scores", "tests/invariance/test_batch_invariance.py")
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from chaos.callers.clients import lag_measured
from chaos.context import CaseContext, Session
from chaos.pytest_cases import run_pytest_cases
from chaos.verdict.checks import FAIL, SKIP, Checks, Row, Skip, best
from lingon.bench.statistics import percentile
from lingon.errors import SettingsError

Body = Callable[[CaseContext, Checks], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One reliability test by its number in docs/explanation/reliability.md.

    bound: the promise in words; the checks state it in numbers
    figures: what the table shows of the result, see chaos.report.found
    tests: files of tests that the case runs
    alone: whether it runs only if its number is given
    """

    number: int
    name: str
    bound: str
    body: Body
    figures: Sequence[str] = ()
    tests: Sequence[str] = ()
    alone: bool = False

    @property
    def title(self) -> str:
        """Number and name."""
        return f"{self.number} {self.name}"


CASES: dict[int, Case] = {}  # by number; filled in when the modules of chaos.cases are imported


def case(
    number: int,
    name: str,
    bound: str,
    *,
    figures: Sequence[str] = (),
    tests: Sequence[str] = (),
    alone: bool = False,
) -> Callable[[Body], Body]:
    """Declare a function as the case with this number."""

    def declare(body: Body) -> Body:
        if number in CASES:
            raise SettingsError(f"case {number} is declared twice: {CASES[number].name} and {name}")
        CASES[number] = Case(number, name, bound, body, figures, tests, alone)
        return body

    return declare


def backed(number: int, name: str, bound: str, *tests: str) -> None:
    """Declare a case that passes if these tests pass."""

    @case(number, name, bound, tests=tests)
    async def run(context: CaseContext, checks: Checks) -> None:
        await run_pytest_cases(checks, context.scratch, tests)


def run(which: Case, session: Session) -> Row:
    """Run a case, up to `session.tries` times while only times are out of bounds; returns its row of the results."""
    tries: list[Checks] = []
    while len(tries) < session.tries:
        try:
            tries.append(_run_once(which, session, len(tries) + 1))
        except Skip as reason:
            return Row(which.number, which.title, f"not run: {reason}", which.bound, SKIP)
        except Exception as error:  # an exception fails its case, and the run continues
            where = traceback.extract_tb(error.__traceback__)[-1]
            figure = f"ended by {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            return Row(which.number, which.title, figure, which.bound, FAIL)
        if not tries[-1].worth_another_try:
            break
    checks = best(tries)
    note = f" (best of {len(tries)})" if len(tries) > 1 else ""
    return Row(which.number, which.title, checks.figure() + note, which.bound, checks.verdict, checks.details())


def _run_once(which: Case, session: Session, attempt: int) -> Checks:
    async def body() -> Checks:
        checks, lags = Checks(), list[float]()
        async with AsyncExitStack() as stack:
            context = CaseContext(session, stack, session.folder / f"{which.number:02d}-{attempt}")
            await stack.enter_async_context(lag_measured(lags))
            try:
                await which.body(context, checks)
            finally:
                context.save_histories()
        lags += [outcome.lag / 1000 for outcome in context.all_outcomes()]
        checks.lag = 1000 * percentile(lags, 99) if lags else 0.0
        return checks

    return asyncio.run(body())
