"""Every request gets the fate that it had, whatever that was."""

from __future__ import annotations

import asyncio

import pytest

from chaos.clients import Client, closed_loop, open_loop
from chaos.history import Fate, History
from chaos.keys import keys_file
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually

TEXT = "Where is the station?"


@pytest.fixture
def history() -> History:
    return History()


def connect(server, history: History, **more) -> Client:
    return Client(f"127.0.0.1:{server.server.port}", history, **more)


async def test_an_answer_is_written_down_with_its_text_version_and_request_id(history):
    async with running() as server:
        client = connect(server, history)
        fates = [await client.translate(TEXT, ""), await client.stream(TEXT)]
        await client.close()
    assert list(history) == fates
    assert [[(each.code, each.text) for each in fate.results] for fate in fates] == [
        [("OK", TEXT), ("INVALID_ARGUMENT", "")],
        [("OK", TEXT)],
    ]
    assert [(fate.code, fate.version, fate.request_id) for fate in fates] == [("OK", "1", fate.id) for fate in fates]
    assert fates[1].first
    assert fates[1].ended
    assert fates[1].sent <= fates[1].first <= fates[1].ended


async def test_a_refusal_is_written_down_with_its_reason(history):
    async with running() as server:
        client = connect(server, history)
        fate = await client.translate(*[TEXT] * 300)
        await client.close()
    assert (fate.code, fate.reason, fate.request_id, fate.results) == ("INVALID_ARGUMENT", "INVALID_FIELD", fate.id, [])


async def test_deadlines_cancels_and_servers_that_are_not_there_have_their_codes(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        late = await client.translate(TEXT, deadline=0.05)
        gone = await client.translate(TEXT, cancel_after=0.05)
        half = await client.stream(TEXT, cancel_after=0.2)
        await client.close()
    away = Client("127.0.0.1:1", history)
    nobody = await away.translate(TEXT)
    await away.close()
    codes = [fate.code for fate in (late, gone, half, nobody)]
    assert codes == ["DEADLINE_EXCEEDED", "CANCELLED", "CANCELLED", "UNAVAILABLE"]
    assert all(fate.ended and not fate.results for fate in history)


async def test_a_request_of_a_client_that_is_stopped_has_no_end(history):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        client = connect(server, history)
        asked = asyncio.create_task(client.translate(TEXT))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await client.close()
    assert [(fate.ended, fate.code) for fate in history] == [(None, "")]


async def test_a_key_opens_the_door(history, tmp_path):
    keys = keys_file(tmp_path / "keys.toml", "a")
    async with running(api_keys=tmp_path / "keys.toml") as server:
        clients = [connect(server, history, key=key) for key in (keys["a"], None)]
        codes = [(await client.translate(TEXT)).code for client in clients]
        for client in clients:
            await client.close()
    assert codes == ["OK", "UNAUTHENTICATED"]


async def test_an_open_loop_sends_when_requests_are_due_whether_or_not_others_are_answered():
    sent, many = [], asyncio.Event()

    async def send(text: str, due: float) -> Fate:
        sent.append(text)
        if len(sent) == 20:
            many.set()
        await many.wait()
        return Fate(id="a", method="Translate", texts=(text,), due=due, sent=due)

    fates = await asyncio.wait_for(open_loop(send, ["a", "b"], rate=200.0, seconds=0.3), 10)
    assert len(fates) == len(sent) >= 20
    assert [fate.due for fate in fates] == sorted(fate.due for fate in fates)


async def test_a_closed_loop_stops_at_its_count_its_time_and_the_fate_it_is_told():
    async def send(text: str) -> Fate:
        await asyncio.sleep(0.001)
        return Fate(id="a", method="Translate", texts=(text,), due=0.0, sent=0.0, ended=1.0, code="OK")

    assert len(await closed_loop(send, ["a"], 3, requests=10)) == 10
    assert len(await closed_loop(send, ["a"], 3, until=lambda fate: fate.code == "OK")) == 3
    assert 3 <= len(await closed_loop(send, ["a"], 3, seconds=0.05)) <= 200
