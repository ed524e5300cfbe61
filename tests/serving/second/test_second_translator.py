"""When the second translator is asked, with a server in this process in place of one behind HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from lingon.serving.second.answers import Failed, LeftAlone, NoAnswer, NotTaken, OverBudget, Rejected, Unchanged
from lingon.serving.second.bounds import REJECTED_PAUSE, REJECTIONS
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.questions import Question
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator

QUESTION = Question("It is raining.", "en", "de")


class Server:
    """Answers each question, or fails."""

    model = "m"

    def __init__(self) -> None:
        self.asked, self.content, self.error = 0, '{"translation": "Es regnet."}', None

    async def complete(self, question: Question) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.content


class Asking:
    def __init__(self, **more: Any) -> None:
        self.now, self.server = 0.0, Server()
        bounds = SecondBounds(seconds=5, at_once=1, hourly=1000)
        self.second = SecondTranslator(self.server, SecondChoice(), bounds, clock=lambda: self.now, **more)  # type: ignore[arg-type]

    async def ask(self, outcome: NotTaken | None = None, caller: str = "a") -> None:
        """Ask about a sentence. outcome: of the checks of the answer"""
        with self.second.judging(caller):
            await self.second.ask(QUESTION, caller)
            if outcome is not None:
                raise outcome

    async def rejected(self, times: int) -> None:
        for _ in range(times):
            with pytest.raises(Rejected):
                await self.ask(Rejected("of the checks"))


async def test_a_caller_whose_answers_are_all_rejected_gets_none_for_a_while_and_then_one():
    asking = Asking()
    await asking.rejected(REJECTIONS)
    with pytest.raises(LeftAlone, match="the last 20 answers did not pass the checks"):
        await asking.ask()
    await asking.ask(caller="b")
    asking.now = REJECTED_PAUSE
    await asking.rejected(1)  # the probe
    with pytest.raises(LeftAlone):
        await asking.ask()
    asking.now = 2 * REJECTED_PAUSE
    await asking.ask()
    await asking.rejected(REJECTIONS - 1)
    assert asking.server.asked == 2 * REJECTIONS + 2


async def test_an_answer_in_another_form_is_rejected_too():
    asking = Asking()
    asking.server.content = "Es regnet."
    for _ in range(REJECTIONS):
        with pytest.raises(NoAnswer):
            await asking.ask()
    with pytest.raises(LeftAlone):
        await asking.ask()


@pytest.mark.parametrize("outcome", [None, Unchanged("")])
async def test_an_answer_that_is_taken_or_says_what_ours_does_ends_a_row_of_rejections(outcome):
    asking = Asking()
    for _ in range(3):
        await asking.rejected(REJECTIONS - 1)
        if outcome is None:
            await asking.ask()
        else:
            with pytest.raises(Unchanged):
                await asking.ask(outcome)


async def test_questions_that_are_not_sent_or_have_no_outcome_are_no_rejections():
    asking = Asking()
    await asking.rejected(REJECTIONS - 1)
    for outcome in (Failed(""), TimeoutError()):
        asking.server.error = outcome
        with pytest.raises(NotTaken):
            await asking.ask()
    asking.server.error = None
    await asking.rejected(1)
    asking.now = REJECTED_PAUSE
    breaker = asking.second.judging("a")
    with breaker:
        await asking.second.ask(QUESTION, "a")
        with pytest.raises(LeftAlone):  # and does not let a third question be the probe
            await asking.ask()
        with pytest.raises(LeftAlone):
            await asking.ask()


async def test_the_budget_of_a_caller_is_its_own_if_it_has_one():
    own = {"more": 2, "none": 0}
    asking = Asking(own_hourly=lambda caller: own.get(caller))
    assert [asking.second.hourly(caller) for caller in ("more", "none", "other")] == [2, 0, 1000]
    await asking.ask(caller="more")
    await asking.ask(caller="more")
    with pytest.raises(OverBudget):
        await asking.ask(caller="more")
    with pytest.raises(OverBudget):
        await asking.ask(caller="none")
    await asking.ask(caller="other")
