"""The states of many speakers within a bound of memory."""

from __future__ import annotations

import random

import numpy as np

from lingon.serving.live.pasts import Pasts
from lingon.serving.runtime.runner import SavedPast


def past_of(size: int) -> SavedPast:
    return SavedPast(None, (1,), (np.zeros((1, size), np.int8),))


def test_the_states_of_a_speaker_are_the_latest() -> None:
    pasts, first, second = Pasts(100), past_of(40), past_of(50)
    pasts.keep("a", first)
    assert pasts.of("a") is first
    pasts.keep("a", second)
    assert pasts.of("a") is second
    assert (len(pasts), pasts.size) == (1, 50)


def test_the_least_recently_used_states_leave_first() -> None:
    pasts = Pasts(100)
    for speaker in "abc":
        pasts.keep(speaker, past_of(30))
    assert pasts.of("a") is not None
    pasts.keep("d", past_of(30))
    assert [speaker for speaker in "abcd" if pasts.of(speaker)] == ["a", "c", "d"]


def test_states_above_the_bound_are_not_kept_and_those_before_are_dropped() -> None:
    pasts = Pasts(100)
    pasts.keep("a", past_of(100))
    pasts.keep("a", past_of(101))
    assert (pasts.of("a"), len(pasts), pasts.size) == (None, 0, 0)
    pasts.keep("b", past_of(10))
    pasts.keep("b", None)
    assert (pasts.of("b"), pasts.size) == (None, 0)


def test_no_speaker_keeps_states_without_memory_for_them() -> None:
    pasts = Pasts(0)
    pasts.keep("a", past_of(1))
    assert pasts.of("a") is None


def test_the_size_is_that_of_the_states_and_never_above_the_bound() -> None:
    draw, pasts, speakers = random.Random(5), Pasts(500), range(30)
    for _ in range(2000):
        speaker = draw.choice(speakers)
        if draw.random() < 0.2:
            pasts.drop(speaker)
        else:
            pasts.keep(speaker, past_of(draw.randint(0, 120)))
        held = [past for each in speakers if (past := pasts.of(each)) is not None]
        assert pasts.size == sum(past.nbytes for past in held) <= 500
        assert len(pasts) == len(held)
    for speaker in speakers:
        pasts.drop(speaker)
    assert pasts.size == 0
