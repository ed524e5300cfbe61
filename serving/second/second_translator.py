"""The second translator of a server: it is asked about sentences within bounds of time, number and callers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lingon.client.options import SecondServer
from lingon.serving.observability.logs import event
from lingon.serving.second.answers import (
    Failed,
    LeftAlone,
    NoAnswer,
    NotTaken,
    OverBudget,
    Rejected,
    TimedOut,
    Unchanged,
    translation_in,
)
from lingon.serving.second.bounds import REJECTIONS, CircuitBreaker, HourlyBudget, RejectionBreakers
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import Reason, SecondChoice
from lingon.serving.second.questions import Question
from lingon.serving.second.slots import FairSlots
from lingon.translation.v1 import translation_pb2 as pb

Result: TypeAlias = pb.SecondResult.ValueType

REPLY_SECONDS = 0.1  # of the time until the deadline of a call that is left to send its reply
LEAST_SECONDS = 0.05  # with less time than this nothing is asked
PATIENCE = 0.5  # of the seconds of the bounds; a question that had less time says nothing about the server
ALL = ""  # the caller of the budget of all callers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondBounds:
    """The bounds of the server.

    seconds: of a sentence, with the time that it waits for others
    at_once: questions that are open at once
    hourly: sentences of a caller in an hour; None is no bound
    total_hourly: of all callers
    """

    seconds: float
    at_once: int
    hourly: int | None = None
    total_hourly: int | None = None


class SecondTranslator:
    """A server of another kind that is asked about doubtful sentences. For one event loop."""

    def __init__(
        self,
        server: ChatServer,
        choice: SecondChoice,
        bounds: SecondBounds,
        *,
        on_end: Callable[[Reason, Result], object] = lambda reason, result: None,
        on_answer: Callable[[float], object] = lambda seconds: None,
        on_circuit: Callable[[bool], object] = lambda is_open: None,
        own_hourly: Callable[[str], int | None] = lambda caller: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """choice: the bounds of requests.

        on_end: called with what came of each sentence that was to be sent
        on_answer: called with the seconds of each question that was sent, however it ended
        on_circuit: called when it changes whether the server is left alone because it fails
        own_hourly: returns the sentences of a caller in an hour, None for the `hourly` of the bounds
        clock: returns seconds
        """
        self.choice, self.model, self.on_end = choice, server.model, on_end
        self._server, self._bounds, self._clock = server, bounds, clock
        self._on_answer, self._on_circuit = on_answer, on_circuit
        self._slots, self._breaker, self._rejections = FairSlots(bounds.at_once), CircuitBreaker(), RejectionBreakers()
        self._own_hourly = own_hourly
        self._own, self._all = HourlyBudget(self.hourly), HourlyBudget(lambda caller: bounds.total_hourly)

    @property
    def identity(self) -> str:
        """What tells the translations with this translator from those without one or with another one."""
        return f"{self.model} {self.choice}"

    @classmethod
    def of(cls, second: SecondServer) -> SecondTranslator:
        """Return the second translator of a model in the caller's process. Raises what ChatServer raises."""
        key_file = None if second.key_file is None else Path(second.key_file)
        return cls(
            ChatServer(second.url, second.model, key_file, connections=second.concurrency),
            SecondChoice(second.below, second.sentences, second.characters),
            SecondBounds(seconds=second.timeout, at_once=second.concurrency, hourly=second.hourly),
        )

    def hourly(self, caller: str) -> int | None:
        """Return how many sentences of a caller may be sent in an hour; None is no bound, and 0 never any."""
        own = self._own_hourly(caller)
        return self._bounds.hourly if own is None else own

    async def ask(self, question: Question, caller: str, deadline: float | None = None) -> str:
        """Return a translation. Raises NotTaken, within the seconds of the bounds.

        caller: the key of fair queuing; deadline: of the call, on the clock
        """
        begin = self._clock()
        seconds = self._bounds.seconds
        if deadline is not None:
            seconds = min(seconds, deadline - begin - REPLY_SECONDS)
        if seconds < LEAST_SECONDS:
            raise OverBudget("the deadline of the call leaves no time for it")
        self._check(caller)
        sent_at: float | None = None
        try:
            async with asyncio.timeout(seconds), self._slots.of(caller):
                self._check(caller)  # again, because others were asked meanwhile
                if self._clock() - begin > seconds - LEAST_SECONDS:
                    raise TimeoutError
                sent_at = self._clock()
                self._own.take(caller, sent_at)
                self._all.take(ALL, sent_at)
                self._rejections.of(caller).begun()
                content = await self._asked(question)
        except TimeoutError:
            if sent_at is None:
                raise OverBudget(f"{self._bounds.at_once} questions are open, and none ended in time") from None
            if self._clock() - sent_at >= PATIENCE * self._bounds.seconds:
                self._note(self._breaker.failed, "no answer in time")
            raise TimedOut(f"no answer within {seconds:.3g} s") from None
        return translation_in(content, question.most_characters)

    def _check(self, caller: str) -> None:
        """Raise NotTaken if the server must not be asked now."""
        now = self._clock()
        for whose, budget, key in (("the caller", self._own, caller), ("the server", self._all, ALL)):
            if wait := budget.wait(key, now):
                raise OverBudget(f"{whose} has sent as many sentences as it may in an hour; the next in {wait:.0f} s")
        if self._breaker.refuses(now):
            raise LeftAlone("the second translator has failed several times in a row, and is left alone for a while")
        if self._rejections.of(caller).refuses(now):
            raise LeftAlone(f"the last {REJECTIONS} answers did not pass the checks, and no more are asked for a while")

    def rejected(self, caller: str) -> int:
        """Return how many answers for a caller did not pass in a row up to now, see `RejectionBreakers.in_a_row`."""
        return self._rejections.in_a_row(caller)

    @contextmanager
    def judging(self, caller: str) -> Iterator[None]:
        """Note for later questions of a caller how the question and the checks inside the block end."""
        breaker = self._rejections.of(caller)
        was_open = breaker.is_open
        try:
            yield
        except (OverBudget, LeftAlone):  # it was not asked
            raise
        except Unchanged:
            breaker.answered(self._clock())
            raise
        except (Rejected, NoAnswer) as rejection:
            breaker.failed(self._clock())
            if breaker.is_open and not was_open:
                event(
                    logger,
                    logging.WARNING,
                    "the answers of the second translator do not pass the checks; a caller gets none for a while",
                    caller=caller,
                    why=str(rejection),
                )
            raise
        except BaseException:
            breaker.dropped()
            raise
        breaker.answered(self._clock())

    async def _asked(self, question: Question) -> str:
        """Return what the server wrote, and note for later questions whether it answers."""
        begin = self._clock()
        self._breaker.begun()
        try:
            content = await self._server.complete(question)
        except Failed as failure:
            self._note(self._breaker.failed, str(failure))
            raise
        except asyncio.CancelledError:  # by the caller, or because it takes too long
            self._breaker.dropped()
            raise
        except NotTaken:
            self._note(self._breaker.answered)
            raise
        finally:
            self._on_answer(self._clock() - begin)
        self._note(self._breaker.answered)
        return content

    def _note(self, outcome: Callable[[float], None], why: str = "") -> None:
        """Note the outcome of a question, and log if the server is left alone from now on, or no longer."""
        was_open = self._breaker.is_open
        outcome(self._clock())
        if self._breaker.is_open == was_open:
            return
        self._on_circuit(self._breaker.is_open)
        if self._breaker.is_open:
            event(logger, logging.WARNING, "the second translator fails, and is left alone for a while", why=why)
        else:
            event(logger, logging.INFO, "the second translator answers again")

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._server.close()
