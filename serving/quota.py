"""What a key may have in a minute. Plain numbers: the clock is told, in nanoseconds, so that sums are exact."""

from __future__ import annotations

from lingon.errors import InvalidRequest, QuotaExceeded

MINUTE = 60_000_000_000  # nanoseconds
SECOND = 1_000_000_000


class Bucket:
    """So many a minute; a minute's worth at once where nothing was taken for a minute.

    It is a debt in time: to take some costs the time in which as many come back, and nobody may owe more than a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._paid = 0  # when there is no debt any more

    def wait(self, amount: int, now: int) -> int:
        """Nanoseconds until so many can be taken; 0 is at once. amount: per_minute at most, or they never can."""
        assert amount <= self.per_minute, "who asks has looked"
        return max(max(self._paid, now) + self._cost(amount) - MINUTE - now, 0)

    def take(self, amount: int, now: int) -> None:
        """Take so many, which can be."""
        self._paid = max(self._paid, now) + self._cost(amount)

    def give_back(self, amount: int, taken: int, now: int) -> None:
        """What was taken at that time is not needed; of it, what the time since then has paid is not paid twice."""
        self._paid -= max(self._cost(amount) - (now - taken), 0)

    def _cost(self, amount: int) -> int:
        return amount * MINUTE // self.per_minute


class Quota:
    """Of one key: requests and characters, taken together or not at all."""

    def __init__(self, requests_per_minute: int | None = None, characters_per_minute: int | None = None) -> None:
        """Without a number there is no bound."""
        self.limits = (requests_per_minute, characters_per_minute)
        self._buckets = {
            name: Bucket(most)
            for name, most in (("requests", requests_per_minute), ("characters", characters_per_minute))
            if most is not None
        }

    def take(self, characters: int, now: int) -> None:
        """Take one request of so many characters.

        Raises QuotaExceeded, with the time after which it can be had if nothing else is taken; InvalidRequest where it
        never can.
        """
        amounts = {"requests": 1, "characters": characters}
        for name, bucket in self._buckets.items():
            if amounts[name] > bucket.per_minute:
                message = f"the request has {amounts[name]} {name}; the key may send {bucket.per_minute} in a minute"
                raise InvalidRequest("request", f"{message}: send it in several")
        waits = {name: bucket.wait(amounts[name], now) for name, bucket in self._buckets.items()}
        name = max(waits, key=waits.__getitem__, default="")
        if name and waits[name]:
            seconds, most = waits[name] / SECOND, self._buckets[name].per_minute
            raise QuotaExceeded(f"the key may send {most} {name} in a minute; try again in {seconds:.3g} s", seconds)
        for name, bucket in self._buckets.items():
            bucket.take(amounts[name], now)

    def give_back(self, characters: int, taken: int, now: int) -> None:
        """A request that was taken at that time was not served, for no fault of its caller."""
        amounts = {"requests": 1, "characters": characters}
        for name, bucket in self._buckets.items():
            bucket.give_back(amounts[name], taken, now)
