"""Translation memories that a server keeps, in translations: whose they are, and what a change does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lingon import Client, MemoryOptions, ServerError
from lingon.client.results import TextDelta, TextResult
from lingon.memories.segment import Segment
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.echo_engine import RunningServer, running

TOM = "Tom lives in Boston."
PAIR = {"source": "en", "target": "de"}
MEMORY = MemoryOptions(memories=["m"])


async def asked(server: RunningServer, ask: Callable[[Client], Any], **options: Any) -> Any:
    """What a client of the server answers, on a thread."""

    def run() -> Any:
        with Client(f"127.0.0.1:{server.server.port}", **options) as client:
            return ask(client)

    return await asyncio.to_thread(run)


def put(*segments: Segment, **header: Any) -> Callable[[Client], Any]:
    return lambda client: client.put_memory("m", segments, **{**PAIR, **header})


def translated(client: Client) -> TextResult:
    return client.translate(TOM, memory=MEMORY)


async def test_a_stored_translation_is_taken_and_a_change_is_seen_by_the_next_request(tmp_path: Path) -> None:
    async with running(data_dir=tmp_path, cache=1) as server:
        await asked(server, put(Segment(TOM, "Tom wohnt.", origin="Ann")))
        first = await asked(server, translated)
        await asked(server, put(Segment(TOM, "Tom lebt.")))
        second = await asked(server, translated)
        await asked(server, put(Segment("Another.", "Anderes."), replace=True))
        third = await asked(server, translated)
    assert [each.text for each in (first, second, third)] == ["Tom wohnt.", "Tom lebt.", TOM]
    (match,) = first.matches
    assert (match.memory, match.score, match.used, match.origin) == ("m", 100, True, "Ann")
    assert [warning.code for warning in first.warnings] == ["from_memory"]
    assert third.matches == ()


async def test_a_stream_takes_stored_translations(tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        await asked(server, put(Segment(TOM, "Tom wohnt.")))
        text = f"{TOM} It rains."
        events = await asked(server, lambda client: list(client.translate_stream(text, memory=MEMORY)))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Tom wohnt. It rains."


async def test_a_memory_of_another_pair_has_no_effect(tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        await asked(server, put(Segment(TOM, "Tom vit."), target="fr"))
        result = await asked(server, translated)
    assert (result.text, result.matches) == (TOM, ())


async def test_a_key_gets_no_translation_of_another_one(tmp_path: Path) -> None:
    one, other = new_key(), new_key()
    keys = write_key_file(tmp_path, {"one": one, "other": other})
    async with running(data_dir=tmp_path / "data", api_keys=keys, cache=1) as server:
        mine, theirs = {"api_key": one, "insecure": True}, {"api_key": other, "insecure": True}
        await asked(server, put(Segment(TOM, "mine")), **mine)
        assert (await asked(server, translated, **mine)).text == "mine"
        with pytest.raises(ServerError) as raised:
            await asked(server, translated, **theirs)
        assert raised.value.status == "NOT_FOUND"
        await asked(server, put(Segment(TOM, "theirs")), **theirs)
        texts = [(await asked(server, translated, **key)).text for key in (mine, theirs, mine)]
    assert texts == ["mine", "theirs", "mine"]


async def test_a_memory_that_the_caller_does_not_have_is_not_found(tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        with pytest.raises(ServerError) as raised:
            await asked(server, translated)
    assert raised.value.status == "NOT_FOUND"
