"""Cases: how one is declared, and how one is run; again while only times are out of bounds.

A new case is a function in a file below chaos/cases:

    @case("50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of them")
    async def expired_in_queue(context: CaseContext, checks: Checks) -> None: ...
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
from chaos.verdict.checks import FAIL, SKIP, Checks, Row, Skip, best
from lingon.bench.statistics import percentile
from lingon.errors import SettingsError

Body = Callable[[CaseContext, Checks], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One reliability test.

    bound: the promise in words; the checks state it in numbers
    figures: the checks whose values the table shows, by the beginnings of their names
    alone: whether it runs only if its name is given
    """

    name: str
    bound: str
    body: Body
    figures: Sequence[str] = ()
    alone: bool = False


CASES: dict[str, Case] = {}  # by name; filled in when the modules of chaos.cases are imported


def case(bound: str, *, figures: Sequence[str] = (), alone: bool = False) -> Callable[[Body], Body]:
    """Declare a function as the case with its name."""

    def declare(body: Body) -> Body:
        name = getattr(body, "__name__", "")
        if name in CASES:
            raise SettingsError(f"the case {name} is declared twice")
        CASES[name] = Case(name, bound, body, figures, alone)
        return body

    return declare


def run(which: Case, session: Session) -> Row:
    """Run a case, up to `session.tries` times while only times are out of bounds; return its row of the results."""
    tries: list[Checks] = []
    while len(tries) < session.tries:
        try:
            tries.append(_run_once(which, session, len(tries) + 1))
        except Skip as reason:
            return Row(which.name, f"not run: {reason}", which.bound, SKIP)
        except Exception as error:  # an exception fails its case, and the run continues
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
