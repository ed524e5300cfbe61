"""Who may call: the key is known before a body is parsed, pages of other sites and other names are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.rpc import code_pb2

from lingon.errors import ServerError
from lingon.gateway.backend import KNOWN_SECONDS, MOST_KNOWN, Caller, KnownCallers
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.gateway import Gateway, gateway

TEXTS = {"texts": ["Tom"]}
BROKEN = b'{"texts": ['


class Server:
    """A backend that accepts one key, and counts what it is asked."""

    def __init__(self, key: str | None) -> None:
        self.key, self.asked = key, 0

    async def models(self, caller: Caller) -> None:
        self.asked += 1
        if caller.key != self.key:
            raise ServerError("the key is not known", code_pb2.UNAUTHENTICATED)


async def test_the_server_is_asked_once_a_second_for_a_key_that_it_accepts_and_each_time_for_another():
    server, now = Server("a"), [10.0]
    known = KnownCallers(server, clock=lambda: now[0])  # type: ignore[arg-type]
    good, bad = (Caller(key, "192.0.2.1", "") for key in "ab")
    assert [await known.accepts(good) for _ in range(3)] == [True] * 3
    assert server.asked == 1
    now[0] += KNOWN_SECONDS + 0.1
    assert await known.accepts(good)
    assert server.asked == 2
    server.key = "c"
    now[0] += KNOWN_SECONDS + 0.1
    assert [await known.accepts(each) for each in (good, good, bad)] == [False] * 3
    assert server.asked == 5


async def test_a_key_is_left_out_where_none_is_needed_and_the_server_is_asked_for_that_once_a_second():
    server, now = Server("a"), [10.0]
    known, caller = KnownCallers(server, clock=lambda: now[0]), Caller("a", "192.0.2.1", "")  # type: ignore[arg-type]
    assert [await known.as_known(caller) for _ in range(3)] == [caller] * 3
    assert server.asked == 1
    server.key = None
    now[0] += KNOWN_SECONDS + 0.1
    assert [await known.as_known(caller) for _ in range(3)] == [Caller(None, "192.0.2.1", "")] * 3
    assert server.asked == 2


async def test_no_more_than_a_number_of_keys_is_remembered():
    server = Server(None)
    known = KnownCallers(server, clock=lambda: 0.0)  # type: ignore[arg-type]
    for number in range(MOST_KNOWN + 10):
        server.key = str(number)
        await known.check(Caller(server.key, "192.0.2.1", ""))
    server.asked = 0
    await known.check(Caller(server.key, "192.0.2.1", ""))
    assert server.asked == 0
    server.key = "0"
    await known.check(Caller("0", "192.0.2.1", ""))
    assert server.asked == 1


async def test_a_body_is_not_parsed_before_the_key_is_known(tmp_path: Path):
    keys = write_key_file(tmp_path, {"web": (key := new_key())})
    async with gateway(api_keys=keys) as http:
        for path, status in (("/v1/translate", 401), ("/v1/score", 401), ("/v1/translate:stream", 401)):
            assert (await http.send("POST", path, BROKEN, "application/json")).status == status
            right = {"authorization": f"Bearer {key}"}
            assert (await http.send("POST", path, BROKEN, "application/json", right)).status == 400
        wrong = {"authorization": "DeepL-Auth-Key wrong"}
        assert (await http.send("POST", "/v2/translate", BROKEN, "application/json", wrong)).status == 403
        begun = b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(begun)  # and nothing of the body
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.close()


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_the_values_of_a_message_are_counted_whatever_its_type_says(kind: str):
    async with gateway() as http:
        reply = await http.send("POST", "/v1/score", b'{"pairs":[' + b"{}," * 260_000 + b"{}]}", kind)
    assert (reply.status, "250,000 values at most" in reply.json["message"]) == (413, True)


@pytest.mark.parametrize("value", ["9" * 5000, "0" * 5000 + "1", "0000000001", "1e3", "-1", "1.5"])
async def test_a_number_in_any_spelling_is_taken_or_refused(value: str):
    async with gateway() as http:
        reply = await http.post("/translate", {"q": "Tom", "source": "en", "target": "de", "alternatives": value})
    assert (reply.status, f"got '{value[:40]}'" in reply.json["error"]) == (400, True)


async def sites(http: Gateway, path: str, headers: dict[str, str]) -> list[int]:
    """The statuses of a request from other sites."""
    return [(await http.get(path, {**headers, "sec-fetch-site": site})).status for site in ("cross-site", "same-site")]


async def test_pages_of_other_sites_may_not_call_and_extensions_may():
    path = "/language/translate/v2?q=Tom&source=en&target=de"
    async with gateway(http_cors=("https://listed.example",)) as http:
        for headers, status in (
            ({}, 403),  # such as that of an image
            ({"sec-fetch-mode": "navigate"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "https://other.example"}, 403),
            ({"origin": "https://listed.example"}, 200),
            ({"origin": "moz-extension://0a1b"}, 200),
        ):
            assert await sites(http, path, headers) == [status] * 2, headers
        assert (await http.get(path, {"sec-fetch-site": "none"})).status == 200
        assert (await http.get("/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})).status == 200


async def test_a_page_of_another_site_may_link_to_a_translated_file(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path) as http:
        reply = await http.upload("/translate_file", "a.txt", b"Tom", source="en", target="de")
        path = reply.json["translatedFileUrl"].removeprefix(http.url)
        assert await sites(http, path, {"sec-fetch-mode": "navigate"}) == [200] * 2
        assert await sites(http, path, {"sec-fetch-mode": "no-cors"}) == [403] * 2


NAMES = ("localhost:80", "app.localhost", "127.0.0.1:8080", "192.0.2.1", "[::1]:8080", "LISTED.example:1")


async def test_on_loopback_the_server_is_called_by_addresses_and_listed_names_only():
    async with gateway(http_hosts=("listed.example",)) as http:
        for path in ("/v1/models", "/", "/no/such/path"):
            found = {name: (await http.get(path, {"host": name})).status for name in NAMES}
            assert set(found.values()) == {404 if "such" in path else 200}, found
            for name in (
                "evil.example:8080",
                "listed.example.evil.example",
                "1.2.3.4.evil.example",
                "localhost.evil.example",
            ):
                assert (await http.get(path, {"host": name})).status == 403
    async with gateway() as http:
        assert (await http.get("/v1/models", {"host": "listed.example"})).status == 403
    async with gateway(http_trusted_proxies="127.0.0.1") as http:
        assert (await http.get("/v1/models", {"host": "listed.example"})).status == 200
    async with gateway(http_hosts=("*",)) as http:
        assert (await http.get("/v1/models", {"host": "listed.example"})).status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/languages", "/health", "/v2/usage", "/v1/translate"])
async def test_no_reply_is_stored_or_guessed_to_be_something_else(path: str):
    async with gateway() as http:
        reply = await http.get(path) if path != "/v1/translate" else await http.post(path, TEXTS)
    assert (reply.headers["cache-control"], reply.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_slash_at_the_end_of_a_path_changes_nothing():
    async with gateway() as http:
        assert (await http.get("/languages/")).json == (await http.get("/languages")).json
        assert (await http.post("/v1/translate/", TEXTS)).status == 200
