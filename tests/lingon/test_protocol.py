"""The client protocol without sockets and clocks: parts of a list, tries, pauses, deadlines."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from lingon import ServerError
from lingon.client.protocol.exchanges import ClientProtocol
from lingon.client.protocol.steps import (
    HEALTH_STATES,
    LIST_MODELS,
    TRANSLATE,
    HealthCheckRequest,
    HealthCheckResponse,
    Send,
    Sleep,
)
from lingon.client.retry import Retry
from lingon.client.values.messages import MAX_BYTES, cut
from lingon.translation.v1 import translation_pb2 as pb


@given(st.lists(st.text(max_size=5)), st.integers(1, 6))
def test_the_parts_of_a_list_are_the_list(texts: list[str], most: int) -> None:
    parts = cut(texts, most)
    assert [text for _, part in parts for text in part] == texts
    assert all(1 <= len(part) <= most and texts[start : start + len(part)] == part for start, part in parts)


def test_a_request_stays_below_the_size_that_a_server_takes() -> None:
    half = "x" * (MAX_BYTES // 2)
    assert [len(part) for _, part in cut([half, half, half, half * 4, half], 256)] == [2, 1, 1, 1]


@given(
    retries=st.integers(0, 6),
    named=st.lists(st.one_of(st.none(), st.floats(0, 3)), min_size=8, max_size=8),
    spent=st.lists(st.floats(0, 2), min_size=8, max_size=8),
    draw=st.floats(0, 1),
    overslept=st.floats(0, 1),
    timeout=st.floats(0.01, 10),
)
@example(retries=1, named=[1.890286437108783] * 8, spent=[0.0] * 8, draw=0.0, overslept=0, timeout=1.890286437108783)
def test_no_try_begins_or_may_end_after_the_deadline(
    retries: int, named: list[float | None], spent: list[float], draw: float, overslept: float, timeout: float
) -> None:
    now, tries = 100.0, 0
    protocol = ClientProtocol(timeout=timeout, retry=Retry(retries=retries), clock=lambda: now, random=lambda: draw)
    exchange = protocol.call(TRANSLATE, pb.TranslateRequest())
    step: Send | Sleep | None = next(exchange)
    while step is not None:
        if isinstance(step, Sleep):
            now += step.seconds + overslept
            step = _proceed(lambda: next(exchange))
        else:
            assert now < 100.0 + timeout
            assert 0 < step.timeout <= 100.0 + timeout - now + 1e-9
            now += min(spent[tries], step.timeout)
            error = ServerError("down", code_pb2.UNAVAILABLE, retry_after=named[tries])
            step = _proceed(functools.partial(exchange.throw, error))
            tries += 1
    assert 1 <= tries <= retries + 1


def _proceed(go_on: Callable[[], Send | Sleep]) -> Send | Sleep | None:
    """The next step, or None if the exchange raised its error."""
    try:
        return go_on()
    except ServerError:
        return None


def test_pauses_double_within_their_jitter_and_have_an_upper_bound() -> None:
    retry, error = Retry(retries=99), ServerError("down", code_pb2.UNAVAILABLE)
    for failures in range(1, 60):
        longest = min(0.1 * 2 ** (failures - 1), 5.0)
        assert retry.pause(failures, error, 1e6, lambda: 0.0) == pytest.approx(longest / 2)
        assert retry.pause(failures, error, 1e6, lambda: 1.0) == pytest.approx(longest)


def test_asking_for_the_limit_and_the_first_request_share_a_deadline() -> None:
    now = 100.0
    protocol = ClientProtocol(timeout=10, clock=lambda: now)
    exchange = protocol.translate(["a", "b", "c"], {"timeout": 2})
    step = next(exchange)
    assert (step.method, step.timeout) == (LIST_MODELS, 2)
    now += 1.5
    step = exchange.send(pb.ListModelsResponse(max_texts=2))
    assert (step.method, step.timeout) == (TRANSLATE, 0.5)
    now += 0.4
    step = exchange.send(pb.TranslateResponse(results=[pb.TextResult()] * 2))
    assert (step.method, step.timeout) == (TRANSLATE, 2)


def test_prefixes_count_as_bytes_of_a_request() -> None:
    half = "x" * (MAX_BYTES // 2)
    assert [len(part) for _, part in cut(["a", "b", "c"], 256, [half] * 3)] == [1, 1, 1]


def test_a_server_that_has_answered_is_waited_for_and_one_that_never_did_is_not() -> None:
    assert _tries(ClientProtocol(timeout=30, retry=Retry(retries=2, wait_when_away=True)), 20) == 3
    for patient, expected in ((False, 3), (True, 20)):
        protocol = ClientProtocol(timeout=30, retry=Retry(retries=2, wait_when_away=patient, longest_pause=1.0))
        asking = protocol.call(LIST_MODELS, pb.ListModelsRequest())
        next(asking)
        with pytest.raises(StopIteration):
            asking.send(pb.ListModelsResponse())
        assert _tries(protocol, 20) == expected


def _tries(protocol: ClientProtocol, most: int) -> int:
    """How often a call is sent while the server is away, up to most."""
    now, sent = 0.0, 0
    protocol.clock = lambda: now
    exchange = protocol.call(TRANSLATE, pb.TranslateRequest())
    step: Send | Sleep | None = next(exchange)
    while step is not None and sent < most:
        if isinstance(step, Sleep):
            now += step.seconds
            step = _proceed(lambda: next(exchange))
        else:
            sent += 1
            step = _proceed(lambda: exchange.throw(ServerError("down", code_pb2.UNAVAILABLE)))
    return sent


def test_the_messages_of_the_health_service_are_those_of_its_own_package() -> None:
    own = health_pb2.HealthCheckRequest(service="model/en-de")
    assert HealthCheckRequest(value="model/en-de").SerializeToString() == own.SerializeToString()
    for number, state in enumerate(HEALTH_STATES):
        reply = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.ServingStatus.Value(state))
        assert HealthCheckResponse.FromString(reply.SerializeToString()).value == number
