"""The memory of the bodies of HTTP requests: bounded for all, for an address, and before the key is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lingon.gateway.requests import body as body_module
from lingon.gateway.requests.body_budget import WITHOUT_KEY, BodyBudget, HeldBody
from lingon.gateway.requests.problem import Problem
from lingon.serving.auth.api_keys import new_key
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway
from tests.support.key_files import write_key_file

MIB = 1 << 20
FILE = 16 * MIB


def head(path: str, *headers: str) -> bytes:
    kind = "content-type: multipart/form-data; boundary=x"
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "host: localhost", kind, f"content-length: {FILE}", *headers, "", ""]
    ).encode()


async def begin(http: Gateway, sent: bytes, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request without the end of its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(sent)
    writer.write(b"x" * size)
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.read(2000)


async def test_bodies_that_do_not_end_leave_a_place_for_other_requests_and_no_more_memory(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        opened = [await begin(http, head("/translate_file"), 15 * MIB) for _ in range(5)]
        asked = [asyncio.create_task(answer(reader)) for reader, _ in opened]
        await eventually(lambda: sum(each.done() for each in asked) == 3)  # two of 15 MiB fit into 32 MiB
        refused = next(each.result() for each in asked if each.done())
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*asked)
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in refused
    assert b"the bodies of requests of this address may hold 33,554,432 bytes, and " in refused


async def test_the_values_of_a_body_count_with_the_memory_that_they_take(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(body_module, "VALUE_BYTES", 1 << 20)
    async with gateway() as http:
        assert (await http.post("/v1/translate", {"texts": ["Tom"] * 28})).status == 200
        refused = await http.post("/v1/translate", {"texts": ["Tom"] * 40})
        assert refused.status == 503
        assert b"the bodies of requests of this address may hold 33,554,432 bytes" in refused.body
        assert (await http.post("/v1/translate", {"texts": ["Tom"] * 28})).status == 200, "refused bodies are released"


async def test_the_key_of_a_large_body_is_checked_before_the_rest_is_read(tmp_path: Path):
    keys = write_key_file(tmp_path, {"web": (key := new_key())})
    async with gateway(api_keys=keys, http_data_dir=tmp_path / "data") as http:
        for path, header in (
            ("/v1/translate", "x: y"),
            ("/v2/document", "authorization: DeepL-Auth-Key wrong"),
            ("/translate_file", "authorization: Bearer wrong"),
            ("/v3/projects/p:translateText", "x: y"),
        ):
            large = head(path, header).replace(str(FILE).encode(), str(4 * MIB).encode())
            reader, writer = await begin(http, large, 70_000)
            assert (await answer(reader))[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 403"), path
            writer.close()
        content = b"Tom lives in Boston.\n" * 10_000
        reply = await http.upload("/translate_file", "a.doc", content, source="en", target="de", api_key=key)
    assert (reply.status, b"must end in .txt" in reply.body) == (400, True)


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
async def test_a_file_is_refused_unread_without_a_folder_for_files(path: str):
    async with gateway() as http:
        reader, writer = await begin(http, head(path), 10)
        assert (await answer(reader)).startswith(b"HTTP/1.1 400")
        writer.close()


def test_a_budget_bounds_all_bodies_and_half_of_it_those_of_a_caller():
    budget = BodyBudget(100)
    first, second, third = (HeldBody(budget, f"192.0.2.{number}") for number in range(3))
    first.add(50)
    with pytest.raises(Problem, match="of this address may hold 50 bytes, and 1 more come to 51") as caught:
        first.add(1)
    assert (caught.value.http_status, caught.value.reason) == (503, "TOO_MANY_CALLS")
    second.add(40)
    with pytest.raises(Problem, match="the bodies of requests may hold 100 bytes, and 11 more come to 101"):
        third.add(11)
    second.release()
    third.add(11)
    assert budget.held_bytes == 61


def test_a_body_is_held_until_its_last_user_releases_it():
    budget = BodyBudget(100)
    held = HeldBody(budget, "192.0.2.1")
    held.add(20)
    held.keep()
    held.release()
    assert budget.held_bytes == 20
    held.release()
    assert budget.held_bytes == 0


def test_the_addresses_of_a_block_of_ipv6_are_one_caller_and_bodies_without_a_key_another():
    budget = BodyBudget(100)
    one, other = HeldBody(budget, "2001:db8::1"), HeldBody(budget, "2001:db8::2")
    one.add(30)
    with pytest.raises(Problem):
        other.add(30)
    one.count_without_key()
    other.add(30)
    with pytest.raises(Problem, match="without a key in header or query may hold 50 bytes"):
        budget.hold(WITHOUT_KEY, 21)
