"""Refuses calls before anything of them is read, if the engines would refuse them anyway.

Above capacity most calls are refused, and what the refusals take is missing for the translations: a refusal here takes
a fifth of the work of one that comes after the request was read and its texts were planned (early load shedding; Zhou
et al.: Overload Control for Scaling WeChat Microservices, 2018, section 4).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import NamedTuple, Protocol

from lingon.errors import NotBegun, QueueFull, RequestError, WontFinish
from lingon.serving.auth.callers import find_caller
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.scheduler import AT_ONCE, Forecast
from lingon.serving.models.inflight import AdmissionGate, Arrived
from lingon.serving.rpc.arrival.later import Arrival
from lingon.serving.rpc.calls import (
    LATE,
    SERVICE,
    Context,
    Ending,
    Metadata,
    abort,
    ending_of,
    patience_of,
    request_id_of,
    time_left,
)
from lingon.status import to_status

METHODS = frozenset(SERVICE + name for name in ("Translate", "TranslateStream", "Score"))
"""Paths of the methods that have work for an engine."""

READ_IN_ORDER = METHODS | {SERVICE + "DetectLanguages"}
"""Paths of the methods whose calls wait for a place to be read; DetectLanguages works on the event loop alone."""

FRESH_SECONDS = 0.005  # seconds for which a forecast is used again: a queue hardly changes in them
MAX_FORECASTS = 1000  # callers whose forecasts are kept
MAX_ENDINGS = 200  # different errors whose statuses are kept
MARGIN = 1.2
"""What a forecast is multiplied with: a call that passes here should pass the exact check after it was read too."""

READING_SHARE = 0.25
"""The part of the time until its deadline that a call may wait to be read; the rest is for its work."""


class Counts(Protocol):
    """Counts, logs and traces refusals."""

    def refused_early(
        self, method: str, error: RequestError, metadata: Metadata, request_id: str, caller: str, seconds: float
    ) -> None:
        """Count, log and trace a call of TranslationService that ends so many seconds after it arrived, unread."""


class _KnownForecast(NamedTuple):
    """The forecast for one caller; until: on the clock of the LoadShedder."""

    forecast: Forecast
    until: float


class LoadShedder:
    """Decides from the queues whether a call is refused before it is read. Belongs to the event loop."""

    def __init__(
        self,
        gate: AdmissionGate,
        engines: Callable[[], Sequence[Engine]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """engines: returns those of all served models; a call may be for any of them."""
        self._gate, self._engines, self._clock = gate, engines, clock
        self._forecasts: dict[str, _KnownForecast] = {}

    def arrive(self) -> Arrived:
        """See `lingon.serving.models.inflight.AdmissionGate`."""
        return self._gate.arrive()

    def check(
        self,
        caller: str,
        left: float | None,
        wait: float = 0.0,
        *,
        patience: float = math.inf,
        new: bool = True,
        queued: bool = True,
    ) -> None:
        """Raise the error of a call that no engine would take.

        left: seconds until its deadline, None without one
        wait: seconds until it is read
        patience: seconds that it may wait until its work begins
        new: whether it arrives now, so that it is refused while the server drains
        queued: whether it has work for an engine
        """
        if new:
            self._gate.check()
        if left is not None and left <= 0:
            raise NotBegun(LATE)
        if left is not None and wait > READING_SHARE * left:
            raise QueueFull("too many calls wait to be read; try again")
        if not queued:
            return
        forecast = self._forecast(caller)
        if forecast.done == math.inf:
            raise QueueFull("the queue is full; try again")
        done, begun = wait + MARGIN * forecast.done, wait + forecast.begun
        if left is not None and done > left:
            raise WontFinish(f"the work would take about {done:.1f} s, which is longer than the deadline allows")
        if begun > patience:
            raise QueueFull(
                f"the work would begin in about {begun:.1f} s, and a call without a deadline of its client waits "
                f"{patience:g} s at most; try again"
            )

    def _forecast(self, caller: str) -> Forecast:
        now, known = self._clock(), self._forecasts.get(caller)
        if known is None or known.until < now:
            forecast = min((engine.forecast(caller) for engine in self._engines()), default=AT_ONCE)
            if len(self._forecasts) >= MAX_FORECASTS:
                self._forecasts.clear()
            known = self._forecasts[caller] = _KnownForecast(forecast, now + FRESH_SECONDS)
        return known.forecast


class EarlyRefusal:
    """Ends the calls that a LoadShedder refuses, counted and logged as if their handlers had refused them."""

    def __init__(self, shedder: LoadShedder, counts: Counts, check_key: Callable[[Metadata], None] | None) -> None:
        """check_key: checks the API key in the metadata of a call; raises RequestError. None without API keys."""
        self._shedder, self._counts, self._check_key = shedder, counts, check_key
        self._endings: dict[tuple[type[RequestError], str], Ending] = {}

    def caller(self, path: str, context: Context) -> str | None:
        """Return who calls; None if the call needs no place to be read, or lacks a valid key."""
        if path not in READ_IN_ORDER:
            return None
        if self._check_key is None:
            return find_caller(context)
        return copy_context().run(self._caller_with_key, context)  # the key of a call is a context variable

    def _caller_with_key(self, context: Context) -> str | None:
        assert self._check_key is not None
        try:
            self._check_key(context.invocation_metadata() or ())
        except RequestError:
            return None
        return find_caller(context)

    def of_load(
        self, path: str, context: Context, caller: str, wait: float = 0.0, *, new: bool = True
    ) -> RequestError | None:
        """Return the error of a call that no engine would take; None if one might.

        wait: seconds until the call is read; new: see `LoadShedder.check`
        """
        try:
            queued = path in METHODS
            patience = patience_of(context) if queued else math.inf
            self._shedder.check(caller, time_left(context), wait, patience=patience, new=new, queued=queued)
        except RequestError as error:
            return error.with_traceback(None)  # its frames would keep the call in a cycle
        return None

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        """Return what ends a call with an error; it raises what gRPC takes for the end of the call."""
        return abort(arrival.context, self._ending_with(error), self.count(arrival, error))

    def forget(self, arrival: Arrival) -> None:
        """Count a call whose deadline has passed: its client has ended it, and gRPC frees it without a status."""
        self.count(arrival, NotBegun(LATE))

    def count(self, arrival: Arrival, error: RequestError) -> str:
        """Count, log and trace a refused call; returns its request id."""
        metadata = arrival.context.invocation_metadata() or ()
        request_id, seconds = request_id_of(metadata), time.monotonic() - arrival.at
        method = arrival.path.removeprefix(SERVICE)
        self._counts.refused_early(method, error, metadata, request_id, arrival.caller, seconds)
        return request_id

    def _ending_with(self, error: RequestError) -> Ending:
        """Return the ending with an error that has nothing but a kind and a message; the same ones are made often."""
        key = type(error), str(error)
        if key not in self._endings:
            if len(self._endings) >= MAX_ENDINGS:
                self._endings.clear()
            self._endings[key] = ending_of(to_status(error))
        return self._endings[key]
