"""Rounds of speakers: updates that wait begin together."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from lingon.serving.live.rounds import SECONDS_A_SPEAKER, Rounds


def of_speakers(count: int, stack: ExitStack) -> Rounds:
    rounds = Rounds()
    for _ in range(count):
        stack.enter_context(rounds.speaking())
    return rounds


def test_the_wait_grows_with_the_other_speakers_up_to_a_bound() -> None:
    waits = []
    for count in (0, 1, 2, 11, 1000):
        with ExitStack() as stack:
            waits.append(of_speakers(count, stack).seconds)
    assert waits == [0.0, 0.0, SECONDS_A_SPEAKER, pytest.approx(10 * SECONDS_A_SPEAKER), 0.04]


def test_a_speaker_that_ends_with_an_error_is_not_counted() -> None:
    rounds = Rounds()
    with pytest.raises(ValueError), rounds.speaking():
        raise ValueError
    assert rounds.speakers == 0


@pytest.mark.parametrize("speakers", [0, 1])
def test_a_lone_speaker_waits_for_nothing(speakers: int) -> None:
    with ExitStack() as stack, pytest.raises(StopIteration):
        of_speakers(speakers, stack).begin().send(None)


async def test_all_updates_of_a_round_begin_in_one_iteration_of_the_loop() -> None:
    begun: list[str] = []

    async def update(rounds: Rounds, name: str) -> None:
        await rounds.begin()
        begun.append(name)
        asyncio.get_running_loop().call_soon(begun.append, "next iteration")

    with ExitStack() as stack:
        rounds = of_speakers(50, stack)
        first = asyncio.create_task(update(rounds, "first"))
        await asyncio.sleep(0)
        second = asyncio.create_task(update(rounds, "second"))
        await asyncio.gather(first, second)
    assert begun[:2] == ["first", "second"]


async def test_an_update_after_the_begin_of_a_round_waits_for_the_next_one() -> None:
    with ExitStack() as stack:
        rounds = of_speakers(3, stack)
        await rounds.begin()
        late = asyncio.create_task(rounds.begin())
        await asyncio.sleep(0)
        assert not late.done()
        await late


async def test_a_speaker_that_vanishes_does_not_stop_its_round() -> None:
    with ExitStack() as stack:
        rounds = of_speakers(3, stack)
        gone, other = asyncio.create_task(rounds.begin()), asyncio.create_task(rounds.begin())
        await asyncio.sleep(0)
        gone.cancel()
        await other
