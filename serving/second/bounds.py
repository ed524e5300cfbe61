"""How often the second translator is asked: the sentences of an hour, and none while it does not answer. Pure.

The caller passes the time in seconds of any steady clock.
"""

from __future__ import annotations

from collections import OrderedDict

HOUR = 3600.0  # seconds
MOST_CALLERS = 10_000  # callers with a debt that are remembered
FAILURES = 5  # failures in a row until the circuit opens
PAUSE = 10.0  # seconds until a server that fails is asked again


class HourlyBudget:
    """The sentences of an hour, of each caller or of all. They may be sent at once, and are regained over an hour.

    It is stored as a debt of time: a sentence costs the part of the hour in which it is regained.
    """

    def __init__(self, sentences: int | None) -> None:
        """sentences: in an hour; None is no bound."""
        self._cost = HOUR / sentences if sentences else 0.0
        self._free_at: OrderedDict[str, float] = OrderedDict()  # when the debt of each caller is paid

    def wait(self, caller: str, now: float) -> float:
        """Return the seconds until a sentence of a caller may be sent; 0 is now."""
        if not self._cost:
            return 0.0
        return max(max(self._free_at.get(caller, now), now) + self._cost - HOUR - now, 0.0)

    def take(self, caller: str, now: float) -> None:
        """Count a sentence that is sent."""
        if self._cost:
            self._free_at[caller] = max(self._free_at.pop(caller, now), now) + self._cost
            if len(self._free_at) > MOST_CALLERS:  # the one that was served the longest time ago has the least debt
                self._free_at.popitem(last=False)


class CircuitBreaker:
    """Whether a server is asked. After FAILURES failures in a row it is left alone for PAUSE seconds.

    Then one question is a probe, and the others wait for its outcome. A dead server therefore costs its time-out to one
    request in PAUSE seconds, and not to all.
    """

    def __init__(self) -> None:
        self._failures, self._open_until, self._probing = 0, 0.0, False

    @property
    def is_open(self) -> bool:
        """Whether the server failed so often that it is asked by probes alone."""
        return self._failures >= FAILURES

    def refuses(self, now: float) -> bool:
        """Return whether the server must not be asked now."""
        return self.is_open and (self._probing or now < self._open_until)

    def begun(self) -> None:
        """Note that a question is sent."""
        self._probing = self.is_open

    def answered(self, now: float) -> None:
        """Note that the server answered a question."""
        self._failures, self._probing = 0, False

    def failed(self, now: float) -> None:
        """Note that the server did not answer a question, or with an error."""
        self._failures, self._probing = self._failures + 1, False
        if self.is_open:
            self._open_until = now + PAUSE

    def dropped(self) -> None:
        """Note that the caller cancelled a question, whose outcome is not known."""
        self._probing = False
