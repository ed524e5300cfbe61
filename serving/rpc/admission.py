"""Admission of calls: which call waits, which one gives way, which one is refused, and with which error.

Each function is one row of the table and works on plain numbers, without a clock, a socket or a model. A caller is an
API key, a certificate or an address.

| limit | a call waits | a call gives way | a call is refused | error |
|---|---|---|---|---|
| gate | until it has ended, if it arrived before the drain | no | it arrives later | Draining |
| deadline | no | no | it has passed, or a quarter of it would pass unread | NotBegun, QueueFull |
| queues of the engines | no | no | no engine would take it, or not in time | QueueFull, WontFinish |
| reading | for a place, in fair order | the newest of the caller with the most | no caller has more | QueueFull |
| open calls | no | the newest of the caller with the most | no caller has more | TooManyCalls |
| slow requests | for 0.1 s, in its place | no | it finds no room, or is not whole in time | TooManyCalls, Expired |
| bytes of a request | no | no | it is too large, or open calls hold too much | InvalidRequest, TooManyCalls |

gRPC's own limit of pending requests comes before all of them. The number of texts (`rpc.service`), the size of each
text (`translation.planner`) and the queue of the engine (`engine.queue`) come after them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from enum import Enum, auto

from lingon.errors import InvalidRequest, NotBegun, QueueFull, RequestError, TooManyCalls, WontFinish
from lingon.serving.engine.policy import giving_way
from lingon.serving.engine.scheduler import Forecast

PLACES = 16
"""Calls that are read at once: enough for an iteration of the event loop, and few enough that each is read soon."""

PLACES_OF_CALLER = 12
"""Those of one caller at most: a request that does not end keeps its place for 0.1 s, and other callers are read
meanwhile. More than half of all, so that of two callers one always finds a place.
"""

MARGIN = 1.2
"""What a forecast is multiplied with: a call that passes here should pass the exact check after it was read too."""

READING_SHARE = 0.25
"""The part of the time until its deadline that a call may wait to be read; the rest is for its work."""

LATE = "the deadline passed before the call began"
SMALL_BYTES = 65_536  # bytes; a request up to this size is not counted in held_bytes, since max_calls bounds it
LOOKS_TO_LEAVE = 3  # looks at a request that is not whole, at most 25 ms apart, until its place is free for another one
LOOKS_TO_REFUSE = 5  # such looks until it is refused, if the requests that arrive slowly are too many


@dataclass(frozen=True, kw_only=True, slots=True)
class CallLimits:
    """What the calls of one kind may hold.

    kind: name of the kind, for metrics
    max_calls: calls at once
    max_seconds: duration of a call; None for no limit
    receive_seconds: time until a request has arrived whole
    request_bytes: size of one request
    slow_calls: calls at once whose request arrives slowly; a caller has at most a quarter of them
    held_bytes: bytes of the requests above SMALL_BYTES of all calls; a caller has at most half of them
    """

    kind: str
    max_calls: int
    max_seconds: float | None
    receive_seconds: float
    request_bytes: int
    slow_calls: int = 32
    held_bytes: int = 2**26


def that_gives_way(calls: Mapping[str, Sized], caller: str) -> str | None:
    """Return the caller of which a call ends, so that there is room for one more of `caller`; None if there is none.

    It is the one with the most, if it keeps more than this caller would have otherwise: two callers with as many never
    take turns in ending each other's calls.
    """
    return giving_way(calls, lambda each: len(calls[each]), len(calls.get(caller, ())) + 1)


def may_be_read(free: int, own: int) -> bool:
    """Whether a call may be read now; free: places; own: places that its caller has."""
    return free > 0 and own < PLACES_OF_CALLER


def refused_on_arrival(
    *, left: float | None, wait: float, patience: float, forecast: Forecast | None
) -> RequestError | None:
    """Return the error of a call that would not be done in time, before anything of it is read; None if it may be.

    left: seconds until its deadline, None without one
    wait: seconds until it is read
    patience: seconds that it may wait until its work begins
    forecast: of the engines; None for a call without work for an engine
    """
    if left is not None and left <= 0:
        return NotBegun(LATE)
    if left is not None and wait > READING_SHARE * left:
        return QueueFull("too many calls wait to be read; try again")
    if forecast is None:
        return None
    if forecast.done == math.inf:
        return QueueFull("the queue is full; try again")
    done, begun = wait + MARGIN * forecast.done, wait + forecast.begun
    if left is not None and done > left:
        return WontFinish(f"the work would take about {done:.1f} s, which is longer than the deadline allows")
    if begun > patience:
        return QueueFull(
            f"the work would begin in about {begun:.1f} s, and a call without a deadline of its client waits "
            f"{patience:g} s at most; try again"
        )
    return None


class Reading(Enum):
    """What is done with a call whose request is not whole."""

    WAIT = auto()  # nothing
    SLOW = auto()  # from now on it is one of the slow ones, and its place is free for another call
    REFUSE = auto()  # there are too many slow ones
    EXPIRE = auto()  # its time is over


def while_arriving(
    looks: int, seconds: float, *, slow: bool, all_slow: int, own_slow: int, limits: CallLimits
) -> Reading:
    """Return what is done with a call whose request is not whole.

    gRPC buffers what a request that is read sends, up to its whole size. The calls that have left their places are as
    few as the slow ones may be, because they are the slow ones.

    looks: at this request so far; seconds: since the call was opened
    slow: whether it is a slow one; all_slow, own_slow: slow ones of all callers, of this one
    """
    if slow:
        return Reading.EXPIRE if seconds > limits.receive_seconds else Reading.WAIT
    if looks < LOOKS_TO_LEAVE:
        return Reading.WAIT
    if all_slow < limits.slow_calls and 4 * own_slow < limits.slow_calls:
        return Reading.SLOW
    return Reading.REFUSE if looks >= LOOKS_TO_REFUSE else Reading.WAIT


def refused_for_its_size(size: int, *, held: int, own: int, limits: CallLimits) -> RequestError | None:
    """Return the error of a request with so many bytes, now that it is whole; None if it is taken.

    held: bytes of the large requests of open calls; own: those of its caller
    """
    if size > limits.request_bytes:
        return InvalidRequest("request", f"the request must have at most {limits.request_bytes} bytes, got {size}")
    if size > SMALL_BYTES and (held + size > limits.held_bytes or own + size > limits.held_bytes // 2):
        return TooManyCalls(f"the requests of open calls hold {held} bytes; try again")
    return None
