"""Requests of more sentences than a call may have: an idle server translates them, in several calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lingon.segments.halves import halves
from lingon.segments.markup.reading import read_html
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway

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
