"""How often the second translator is asked: the sentences of an hour, and none while it fails or its answers do. Pure.

The caller passes the time in seconds of any steady clock.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

HOUR = 3600.0  # seconds
ROUNDING = 1e-3  # seconds; sums of times are less exact than this
MOST_CALLERS = 10_000  # that are remembered
FAILURES = 5  # failures in a row until the circuit opens
PAUSE = 10.0  # seconds until a server that fails is asked again
REJECTIONS = 20  # answers for a caller in a row that did not pass the checks, until the circuit of the caller opens
REJECTED_PAUSE = 60.0  # seconds until a server is asked again whose answers did not pass
UNKNOWN = 2  # rejections that a caller counts as until the first answer that passes: trust is earned


class HourlyBudget:
    """The sentences of an hour, of each caller or of all. They may be sent at once, and are regained over an hour.

    It is stored as a debt of time: a sentence costs the part of the hour in which it is regained.
    """

    def __init__(self, sentences: Callable[[str], int | None]) -> None:
        """sentences: returns those of a caller in an hour; None is no bound."""
        self._sentences = sentences
        self._free_at: OrderedDict[str, float] = OrderedDict()  # when the debt of each caller is paid

    def wait(self, caller: str, now: float) -> float:
        """Return the seconds until a sentence of a caller may be sent; 0 is now."""
        debt = max(self._free_at.get(caller, now) - now, 0.0)
        wait = debt + self._cost(caller) - HOUR
        return wait if wait > ROUNDING else 0.0

    def take(self, caller: str, now: float) -> None:
        """Count a sentence that is sent."""
        if cost := self._cost(caller):
            self._free_at[caller] = max(self._free_at.pop(caller, now), now) + cost
            if len(self._free_at) > MOST_CALLERS:  # the one that was served the longest time ago has the least debt
                self._free_at.popitem(last=False)

    def _cost(self, caller: str) -> float:
        """Return the seconds of the hour that a sentence takes; 0 without a bound."""
        sentences = self._sentences(caller)
        if sentences is None:
            return 0.0
        return HOUR / sentences if sentences else math.inf


class CircuitBreaker:
    """Whether a server is asked. After some failures in a row it is left alone for a while.

    Then one question is a probe, and the others wait for its outcome. A dead server therefore costs its time-out to one
    request in each pause, and not to all.
    """

    def __init__(self, most: int = FAILURES, pause: float = PAUSE) -> None:
        """most: failures in a row until it is left alone; pause: seconds."""
        self._most, self._pause = most, pause
        self._open_until, self._probing = 0.0, False
        self.failures, self.has_answered = 0, False  # failures in a row up to now; whether there was ever an answer

    @property
    def is_open(self) -> bool:
        """Whether the server failed so often that it is asked by probes alone."""
        return self.failures >= self._most

    def refuses(self, now: float) -> bool:
        """Return whether the server must not be asked now."""
        return self.is_open and (self._probing or now < self._open_until)

    def begun(self) -> None:
        """Note that a question is sent."""
        self._probing = self.is_open

    def answered(self, now: float) -> None:
        """Note that the server answered a question."""
        self.failures, self._probing, self.has_answered = 0, False, True

    def failed(self, now: float) -> None:
        """Note that the server did not answer a question, or with an error."""
        self.failures, self._probing = self.failures + 1, False
        if self.is_open:
            self._open_until = now + self._pause

    def dropped(self) -> None:
        """Note that a question ended without the outcome that this counts, because its caller left."""
        self._probing = False


class RejectionBreakers:
    """Whether a server is asked for a caller: not while all its last answers for this caller were rejected.

    A server that lies costs time and money, and each of its answers has a small chance to pass the checks. Each caller
    has its own circuit, because nobody's texts may keep the answers from others.
    """

    def __init__(self) -> None:
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()

    def in_a_row(self, caller: str) -> int:
        """Return how many of the last answers for a caller were rejected in a row, at least UNKNOWN before the first
        one that passes.
        """
        breaker = self.of(caller)
        return breaker.failures if breaker.has_answered else max(breaker.failures, UNKNOWN)

    def of(self, caller: str) -> CircuitBreaker:
        """Return the circuit of a caller."""
        found = self._breakers.pop(caller, None) or CircuitBreaker(REJECTIONS, REJECTED_PAUSE)
        self._breakers[caller] = found
        if len(self._breakers) > MOST_CALLERS:
            self._breakers.popitem(last=False)  # the one that was asked for the longest time ago
        return found
