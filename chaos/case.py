"""What a case is, how all are found, and how one is run: tried again while only times are wrong.

A new case is a function in the file of its section in chaos/cases, and nothing else:

    @case(14, "expired in queue", "50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of them")
    async def expired_in_queue(world: World, found: Findings) -> None: ...

or, where tests of `make test` prove it already, their node ids:

    backed(22, "batch invariance", "identical tokens and scores", "tests/serving/runtime/test_sessions.py::test_...")
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import traceback
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from chaos.checks import FAIL, SKIP, Findings, Skip, best
from chaos.clients import lag_measured
from chaos.context import Session, World
from chaos.pytest_cases import gate
from chaos.report import Row
from lingon.bench.statistics import percentile
from lingon.errors import SettingsError

TRIES = 3
Body = Callable[[World, Findings], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One test of RELIABILITY.md by its number.

    bound: what is asked, in words; the checks say it in numbers
    alone: whether it runs only where it is asked for by number
    """

    number: int
    name: str
    bound: str
    body: Body
    alone: bool = False

    @property
    def title(self) -> str:
        """Number and name."""
        return f"{self.number} {self.name}"


_cases: dict[int, Case] = {}


def case(number: int, name: str, bound: str, *, alone: bool = False) -> Callable[[Body], Body]:
    """Declares a function as the case of a number."""

    def declare(body: Body) -> Body:
        if number in _cases:
            raise SettingsError(f"case {number} is there twice: {_cases[number].name} and {name}")
        _cases[number] = Case(number, name, bound, body, alone)
        return body

    return declare


def backed(number: int, name: str, bound: str, *tests: str) -> None:
    """A case that passes where these tests do."""

    @case(number, name, bound)
    async def run(world: World, found: Findings) -> None:
        await gate(found, world.scratch, tests)


def all_cases() -> list[Case]:
    """In order of their numbers."""
    import chaos.cases

    for module in pkgutil.iter_modules(chaos.cases.__path__, "chaos.cases."):
        importlib.import_module(module.name)
    return [_cases[number] for number in sorted(_cases)]


def chosen(cases: Collection[Case], numbers: Collection[int]) -> list[Case]:
    """Those of these numbers; all but those that run alone where none is named. SettingsError for an unknown one."""
    if unknown := sorted(set(numbers) - {each.number for each in cases}):
        raise SettingsError(f"no case has the number {unknown[0]}; there are {', '.join(str(c.number) for c in cases)}")
    return [each for each in cases if (each.number in numbers if numbers else not each.alone)]


def run(which: Case, session: Session) -> Row:
    """Run a case, again while only times are wrong; its row."""
    tries: list[Findings] = []
    while len(tries) < TRIES:
        try:
            tries.append(_once(which, session, len(tries) + 1))
        except Skip as reason:
            return Row(which.number, which.title, f"not run: {reason}", which.bound, SKIP)
        except Exception as error:  # a case that breaks is a case that fails; the run goes on
            where = traceback.extract_tb(error.__traceback__)[-1]
            figure = f"broke off: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            return Row(which.number, which.title, figure, which.bound, FAIL)
        if not tries[-1].worth_another_try:
            break
    found = best(tries)
    note = f" (best of {len(tries)})" if len(tries) > 1 else ""
    return Row(which.number, which.title, found.figure() + note, which.bound, found.verdict, found.details())


def _once(which: Case, session: Session, attempt: int) -> Findings:
    async def live() -> Findings:
        found, beats = Findings(), list[float]()
        async with AsyncExitStack() as stack:
            world = World(session, stack, session.folder / f"{which.number:02d}-{attempt}")
            await stack.enter_async_context(lag_measured(beats))
            try:
                await which.body(world, found)
            finally:
                world.save()
        beats += [fate.lag / 1000 for fate in world.everything()]
        found.lag = 1000 * percentile(beats, 99) if beats else 0.0
        return found

    return asyncio.run(live())
