"""Whether and when a failed call is tried again. Plain numbers: no clock, no socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.rpc import code_pb2

from lingon.errors import ServerError, SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Exponential backoff with jitter; the n-th pause is drawn from the upper half of first_pause * 2^(n-1).

    retries: after the first try; only UNAVAILABLE is tried again, translating being safe to repeat. 5 take 1.5 to 3
        seconds, about as long as a small model takes to be there again
    first_pause, longest_pause: in seconds; where the server names a pause (RetryInfo), it is kept at least
    wait_when_full: a full queue and a used-up quota are waited for too, as often as the deadline allows; for those who
        send in bulk
    wait_when_away: a server that has answered this client before is waited for likewise where it is UNAVAILABLE
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
        """Seconds to wait before the next try, or None where there is none.

        failures: tries that failed so far, error the last of them
        remaining: seconds to the deadline; no try begins after it
        random: a number from 0 to 1
        answered: whether the server has ever answered
        """
        full = self.wait_when_full and error.reason in ("QUEUE_FULL", "QUOTA_EXCEEDED")
        away = error.code == code_pb2.UNAVAILABLE and (failures <= self.retries or (self.wait_when_away and answered))
        if not (full or away):
            return None
        drawn = min(self.first_pause * 2.0 ** min(failures - 1, 32), self.longest_pause) * (1 + random()) / 2
        pause = max(drawn, error.retry_after or 0.0)
        return pause if pause < remaining else None
