"""Who waits, who gives way and who is refused: the table of admission, as pure functions."""

from __future__ import annotations

import math

import pytest

from lingon.errors import InvalidRequest, NotBegun, QueueFull, RequestError, TooManyCalls, WontFinish
from lingon.serving.engine.scheduler import AT_ONCE, NEVER, Forecast
from lingon.serving.rpc.admission import (
    CHECKS_TO_LEAVE,
    CHECKS_TO_REFUSE,
    MARGIN,
    READING_SHARE,
    SLOTS_OF_CALLER,
    SMALL_BYTES,
    CallLimits,
    Reading,
    caller_to_evict,
    may_be_read,
    refused_for_its_size,
    refused_on_arrival,
    while_arriving,
)

MIB = 2**20
LIMITS = CallLimits(
    kind="some",
    max_calls=9,
    max_seconds=None,
    receive_seconds=30,
    request_bytes=4 * MIB,
    slow_calls=32,
    held_bytes=64 * MIB,
)


@pytest.mark.parametrize(
    ("counts", "caller", "found"),
    [
        ({"a": 4}, "b", "a"),
        ({"a": 1}, "b", None),  # neither would have more afterwards
        ({"a": 2}, "b", "a"),
        ({"a": 3, "b": 1}, "b", "a"),
        ({"a": 3, "b": 2}, "b", None),
        ({"a": 3, "b": 3}, "b", None),
        ({"a": 3, "c": 9}, "b", "c"),
        ({"a": 9}, "a", None),  # nobody gives way to its own calls
    ],
)
def test_the_caller_with_the_most_gives_way_if_it_keeps_as_many_as_the_other_gets(
    counts: dict[str, int], caller: str, found: str | None
):
    assert caller_to_evict({each: range(count) for each, count in counts.items()}, caller) == found


def test_a_caller_has_not_all_places():
    assert may_be_read(free=1, own=SLOTS_OF_CALLER - 1)
    assert not may_be_read(free=4, own=SLOTS_OF_CALLER)
    assert not may_be_read(free=0, own=0)


@pytest.mark.parametrize(
    ("left", "wait", "patience", "forecast", "error"),
    [
        (None, 0.0, math.inf, AT_ONCE, None),
        (0.0, 0.0, math.inf, None, NotBegun),
        (1.0, READING_SHARE, math.inf, None, None),
        (1.0, READING_SHARE + 0.01, math.inf, None, QueueFull),
        (None, 100.0, 10.0, None, None),  # without work for an engine
        (None, 0.0, math.inf, NEVER, QueueFull),
        (1.0, 0.1, math.inf, Forecast(0.9 / MARGIN - 0.01, 0.0), None),
        (1.0, 0.1, math.inf, Forecast(0.9 / MARGIN + 0.01, 0.0), WontFinish),
        (None, 1.0, 10.0, Forecast(500.0, 8.9), None),  # its own work may take long
        (None, 1.0, 10.0, Forecast(500.0, 9.1), QueueFull),
    ],
)
def test_a_call_that_would_be_late_is_refused_when_it_arrives(
    left: float | None, wait: float, patience: float, forecast: Forecast | None, error: type[RequestError] | None
):
    found = refused_on_arrival(left=left, wait=wait, patience=patience, forecast=forecast)
    assert type(found) is (error or type(None))


@pytest.mark.parametrize(
    ("checks", "seconds", "slow", "all_slow", "own_slow", "found"),
    [
        (CHECKS_TO_LEAVE - 1, 0.05, False, 0, 0, Reading.WAIT),
        (CHECKS_TO_LEAVE, 0.075, False, 31, 7, Reading.SLOW),
        (CHECKS_TO_LEAVE, 0.075, False, 32, 0, Reading.WAIT),
        (CHECKS_TO_LEAVE, 0.075, False, 8, 8, Reading.WAIT),  # a quarter of all
        (CHECKS_TO_REFUSE, 0.125, False, 8, 8, Reading.REFUSE),
        (CHECKS_TO_REFUSE, 0.125, False, 32, 0, Reading.REFUSE),
        (CHECKS_TO_REFUSE, 0.125, False, 8, 7, Reading.SLOW),  # another one was whole meanwhile
        (99, 29.9, True, 32, 8, Reading.WAIT),
        (99, 30.1, True, 1, 1, Reading.EXPIRE),
        (1, 30.1, False, 1, 1, Reading.WAIT),  # the server was too busy to read it
    ],
)
def test_a_request_that_arrives_slowly_waits_leaves_its_place_or_is_refused(
    checks: int, seconds: float, slow: bool, all_slow: int, own_slow: int, found: Reading
):
    known = while_arriving(checks, seconds, slow=slow, all_slow=all_slow, own_slow=own_slow, limits=LIMITS)
    assert known is found


@pytest.mark.parametrize(
    ("size", "held", "own", "error"),
    [
        (4 * MIB, 0, 0, None),
        (4 * MIB + 1, 0, 0, InvalidRequest),
        (MIB, 63 * MIB, 0, None),
        (MIB + 1, 63 * MIB, 0, TooManyCalls),
        (MIB, 31 * MIB, 31 * MIB, None),
        (MIB + 1, 31 * MIB, 31 * MIB, TooManyCalls),
        (SMALL_BYTES, 64 * MIB, 32 * MIB, None),
    ],
)
def test_large_requests_of_open_calls_are_bounded_in_all_and_of_a_caller(
    size: int, held: int, own: int, error: type[RequestError] | None
):
    assert type(refused_for_its_size(size, held=held, own=own, limits=LIMITS)) is (error or type(None))
