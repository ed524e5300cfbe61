"""Quotas as plain numbers: the amount of a minute, the time to wait, and refunds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import InvalidRequest, QuotaExceeded
from lingon.serving.auth.quota import BURST, MINUTE, REFUNDED, REFUSAL, SECOND, Bucket, Quota, RefundLimit

PER_MINUTE = st.integers(1, 10_000)
MOMENTS = st.lists(st.tuples(st.integers(0, 90 * SECOND), st.integers(0, 12_000)), min_size=1, max_size=40)


@given(PER_MINUTE, MOMENTS)
def test_no_period_gets_more_than_the_quota_of_a_minute_plus_what_it_regains(per_minute, requested):
    bucket, now, taken = Bucket(per_minute), 0, []
    for pause, amount in requested:
        now += pause
        if amount <= per_minute and not bucket.wait(amount, now):
            bucket.take(amount, now)
            taken.append((now, amount))
    for first in range(len(taken)):
        total = 0
        for moment, amount in taken[first:]:
            total += amount
            lasted = moment - taken[first][0]
            # each cost is rounded down by less than a nanosecond
            assert total * MINUTE <= per_minute * (MINUTE + lasted + len(taken))


@given(PER_MINUTE, MOMENTS)
def test_the_wait_is_exact_to_the_nanosecond(per_minute, requested):
    bucket, now = Bucket(per_minute), 0
    for pause, amount in requested:
        now += pause
        if amount > per_minute:
            continue
        wait = bucket.wait(amount, now)
        if wait:
            assert bucket.wait(amount, now + wait - 1) == 1
            assert bucket.wait(amount, now + wait) == 0
        else:
            bucket.take(amount, now)


@given(PER_MINUTE)
def test_the_quota_of_a_minute_can_be_used_at_once(per_minute):
    bucket = Bucket(per_minute)
    assert bucket.wait(per_minute, 0) == 0
    bucket.take(per_minute, 0)
    assert bucket.wait(1, 0) == MINUTE // per_minute
    assert bucket.wait(per_minute, MINUTE) == 0


@given(PER_MINUTE, PER_MINUTE, MOMENTS)
def test_requests_and_characters_are_charged_together_or_not_at_all(requests, characters, requested):
    quota = Quota(requests, characters)
    alone = {"requests": Bucket(requests), "characters": Bucket(characters)}  # they see accepted requests only
    now = 0
    for pause, amount in requested:
        now += pause
        if amount > characters:
            with pytest.raises(InvalidRequest):
                quota.take(amount, now)
            continue
        waits = alone["requests"].wait(1, now), alone["characters"].wait(amount, now)
        if max(waits):
            with pytest.raises(QuotaExceeded) as raised:
                quota.take(amount, now)
            assert raised.value.retry_after == max(waits) / SECOND
        else:
            quota.take(amount, now)
            alone["requests"].take(1, now)
            alone["characters"].take(amount, now)


@given(PER_MINUTE, MOMENTS, st.lists(st.tuples(st.integers(0, 39), st.booleans()), max_size=40))
def test_a_refund_has_the_effect_of_no_charge_whenever_it_comes(per_minute, requested, ends):
    """ends: after each take, an open charge to settle, and whether it was served"""
    bucket, now, taken, under_way = Bucket(per_minute), 0, [], []
    for (pause, amount), (which, served) in itertools.zip_longest(requested, ends, fillvalue=(0, False)):
        now += pause
        if amount <= per_minute and not bucket.wait(amount, now):
            under_way.append((bucket.take(amount, now), (now, amount)))
            taken.append((now, amount))
        if under_way:
            charge, entry = under_way.pop(which % len(under_way))
            bucket.settle(charge, served=served)
            if not served:
                taken.remove(entry)
        never = Bucket(per_minute)
        for moment, each in taken:
            never.take(each, moment)
        assert bucket.wait(per_minute, now) == never.wait(per_minute, now)


@pytest.mark.parametrize("served", [True, False])
def test_a_long_request_does_not_make_the_list_of_charges_grow(served: bool):
    bucket = Bucket(1_000_000)
    first = bucket.take(1, 0)
    for moment in range(1000):
        bucket.settle(bucket.take(1, moment), served=served)
        assert len(bucket._charges) <= 4
    bucket.settle(first, served=True)
    assert len(bucket._charges) <= 2


def test_without_limits_nothing_is_refused():
    quota = Quota()
    for _ in range(1000):
        quota.take(10**9, 0)


def test_a_request_above_the_quota_of_a_minute_is_invalid():
    with pytest.raises(InvalidRequest, match="counts as 11 characters; the key may send 10 in a minute"):
        Quota(5, 10).take(11, 0)


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1_000_000)), min_size=1, max_size=60))
def test_no_period_gets_more_refunds_than_the_limit_and_one_request(refusals: list[tuple[int, int]]):
    limit, now, refunded = RefundLimit(), 0, []
    for pause, characters in refusals:
        now += pause
        if limit.take(characters, now):
            refunded.append((now, REFUSAL + characters))
    for first in range(len(refunded)):
        *total, last = (work for _, work in refunded[first:])
        lasted = refunded[-1][0] - refunded[first][0]
        # each time is rounded down by less than a nanosecond
        assert sum(total) * SECOND < REFUNDED * (BURST * SECOND + lasted + len(refunded)), last


def test_a_client_that_is_refused_now_and_then_gets_every_refund():
    limit = RefundLimit()
    assert all(limit.take(0, number * SECOND // 20) for number in range(20 * 600))
    assert all(limit.take(10_000, 2 * MINUTE * number // 60) for number in range(10 * 60, 12 * 60))


def test_a_limit_of_refunds_that_was_exceeded_recovers():
    limit = RefundLimit()
    assert limit.take(10 * REFUNDED, 0)
    assert not limit.take(0, 8 * SECOND)
    assert limit.take(0, 9 * SECOND)
