"""Clients record the outcome of every request."""

from __future__ import annotations

import asyncio

import pytest

from chaos.callers.clients import Client, closed_loop, open_loop
from chaos.server import write_api_keys
from chaos.verdict.history import History, Outcome
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually

STATION = "Where is the station?"


@pytest.fixture
def history() -> History:
    return History()


def connect(server, history: History, **more) -> Client:
    return Client(f"127.0.0.1:{server.server.port}", history, **more)


async def test_an_answer_is_recorded_with_its_text_version_and_request_id(history):
    async with running() as server:
        client = connect(server, history)
        outcomes = [await client.translate(STATION, ""), await client.stream(STATION)]
        await client.close()
    assert list(history) == outcomes
    assert [[(each.code, each.text) for each in outcome.results] for outcome in outcomes] == [
        [("OK", STATION), ("OK", "")],
        [("OK", STATION)],
    ]
    assert [(outcome.code, outcome.version, outcome.request_id) for outcome in outcomes] == [
        ("OK", "1", outcome.id) for outcome in outcomes
    ]
    assert outcomes[1].first
    assert outcomes[1].ended
    assert outcomes[1].sent <= outcomes[1].first <= outcomes[1].ended


async def test_a_refusal_is_recorded_with_its_reason(history):
    async with running() as server:
        client = connect(server, history)
        outcome = await client.translate(*[STATION] * 300)
        await client.close()
    assert (outcome.code, outcome.reason, outcome.request_id, outcome.results) == (
        "INVALID_ARGUMENT",
        "INVALID_FIELD",
        outcome.id,
        [],
    )


async def test_deadlines_cancels_and_missing_servers_have_their_codes(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        late = await client.translate(STATION, deadline=0.05)
        gone = await client.translate(STATION, cancel_after=0.05)
        half = await client.stream(STATION, cancel_after=0.2)
        await client.close()
    away = Client("127.0.0.1:1", history)
    nobody = await away.translate(STATION)
    await away.close()
    codes = [outcome.code for outcome in (late, gone, half, nobody)]
    assert codes == ["DEADLINE_EXCEEDED", "CANCELLED", "CANCELLED", "UNAVAILABLE"]
    assert all(outcome.ended and not outcome.results for outcome in history)


async def test_a_request_of_a_client_that_is_stopped_has_no_end(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        asked = asyncio.create_task(client.translate(STATION))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await client.close()
    assert [(outcome.ended, outcome.code) for outcome in history] == [(None, "")]


async def test_a_client_sends_its_api_key(history, tmp_path):
    keys = write_api_keys(tmp_path / "keys.toml", "a")
    async with running(api_keys=tmp_path / "keys.toml") as server:
        clients = [connect(server, history, key=key) for key in (keys["a"], None)]
        codes = [(await client.translate(STATION)).code for client in clients]
        for client in clients:
            await client.close()
    assert codes == ["OK", "UNAUTHENTICATED"]


async def test_an_open_loop_sends_when_requests_are_due_whether_or_not_others_are_answered():
    sent, many = [], asyncio.Event()

    async def send(text: str, due: float) -> Outcome:
        sent.append(text)
        if len(sent) == 20:
            many.set()
        await many.wait()
        return Outcome(id="a", method="Translate", texts=(text,), due=due, sent=due)

    outcomes = await asyncio.wait_for(open_loop(send, ["a", "b"], rate=200.0, seconds=0.3), 10)
    assert len(outcomes) == len(sent) >= 20
    assert [outcome.due for outcome in outcomes] == sorted(outcome.due for outcome in outcomes)


async def test_a_closed_loop_stops_at_its_count_its_time_and_its_condition():
    async def send(text: str) -> Outcome:
        await asyncio.sleep(0.001)
        return Outcome(id="a", method="Translate", texts=(text,), due=0.0, sent=0.0, ended=1.0, code="OK")

    assert len(await closed_loop(send, ["a"], 3, requests=10)) == 10
    assert len(await closed_loop(send, ["a"], 3, until=lambda outcome: outcome.code == "OK")) == 3
    assert 3 <= len(await closed_loop(send, ["a"], 3, seconds=0.05)) <= 200
