"""The stand-in for a second translator: its answers, its faults, and which sentence has which."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lingon.bench.second_server import REFUSAL, Asked, Fault, Faults, References, parse_faults, running
from lingon.bench.worker_process import ChildProcess
from lingon.errors import SettingsError

PAIRS = [
    ("I have 3 cats.", "Ich habe 3 Katzen."),
    ("Visit https://a.example today.", "Besuchen Sie heute https://a.example."),
    ("The dog is here.", "Der Hund ist da."),
]
SOURCE, TARGET = PAIRS[0]


async def post(
    url: str, sentence: str, keep: list[str] | None = None, path: str = "/chat/completions"
) -> tuple[int, dict[str, str], bytes]:
    """Ask about a sentence, and return status, headers and body. Raises IncompleteReadError for less than a body."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asked = {"text": sentence, "keep": keep or []}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": json.dumps(asked)}]}).encode()
    head = f"POST /v1{path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        return int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def text(body: bytes) -> Any:
    """Return what the model wrote."""
    return json.loads(body)["choices"][0]["message"]["content"]


async def answered(fault: Fault | None, sentence: str = SOURCE, keep: list[str] | None = None) -> str:
    """Return the translation in the answer about a sentence, of a stand-in with one fault."""
    async with running(References(PAIRS), Faults({fault: 1.0} if fault else {})) as server:
        return str(json.loads(text((await post(server.url, sentence, keep))[2]))["translation"])


async def test_a_known_sentence_has_the_translation_of_its_reference() -> None:
    assert await answered(None) == TARGET


async def test_an_unknown_sentence_is_declined() -> None:
    async with running(References(PAIRS)) as server:
        assert text((await post(server.url, "Who is that?"))[2]) == REFUSAL
        assert server.asked == Counter(unknown=1)


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (Fault.LANGUAGE, SOURCE),
        (Fault.NUMBER, "Ich habe 174 Katzen."),
        (Fault.LONG, " ".join([TARGET] * 20)),
        (Fault.LOOP, " ".join([TARGET] * 12)),
        (Fault.PLACEHOLDER, TARGET),
    ],
)
async def test_a_lie_is_a_translation_with_its_fault(fault: Fault, wanted: str) -> None:
    assert await answered(fault) == wanted


async def test_a_lost_placeholder_is_the_first_string_that_is_to_be_kept() -> None:
    sentence = PAIRS[1][0]
    assert await answered(Fault.PLACEHOLDER, sentence, ["https://a.example"]) == "Besuchen Sie heute ."


async def test_another_translation_is_that_of_another_sentence_of_such_a_length() -> None:
    assert await answered(Fault.OTHER) == PAIRS[2][1]


@pytest.mark.parametrize(("fault", "wanted"), [(Fault.EMPTY, ""), (Fault.REFUSAL, REFUSAL), (Fault.BARE, TARGET)])
async def test_an_answer_in_prose_is_no_object(fault: Fault, wanted: str) -> None:
    async with running(References(PAIRS), Faults({fault: 1.0})) as server:
        assert text((await post(server.url, SOURCE))[2]) == wanted


@pytest.mark.parametrize(("fault", "status"), [(Fault.ERROR, 500), (Fault.REDIRECT, 307), (Fault.MALFORMED, 200)])
async def test_a_broken_answer_is_no_answer_of_the_api(fault: Fault, status: int) -> None:
    async with running(References(PAIRS), Faults({fault: 1.0})) as server:
        found, headers, body = await post(server.url, SOURCE)
    assert found == status
    assert ("location" in headers) == (fault is Fault.REDIRECT)
    with pytest.raises((ValueError, KeyError)):
        text(body)


async def test_a_dead_server_closes_the_connection() -> None:
    async with running(References(PAIRS), Faults({Fault.DEAD: 1.0})) as server:
        with pytest.raises(asyncio.IncompleteReadError) as raised:
            await post(server.url, SOURCE)
    assert raised.value.partial == b""


async def test_a_server_that_hangs_sends_half_of_the_body() -> None:
    async with running(References(PAIRS), Faults({Fault.HANG: 1.0}), slow=0.0) as server:
        with pytest.raises(asyncio.IncompleteReadError) as raised:
            await post(server.url, SOURCE)
    assert 0 < len(raised.value.partial) < raised.value.expected  # type: ignore[operator]


async def test_a_client_that_leaves_a_slow_answer_is_counted_and_its_request_ends() -> None:
    async with running(References(PAIRS), Faults({Fault.SLOW: 1.0})) as server:
        asking = asyncio.create_task(post(server.url, SOURCE))
        while not server.open:  # noqa: ASYNC110
            await asyncio.sleep(0)
        asking.cancel()
        while server.open:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (server.left, server.most_open) == (1, 1)
        assert server.keys == {"Bearer k"}


async def test_another_path_and_another_chat_are_errors() -> None:
    async with running(References(PAIRS)) as server:
        assert (await post(server.url, SOURCE, path="/models"))[0] == 404
    with pytest.raises(LookupError):
        Asked.of([{"role": "system", "content": "{}"}])


def test_a_sentence_has_its_fault_in_any_order_and_shares_are_kept() -> None:
    sentences = [f"Sentence {number}." for number in range(2000)]
    faults = Faults({Fault.EMPTY: 0.1, Fault.ERROR: 0.3})
    found = [faults.of(sentence) for sentence in sentences]
    assert [faults.of(sentence) for sentence in reversed(sentences)] == found[::-1]
    counts = Counter(found)
    assert abs(counts[Fault.EMPTY] - 200) < 60
    assert abs(counts[Fault.ERROR] - 600) < 90
    assert found != [Faults(faults.shares, seed=1).of(sentence) for sentence in sentences]


@pytest.mark.parametrize("shares", [{Fault.EMPTY: 0.6, Fault.ERROR: 0.5}, {Fault.EMPTY: -0.1}])
def test_shares_that_are_none_are_refused(shares: dict[Fault, float]) -> None:
    with pytest.raises(SettingsError, match="shares of faults must be at least 0 and at most 1 in all, got"):
        Faults(shares)


@pytest.mark.parametrize(
    ("given", "message"), [("late=1", "--fault must be one of dead, slow"), ("empty=x", "share from 0 to 1, got 'x'")]
)
def test_a_fault_that_is_none_is_refused(given: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_faults([given])


async def test_the_command_serves_two_files(tmp_path: Path) -> None:
    for name, lines in (("en", [SOURCE]), ("de", [TARGET])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = [str(tmp_path / name) for name in ("en", "de")]
    command = [sys.executable, "-m", "lingon.bench.second_server", *files, "--fault", "number"]
    with ChildProcess(command) as server:
        line = await asyncio.to_thread(server.read_line)
        _, _, body = await post(line.removeprefix("ready: ").strip(), SOURCE)
    assert json.loads(text(body)) == {"translation": "Ich habe 174 Katzen."}
