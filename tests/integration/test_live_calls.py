"""A speaker of a model in this process is answered as one of a server, over gRPC and over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets import connect
from websockets.exceptions import ConnectionClosedError

from lingon import AsyncClient, AsyncModel, Client, LiveUpdate, LiveWord, Model, ServerError
from tests.support.openapi import validator
from tests.support.processes import serving
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually, eventually_blocking

SAID = "I would like a cup of tea. Tom has never been to Boston"
WORDS = SAID.split()
POLICIES = ["local_agreement", "wait_k", "sentences"]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(MODEL, device="cpu", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """The addresses of the HTTP port and of the gRPC port."""
    with serving(MODEL, "--http-port", 0) as server:
        yield server.ready.partition("HTTP APIs on http")[2].partition(" ")[0], server.address


def spoken(live: Any) -> tuple[str, list[LiveUpdate]]:
    """Say the words, each when the update of the one before is there, and return the translation and the updates."""
    updates, arrived = [], iter(live)
    for number, word in enumerate(WORDS, 1):
        live.send([LiveWord(word, 400 * number, 400 * number + 300)])
        while not updates or updates[-1].words < number:
            updates.append(next(arrived))
    live.end()
    updates += arrived
    return live.agreed, updates


@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_translates_a_speaker_as_a_server_does(policy: str, model: Model, served: tuple[str, str]) -> None:
    with model.live(policy=policy) as live:
        text, updates = spoken(live)
    with Client(served[1]) as client, client.live(policy=policy) as other:
        assert spoken(other) == (text, updates)
    assert text == "".join(each.agreed for each in updates)
    assert "Tee" in text
    assert live.done == other.done


def test_the_updates_of_a_websocket_are_those_of_a_client(served: tuple[str, str]) -> None:
    async def over_websocket() -> str:
        text = ""
        async with connect(f"ws{served[0]}/v1/translate:live") as socket:
            await socket.send(json.dumps({"start": {}}))
            for number, word in enumerate(WORDS):
                await socket.send(json.dumps({"words": {"from": number, "words": [{"text": word}]}}))
                update = {}
                while update.get("words", 0) <= number:
                    update = json.loads(await socket.recv()).get("update", {})
                    text += update.get("agreed", "")
            await socket.send(json.dumps({"end": {}}))
            async for message in socket:
                text += json.loads(message).get("update", {}).get("agreed", "")
        return text

    with Client(served[1]) as client, client.live() as live:
        expected, _ = spoken(live)
    assert asyncio.run(over_websocket()) == expected


def read(url: str) -> bytes:
    with urllib.request.urlopen(url) as reply:
        return bytes(reply.read())


async def test_the_frames_of_a_session_are_as_the_description_says(served: tuple[str, str]) -> None:
    description = json.loads(await asyncio.to_thread(read, f"http{served[0]}/openapi.json"))
    schemas = description["paths"]["/v1/translate:live"]["get"]["x-websocket"]
    sent = [
        {"start": {"sourceLanguageCode": "en", "targetLanguageCode": "de", "policy": "LIVE_POLICY_WAIT_K"}},
        {"words": {"from": 0, "words": [{"text": "The", "beginMs": 100, "endMs": 300}, {"text": "hous"}]}},
        {"words": {"from": 1, "words": [{"text": "house"}]}},
        {"pause": {}},
        {"words": {"from": 9, "words": [{"text": "Tom"}]}},
    ]
    received = []
    async with connect(f"ws{served[0]}/v1/translate:live") as socket:
        for message in sent:
            await socket.send(json.dumps(message))
        with suppress(ConnectionClosedError):
            async for frame in socket:
                received.append(json.loads(frame))
    assert {name for frame in received for name in frame} == {"ready", "update", "error"}
    for schema, frames in ((schemas["client"], sent), (schemas["server"], received)):
        found = validator(description, schema)
        assert [error.message for frame in frames for error in found.iter_errors(frame)] == []
        assert not found.is_valid({**frames[0], "other": 1})
        assert not found.is_valid({**frames[0], **frames[1]})


async def test_an_asynchronous_model_translates_a_speaker_as_a_client_does(served: tuple[str, str]) -> None:
    texts = []
    async with AsyncModel(MODEL, device="cpu", threads=1) as model, AsyncClient(served[1]) as client:
        for translator in (model, client):
            async with translator.live(policy="sentences") as live:
                await live.send("It is raining. Tom is here.")
                await live.end()
                texts.append([each.agreed async for each in live if each.agreed])
    assert texts[0] == texts[1]
    assert "".join(texts[0]).startswith("Es regnet.")


def test_errors_are_those_of_a_server(model: Model, served: tuple[str, str]) -> None:
    found = []
    with Client(served[1]) as client:
        for translator in (model, client):
            with pytest.raises(ServerError) as caught, translator.live(target="fi"):
                pass
            found.append((caught.value.status, caught.value.reason))
            with translator.live() as live:
                live.send("x" * 65)
                with pytest.raises(ServerError, match="characters") as caught:
                    list(live)
            found.append((caught.value.status, caught.value.reason))
    assert found[:2] == found[2:]


def test_leaving_the_block_ends_the_work(model: Model) -> None:
    with model.live() as live:
        live.send("I would like a cup")
    eventually_blocking(lambda: not asyncio.all_tasks(model._local._loop))


def test_closing_a_model_ends_its_speakers() -> None:
    ended = []

    def listen(live: Any) -> None:
        try:
            list(live)
        except ServerError as error:
            ended.append(error.status)

    with Model(MODEL, device="cpu", threads=1) as model, model.live() as live:
        thread = threading.Thread(target=listen, args=[live])
        thread.start()
        model.close()
        thread.join(timeout=30)
    assert ended == ["CANCELLED"]


async def test_a_task_that_is_cancelled_ends_the_work_of_an_asynchronous_model() -> None:
    async with AsyncModel(MODEL, device="cpu", threads=1) as model:
        begun = asyncio.Event()

        async def listen() -> None:
            async with model.live() as live:
                begun.set()
                async for _ in live:
                    pass

        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        await eventually(lambda: not asyncio.all_tasks(model._local._loop))


def test_a_speaker_of_an_engine_that_died_ends_with_the_error_of_other_calls() -> None:
    with Model(MODEL, device="cpu", threads=1) as model:
        with model.live() as live:
            live.send("I would like a cup")
            next(iter(live))
            model._local._translator.engine.fail_all()
            live.send("of tea. Tom")
            with pytest.raises(ServerError) as caught:
                list(live)
        with pytest.raises(ServerError) as other:
            model.translate(["Tom", "Mary"])
        assert (caught.value.status, caught.value.reason) == (other.value.status, other.value.reason)


def test_a_speaker_goes_on_after_a_signal_has_ended_the_engine() -> None:
    with Model(MODEL, device="cpu", threads=1) as model, model.live() as live:
        live.send("I would like a cup")
        next(iter(live))
        model._local._translator.engine.interrupted = True  # as an exception of a signal handler leaves it
        model._local._translator.engine.fail_all()
        live.send("of tea. Tom")
        live.end()
        list(live)
        assert live.agreed.startswith("Ich hätte gern eine Tasse Tee.")
