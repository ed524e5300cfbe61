"""What a key may have in a minute. Plain numbers: the clock is told, in nanoseconds, so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.errors import InvalidRequest, QuotaExceeded

MINUTE = 60_000_000_000  # nanoseconds
SECOND = 1_000_000_000


@dataclass(slots=True)
class Charge:
    """What was taken of a bucket, and when; both in nanoseconds."""

    taken: int
    cost: int
    before: int = 0  # when there was no debt any more without it and all later ones
    under_way: bool = True

    def after(self, paid: int) -> int:
        """When there is no debt any more, where without it that was `paid`."""
        return max(paid, self.taken) + self.cost

    def then(self, later: Charge) -> Charge:
        """The charge that does to any debt what these two do, one after the other."""
        return Charge(max(self.taken, later.taken - self.cost), self.cost + later.cost, under_way=False)


class Bucket:
    """So many a minute; a minute's worth at once where nothing was taken for a minute.

    It is a debt in time: to take some costs the time in which as many come back, and nobody may owe more than a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._paid = 0  # when there is no debt any more
        self._charges: list[Charge] = []  # all there ever were, in their order, neighbours that are settled in one
        self._settled = 0  # charges, since neighbours were put together
        self._stale = False  # whether some were not served since then

    def wait(self, amount: int, now: int) -> int:
        """Nanoseconds until so many can be taken; 0 is at once. amount: per_minute at most, or they never can."""
        assert amount <= self.per_minute, "who asks has looked"
        if self._stale:
            self._put_together()
        return max(max(self._paid, now) + self._cost(amount) - MINUTE - now, 0)

    def take(self, amount: int, now: int) -> Charge:
        """Take so many, which can be; to be settled."""
        charge = Charge(now, self._cost(amount), before=self._paid)
        self._charges.append(charge)
        self._paid = charge.after(self._paid)
        return charge

    def settle(self, charge: Charge, *, served: bool) -> None:
        """What was taken was used; or it was not, and everything is as if it never had been taken."""
        charge.under_way = False
        if not served and self._charges[-1] is charge:  # as when a queue is full: many come, and each has its answer
            self._charges.pop()
            self._paid = charge.before
            return
        self._settled += 1
        if not served:
            charge.cost, self._stale = 0, True
        if 2 * self._settled > len(self._charges):
            self._put_together()

    def _put_together(self) -> None:
        """Have no more charges than are under way, and those between them; and the debt anew."""
        kept: list[Charge] = []
        for charge in self._charges:
            if kept and not (kept[-1].under_way or charge.under_way):
                kept[-1] = kept[-1].then(charge)
            else:
                kept.append(charge)
        self._charges, self._settled, self._paid, self._stale = kept, 0, 0, False
        for charge in kept:
            charge.before = self._paid
            self._paid = charge.after(self._paid)

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

    def take(self, characters: int, now: int) -> dict[str, Charge]:
        """Take one request of so many characters; to be settled.

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
        return {name: bucket.take(amounts[name], now) for name, bucket in self._buckets.items()}

    def settle(self, charges: dict[str, Charge], *, served: bool) -> None:
        """A request is over; served: or it was not, for no fault of its caller."""
        for name, charge in charges.items():
            self._buckets[name].settle(charge, served=served)
