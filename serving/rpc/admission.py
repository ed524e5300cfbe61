"""Admission of calls: which call waits, is evicted or is refused, and with which error.

Each function is one row of the table. It works on plain numbers, without a clock, a socket or a model. A caller is an
API key, a certificate or an address.

| limit | a call waits | a call is evicted | a call is refused | error |
|---|---|---|---|---|
| gate | until it has ended, if it arrived before the drain | no | it arrives later | Draining |
| deadline | no | no | it has passed, or a quarter of it would pass unread | NotBegun, QueueFull |
| queues of the engines | no | no | no engine would take it, or not in time | QueueFull, WontFinish |
| reading | for a slot, in fair order | the newest of the caller with the most | no caller has more | QueueFull |
| open calls | no | the newest of the caller with the most | no caller has more | TooManyCalls |
| slow requests | for 0.1 s, in its slot | no | it exceeds the bound, or is late | TooManyCalls, Expired |
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
from lingon.serving.engine.policy import key_to_evict
from lingon.serving.engine.scheduler import Forecast

READ_SLOTS = 16
"""Calls that are read at once: enough for an iteration of the event loop, and few enough that each is read soon."""

SLOTS_OF_CALLER = 12
"""The slots of one caller at most. A request that does not end holds its slot for 0.1 s, and other callers are read
meanwhile. It is more than half of all, so that one of two callers always finds a slot.
"""

MARGIN = 1.2
"""Factor of a forecast. A call that is admitted here should also pass the exact check after it was read."""

READING_SHARE = 0.25
"""Part of the time until its deadline that a call may wait to be read. The rest is for its work."""

LATE = "the deadline passed before the call began"
SMALL_BYTES = 65_536  # bytes; smaller requests are not counted in held_bytes, because max_calls bounds them
CHECKS_TO_LEAVE = 3  # checks of an incomplete request, at most 25 ms apart, until its slot is freed
CHECKS_TO_REFUSE = 5  # checks of an incomplete request until it is refused, if too many requests are slow


@dataclass(frozen=True, kw_only=True, slots=True)
class CallLimits:
    """The bounds of the calls of one kind.

    kind: name of the kind, for metrics
    max_calls: calls at once
    max_seconds: duration of a call, or None for no limit
    receive_seconds: time until a request has arrived whole
    request_bytes: size of one request
    slow_calls: calls at once whose request arrives slowly; a caller has at most a quarter of them
    held_bytes: bytes of the requests above SMALL_BYTES of all calls; a caller has at most half of them
    message_seconds: time until the next request of a stream has arrived, or None for no limit
    """

    kind: str
    max_calls: int
    max_seconds: float | None
    receive_seconds: float
    request_bytes: int
    slow_calls: int = 32
    held_bytes: int = 2**26
    message_seconds: float | None = None


def caller_to_evict(calls: Mapping[str, Sized], caller: str) -> str | None:
    """Return the caller whose newest call is evicted for a call of `caller`, or None if the new call is refused.

    It is the caller with the most calls, if it keeps more than `caller` would have otherwise. Two callers with equal
    numbers therefore never evict each other's calls.
    """
    return key_to_evict(calls, lambda each: len(calls[each]), len(calls.get(caller, ())) + 1)


def may_be_read(free: int, own: int) -> bool:
    """Return whether a call may be read now; free: free slots; own: slots of its caller."""
    return free > 0 and own < SLOTS_OF_CALLER


def refused_on_arrival(
    *, left: float | None, wait: float, patience: float, forecast: Forecast | None
) -> RequestError | None:
    """Return the error of a call that would end late, before anything of it is read, or None if it may be read.

    left: seconds until its deadline, or None without one
    wait: seconds until it is read
    patience: seconds that it may wait until its work begins
    forecast: forecast of the engines, or None for a call without work for an engine
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
    """The treatment of a call with an incomplete request."""

    WAIT = auto()  # no change
    SLOW = auto()  # counts as slow from now on, and frees its slot for another call
    REFUSE = auto()  # too many calls are slow
    EXPIRE = auto()  # its time is over


def while_arriving(
    checks: int, seconds: float, *, slow: bool, all_slow: int, own_slow: int, limits: CallLimits
) -> Reading:
    """Return the treatment of a call with an incomplete request.

    gRPC buffers what a request sends while it is read, up to its whole size. Only slow calls leave their slots, so that
    the bound of slow calls bounds this memory.

    checks: checks of this request so far; seconds: time since the call was opened
    slow: whether it counts as slow; all_slow, own_slow: slow calls of all callers, of this one
    """
    if slow:
        return Reading.EXPIRE if seconds > limits.receive_seconds else Reading.WAIT
    if checks < CHECKS_TO_LEAVE:
        return Reading.WAIT
    if all_slow < limits.slow_calls and 4 * own_slow < limits.slow_calls:
        return Reading.SLOW
    return Reading.REFUSE if checks >= CHECKS_TO_REFUSE else Reading.WAIT


def refused_for_its_size(size: int, *, held: int, own: int, limits: CallLimits) -> RequestError | None:
    """Return the error of a complete request of so many bytes, or None if it is accepted.

    held: bytes of the large requests of open calls; own: those of its caller
    """
    if size > limits.request_bytes:
        return InvalidRequest("request", f"the request must have at most {limits.request_bytes} bytes, got {size}")
    if size > SMALL_BYTES and (held + size > limits.held_bytes or own + size > limits.held_bytes // 2):
        return TooManyCalls(f"the requests of open calls hold {held} bytes; try again")
    return None
