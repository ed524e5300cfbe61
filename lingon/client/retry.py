"""Decides whether and when a failed call is repeated. Plain numbers: no clock, no socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.rpc import code_pb2

from lingon.errors import ServerError, SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Exponential backoff with jitter; the n-th pause is drawn from the upper half of first_pause * 2^(n-1).

    retries: tries after the first one; only UNAVAILABLE is repeated, which is safe because translating changes nothing.
        5 retries take 1.5 to 3 seconds, about as long as a server of a small model needs to restart
    first_pause, longest_pause: seconds; if the server names a pause (RetryInfo), the pause is at least as long
    wait_when_full: also repeat while the server is full or the quota used up, as often as the deadline allows; meant
        for clients that send in bulk
    wait_when_away: also repeat UNAVAILABLE until the deadline if the server has answered this client before
    """

    retries: int = 5
    first_pause: float = 0.1
    longest_pause: float = 5.0
    wait_when_full: bool = False
    wait_when_away: bool = False

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise SettingsError(f"retries must be at least 0, got {self.retries}")

    def pause(
        self,
        failures: int,
        error: ServerError,
        remaining: float,
        random: Callable[[], float],
        answered: bool = False,
    ) -> float | None:
        """Seconds to wait before the next try, or None if the call is not repeated.

        failures: tries that have failed so far; error: the error of the last one
        remaining: seconds to the deadline; no try begins after it
        random: returns a number from 0 to 1
        answered: whether the server has ever answered
        """
        full = self.wait_when_full and error.reason in ("QUEUE_FULL", "TOO_MANY_CALLS", "QUOTA_EXCEEDED")
        away = error.code == code_pb2.UNAVAILABLE and (failures <= self.retries or (self.wait_when_away and answered))
        if not (full or away):
            return None
        drawn = min(self.first_pause * 2.0 ** min(failures - 1, 32), self.longest_pause) * (1 + random()) / 2
        pause = max(drawn, error.retry_after or 0.0)
        return pause if pause < remaining else None
