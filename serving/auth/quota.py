"""Quotas per minute. Pure: the caller passes the time in integer nanoseconds, so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.errors import InvalidRequest, QuotaExceeded

MINUTE = 60_000_000_000  # nanoseconds
SECOND = 1_000_000_000  # nanoseconds
REFUSAL = 1_600  # characters tokenised in the time of a refused call: 0.7 ms, at 0.43 us a character
REFUNDED = 40_000  # characters a second; equal 25 refusals, or 17 ms of the event loop
BURST = 2  # seconds


@dataclass(slots=True)
class Charge:
    """An amount taken from a bucket.

    taken_at: time of the charge, in nanoseconds
    cost: time in which the bucket regains the amount, in nanoseconds; 0 after a refund
    free_at_before: when the debt would be paid without this charge and later ones
    open: whether it is still unknown if the request is served
    """

    taken_at: int
    cost: int
    free_at_before: int = 0
    open: bool = True

    def applied_to(self, free_at: int) -> int:
        """Return when a debt that ends at free_at would end with this charge added."""
        return max(free_at, self.taken_at) + self.cost

    def merged_with(self, later: Charge) -> Charge:
        """Return one charge with the effect of this one followed by a later one, for any debt before them."""
        return Charge(max(self.taken_at, later.taken_at - self.cost), self.cost + later.cost, open=False)


class Bucket:
    """A quota of one kind: an amount per minute, which may be taken at once after a minute without charges.

    It is stored as a debt of time. An amount costs the time in which the bucket regains it. The debt is at most a
    minute.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._free_at = 0  # nanoseconds; when the debt is paid
        self._charges: list[Charge] = []  # in order of time; settled neighbours are merged
        self._settled = 0  # charges settled since the last merge
        self._stale = False  # whether a charge was refunded since the last merge, so that _free_at is too late

    def wait(self, amount: int, now: int) -> int:
        """Return the nanoseconds until an amount can be taken, 0 for now; amount: at most per_minute."""
        assert amount <= self.per_minute, "Quota.take rejects larger amounts"
        if self._stale:
            self._merge()
        return max(max(self._free_at, now) + self._cost(amount) - MINUTE - now, 0)

    def take(self, amount: int, now: int) -> Charge:
        """Take an amount for which `wait` is 0. The charge must be settled later."""
        charge = Charge(now, self._cost(amount), free_at_before=self._free_at)
        self._charges.append(charge)
        self._free_at = charge.applied_to(self._free_at)
        return charge

    def settle(self, charge: Charge, *, served: bool) -> None:
        """Keep a charge if the request was served, else refund it."""
        charge.open = False
        if not served and self._charges[-1] is charge:  # cheap and common: a full queue refuses each call at once
            self._charges.pop()
            self._free_at = charge.free_at_before
            return
        self._settled += 1
        if not served:
            charge.cost, self._stale = 0, True
        if 2 * self._settled > len(self._charges):
            self._merge()

    def _merge(self) -> None:
        """Merge settled neighbours and recompute the debt. The list is then bounded by the open charges."""
        kept: list[Charge] = []
        for charge in self._charges:
            if kept and not (kept[-1].open or charge.open):
                kept[-1] = kept[-1].merged_with(charge)
            else:
                kept.append(charge)
        self._charges, self._settled, self._free_at, self._stale = kept, 0, 0, False
        for charge in kept:
            charge.free_at_before = self._free_at
            self._free_at = charge.applied_to(self._free_at)

    def _cost(self, amount: int) -> int:
        return amount * MINUTE // self.per_minute


class RefundLimit:
    """The limit of refunds of one key for refused work.

    A refusal also costs work: about REFUSAL characters for the call itself, and all characters of the request if its
    texts were tokenised before it was refused. A key regains REFUNDED characters a second, with a burst of BURST
    seconds. A client that is rarely refused therefore loses nothing. A client that is refused many times a second
    reaches its quota.
    """

    def __init__(self) -> None:
        self._free_at = 0  # nanoseconds; when all refunds so far are covered

    def take(self, characters: int, now: int) -> bool:
        """Return whether a refused request is refunded; characters: those that were tokenised.

        The last refund before the limit may exceed the remaining amount.
        """
        if self._free_at - now >= BURST * SECOND:
            return False
        self._free_at = max(self._free_at, now) + (REFUSAL + characters) * SECOND // REFUNDED
        return True


class Quota:
    """The quota of one key. A request is charged to both limits or to neither."""

    def __init__(self, requests_per_minute: int | None = None, characters_per_minute: int | None = None) -> None:
        """None means no limit."""
        self.limits = (requests_per_minute, characters_per_minute)
        self.refunds = RefundLimit()
        self._buckets = {
            name: Bucket(limit)
            for name, limit in (("requests", requests_per_minute), ("characters", characters_per_minute))
            if limit is not None
        }

    def take(self, characters: int, now: int, requests: int = 1) -> dict[str, Charge]:
        """Charge a request of so many characters. The charges must be settled later.

        requests: 0 for a later message of a call that is charged already

        Raises QuotaExceeded with the time to wait, or InvalidRequest if the request exceeds the quota of a minute.
        """
        amounts = {"requests": requests, "characters": characters}
        for name, bucket in self._buckets.items():
            if amounts[name] > bucket.per_minute:
                message = (
                    f"the request counts as {amounts[name]} {name}; the key may send {bucket.per_minute} in a minute"
                )
                raise InvalidRequest("request", f"{message}: send it in several")
        waits = {name: bucket.wait(amounts[name], now) for name, bucket in self._buckets.items()}
        name = max(waits, key=waits.__getitem__, default="")
        if name and waits[name]:
            seconds, limit = waits[name] / SECOND, self._buckets[name].per_minute
            raise QuotaExceeded(f"the key may send {limit} {name} in a minute; try again in {seconds:.3g} s", seconds)
        return {name: bucket.take(amounts[name], now) for name, bucket in self._buckets.items()}

    def settle(self, charges: dict[str, Charge], *, kept: bool) -> None:
        """Keep the charges of a request, or refund them."""
        for name, charge in charges.items():
            self._buckets[name].settle(charge, served=kept)
