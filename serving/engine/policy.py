"""How fast an engine works, and so when work that comes now would be done. Pure: the time is told.

Costs are source tokens times rows.
"""

from __future__ import annotations

WINDOW = 0.2  # seconds of a measurement of the rate
NEWEST = 0.3  # weight of the newest measurement of the rate
JOB = 0.05  # weight of the newest job in how long a job runs


class Pace:
    """Learns from what an engine does while it has enough to do; before that it predicts nothing."""

    def __init__(self) -> None:
        self._rate: float | None = None  # cost taken in a second
        self._run: float | None = None  # seconds from a job's beginning to its end, for each source token
        self._since: float | None = None  # from when on there was always somebody waiting
        self._cost = 0.0  # taken since then

    def took(self, cost: float, now: float, *, more: bool) -> None:
        """Work of this cost was begun; more: whether more still waits."""
        self._cost += cost
        if not more:  # from here on the engine may be slow for want of work
            self._since, self._cost = None, 0.0
        elif self._since is None:
            self._since, self._cost = now, 0.0
        elif now - self._since >= WINDOW:
            rate = self._cost / (now - self._since)
            self._rate = rate if self._rate is None else self._rate + NEWEST * (rate - self._rate)
            self._since, self._cost = now, 0.0

    def ran(self, source_tokens: int, seconds: float) -> None:
        """A job was done, so long after it was begun."""
        run = seconds / source_tokens
        self._run = run if self._run is None else self._run + JOB * (run - self._run)

    def seconds_to(self, ahead: float, source_tokens: int) -> float:
        """Until a job of so many tokens is done that has work of cost `ahead` before it."""
        waits = ahead / self._rate if self._rate else 0.0
        return waits + (self._run or 0.0) * source_tokens
