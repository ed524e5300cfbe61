"""Large requests: the memory of all bodies is bounded, and texts above the bounds of a call are sent in several."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lingon.gateway import body as body_module
from lingon.gateway.body import WITHOUT_KEY, BodyBudget, HeldBody
from lingon.gateway.problem import Problem
from lingon.segments.halves import halves
from lingon.segments.markup import read_html
from lingon.serving.auth.api_keys import new_key
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import write_key_file
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, gateway
from tests.support.timing import eventually

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


async def test_a_body_is_held_until_work_on_it_that_continues_after_the_reply_ends():
    budget, done = BodyBudget(100), asyncio.Event()

    async def work() -> None:
        await done.wait()

    held = HeldBody(budget, "192.0.2.1")
    held.add(20)
    task = held.start(work())
    held.release()
    assert budget.held_bytes == 20
    done.set()
    await task
    assert (budget.held_bytes, budget.work) == (0, set())


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


FEW = {"max_queue_texts": 16, "max_rows": 4, "engines": 1}  # sentences of a call, and of all that wait
LINES = "".join(f"Tom has {count} boats.\r\n" if count % 7 else "\n" for count in range(150))
HTML = "<!doctype html><body>" + "".join(f"<p>Tom <b>has {count}</b> boats.</p>\n" for count in range(60)) + "</body>"
PARAGRAPH = " ".join(f"Tom has {count} boats." for count in range(50))


def calls(http: Gateway, code: str) -> float:
    return http.server.metric("lingon_requests_total", method="Translate", code=code)


@pytest.mark.parametrize(("name", "content"), [("a.txt", LINES), ("a.txt", PARAGRAPH), ("a.html", HTML)])
async def test_a_file_of_more_sentences_than_the_queue_takes_is_translated(tmp_path: Path, name: str, content: str):
    async with gateway(http_data_dir=tmp_path, **FEW) as http:
        reply = await http.upload("/translate_file", name, content.encode(), source="en", target="de")
        assert reply.status == 200, reply.body
        where = reply.json["translatedFileUrl"].removeprefix(http.url)
        assert (await http.get(where)).body.decode() == content


async def test_a_batch_of_more_sentences_than_the_queue_takes_is_translated_in_every_api():
    texts = [f"Tom has {count} boats. It is raining." for count in range(40)]
    async with gateway(**FEW) as http:
        deepl = await http.post("/v2/translate", {"text": texts, "source_lang": "EN", "target_lang": "DE"})
        libre = await http.post("/translate", {"q": texts, "source": "en", "target": "de", "alternatives": 1})
        google = await http.post(
            "/v3/projects/p:translateText",
            {"contents": texts, "sourceLanguageCode": "en", "targetLanguageCode": "de", "mimeType": "text/plain"},
        )
    assert (deepl.status, libre.status, google.status) == (200, 200, 200), (deepl.body, libre.body, google.body)
    assert [each["text"] for each in deepl.json["translations"]] == texts
    assert libre.json["translatedText"] == texts
    assert [each["translatedText"] for each in google.json["translations"]] == texts


async def test_a_request_of_several_calls_waits_for_its_place_in_a_full_queue():
    runner = EchoRunner()
    async with gateway(runner, max_texts=16, **FEW) as http:
        runner.gate.clear()
        model = {"model": "en-de", "version": "1"}
        waiting = [asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom"] * 4}))]
        await eventually(lambda: http.server.metric("lingon_running_sentences", **model) == 4)
        waiting.append(asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom"] * 16})))
        await eventually(lambda: http.server.metric("lingon_queue_depth", **model) == 16)
        texts = [f"Number {count}." for count in range(30)]
        several = asyncio.create_task(http.post("/translate", {"q": texts, "source": "en", "target": "de"}))
        await eventually(lambda: calls(http, "RESOURCE_EXHAUSTED") >= 2)
        alone = await http.post("/translate", {"q": "Tom", "source": "en", "target": "de"})
        runner.gate.set()
        await asyncio.gather(*waiting)
        assert (await several).json == {"translatedText": texts}
    assert alone.status == 429


async def test_a_text_that_cannot_be_cut_is_refused_with_the_limit():
    text = "<a>" + "".join(f"<p>Tom has {count} boats.</p>" for count in range(30)) + "</a>"
    request = {"text": [text], "source_lang": "EN", "target_lang": "DE", "tag_handling": "xml"}
    async with gateway(**FEW) as http:
        reply = await http.post("/v2/translate", request)
    assert reply.status == 400
    assert "30 parts between tags that split it; a request may have 16 sentences at most" in reply.json["message"]


HTML = {"format": pb.TEXT_FORMAT_HTML}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("One. Two. Three four.", {}, ("One. Two. ", "Three four.")),
        ("One\ntwo\nthree four five", {}, ("One\ntwo\n", "three four five")),
        ("One\ntwo", {"split_sentences": pb.SENTENCE_SPLITTING_NONEWLINES}, None),
        ("One. Two.", {"split_sentences": pb.SENTENCE_SPLITTING_OFF}, None),
        ("<p>One.</p><p>Two.</p>", {"format": pb.TEXT_FORMAT_HTML}, ("<p>One.</p><p>", "Two.</p>")),
        ("<p>One.</p><div>Two.</div>", {"format": pb.TEXT_FORMAT_HTML, "ignore_tags": ["div"]}, None),
        ("<p>One.</p><p>Two.</p>", {"format": pb.TEXT_FORMAT_XML}, None),
        ("<p>One &amp; more. <b>Two. So.</b> Four.</p>", HTML, ("<p>One &amp; more. <b>Two. So.</b> ", "Four.</p>")),
        ("One more. Two more. Three", HTML, ("One more. ", "Two more. Three")),
        ("One. Two.", {**HTML, "split_sentences": pb.SENTENCE_SPLITTING_OFF}, None),
        ('<i translate="no"><p translate="yes">One. Two.</p><p>So.</p><p translate="yes">Four.</p></i>', HTML, None),
        (
            '<div translate="no">A.</div><p>B c d.</p><p>E.</p>',
            HTML,
            ('<div translate="no">A.</div><p>B c d.</p><p>', "E.</p>"),
        ),
        (
            "<nav><a>Home</a> <a>Help</a></nav><p>One two three.</p>",
            HTML,
            ("<nav><a>Home</a> <a>Help</a></nav><p>", "One two three.</p>"),
        ),
        (
            "<p>One two three.</p><nav><a>Home</a> <a>Help</a></nav>",
            HTML,
            ("<p>One two three.</p><nav>", "<a>Home</a> <a>Help</a></nav>"),
        ),
        (
            "<div><a>Home</a> <a>Help</a> <a>News</a> <a>Shop</a></div>",
            HTML,
            ("<div><a>Home</a> <a>Help</a> ", "<a>News</a> <a>Shop</a></div>"),
        ),
        ("<div><a>the cat</a> <a>the dog</a> <a>the cow</a></div>", HTML, None),
        ("One", {}, None),
        ("", {}, None),
    ],
)
def test_a_text_is_cut_between_sentences_or_blocks(
    text: str, options: dict[str, object], expected: tuple[str, str] | None
):
    assert halves(text, pb.TextOptions(**options), "en") == expected


def test_the_items_of_a_long_list_are_read_as_they_are_in_the_whole():
    page = "<p>" + " | ".join(f"<span><a href=/{number}>Item {number}</a></span>" for number in range(100)) + "</p>"
    first, second = halves(page, pb.TextOptions(**HTML), "en") or ("", "")
    assert first + second == page
    parts = [block.text for part in (first, second) for block in read_html(part).blocks]
    assert parts == [f"Item {number}" for number in range(100)]
    assert abs(len(first) - len(second)) < 100


@pytest.mark.parametrize("options", [{}, HTML])
def test_a_long_text_is_cut_at_the_sentence_nearest_to_its_middle(options: dict[str, object]):
    text = "".join(f"Tom has {count} boats. " for count in range(20_000))
    first, second = halves(text, pb.TextOptions(**options), "en") or ("", "")
    assert first + second == text
    assert second.startswith("Tom has ")
    assert abs(len(first) - len(second)) < 30


def test_html_with_more_tags_than_a_document_may_have_is_not_cut():
    assert halves("<p>Tom." * 250_001, pb.TextOptions(**HTML), "en") is None
