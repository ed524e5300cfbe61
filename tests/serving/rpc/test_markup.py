"""Texts with markup, as the service translates them: tags stay, and come with the words that they are around."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from lingon.bundle.manifest import Alignment
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, RunningServer, running

HTML, XML = pb.TEXT_FORMAT_HTML, pb.TEXT_FORMAT_XML
OPTIONS, TEXT = pb.DecodingOptions, pb.TextOptions
PAGES = [
    "<p>Tom lives in <b>Boston</b>. The old man.</p>\n<!-- sea --><p>The <i>old <u>man</u></i> and the sea</p>",
    "<title>Tom</title><script>if (a < b) {}</script>The sea &amp; the man.&nbsp;Tom<br>Boston &mdash; Tom",
    "Tom <code>the sea</code> lives <kbd>in</kbd> Boston. <img src='a.png'> The sea.",
    "<p>THE OLD <b>MAN</b> AND {name}.</p>",
    "\U000f0000<p>Tom <code>a</code> lives <code>b</code> &#xF0001; in Boston</p>",
    "<img src=a><hr>",
    "<p>Tom lives.</p><p><code>x</code>\u200b<code>y</code></p>",
    "Tom lives in\n\n Boston",
]


async def result_of(server: RunningServer, source: str, **fields: Any) -> pb.TextResult:
    (result,) = (await server.translate(source, **fields)).results
    assert not result.status.code, result.status.message
    return result


@pytest.mark.parametrize("options", [OPTIONS(beam_size=1), OPTIONS(beam_size=2, num_hypotheses=2)], ids=str)
@pytest.mark.parametrize("page", PAGES)
async def test_a_model_that_translates_words_to_themselves_gives_the_page_back(
    server: RunningServer, page: str, options: pb.DecodingOptions
):
    result = await result_of(server, page, text=TEXT(format=HTML), options=options)
    assert result.hypotheses[0].text == page


async def test_an_element_and_a_string_that_touches_it_are_kept_together(server: RunningServer):
    page = "<p>Tom https://example.com/<code>a</code>/b lives {<kbd>x</kbd>} in Boston.</p>"
    assert (await result_of(server, page, text=TEXT(format=HTML))).hypotheses[0].text == page


async def test_tags_are_not_read_by_the_model():
    page = "<sea>Tom <b class='sea'>lives</b></sea>"
    async with running(EchoRunner(faulty="sea")) as server:
        assert (await result_of(server, page, text=TEXT(format=HTML))).hypotheses[0].text == page
        assert (await server.translate(page, text=TEXT(protect=False))).results[0].status.code


async def test_elements_split_the_text_and_sentences_are_in_the_page(server: RunningServer):
    page = "<h1>Tom</h1><p>The <b>old</b> man. The sea\nis old.</p>"
    result = await result_of(server, page, text=TEXT(format=HTML, return_sentences=True))
    sources = [page[each.source.begin : each.source.end] for each in result.sentences]
    assert sources == ["Tom", "The <b>old</b> man.", "The sea\nis old."]
    text = result.hypotheses[0].text
    targets = [text[each.target.begin : each.target.end] for each in result.sentences]
    assert targets == ["Tom", "The <b>old</b> man.", "The sea is old."]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"ignore_tags": ["B"]}, ["Tom"]),
        ({"splitting_tags": ["b"]}, ["Tom", "sea", "lives"]),
        ({"non_splitting_tags": ["p"]}, ["Tom <b>sea</b> lives</p><p>Boston"]),
    ],
    ids=str,
)
async def test_names_of_elements_rule_how_they_are_read(server: RunningServer, fields: dict[str, Any], kept: list[str]):
    page = "<p>Tom <b>sea</b> lives</p><p>Boston</p>"
    result = await result_of(server, page, text=TEXT(format=HTML, return_sentences=True, **fields))
    sources = [page[each.source.begin : each.source.end] for each in result.sentences]
    assert sources[: len(kept)] == kept or sources[0].startswith("Tom <b>sea</b> lives")
    assert result.hypotheses[0].text == page


async def test_the_values_of_attributes_are_sentences_with_places_of_their_own(server: RunningServer):
    page = "<p title='The man'>Tom <b title=\"The sea. It is old.\">lives</b> in <img alt='Boston'></p><p>Tom &amp; Tom"
    asked = TEXT(format=HTML, return_sentences=True, translate_attributes=["title", "ALT"])
    result = await result_of(server, page, text=asked)
    assert result.hypotheses[0].text == page
    sources = [page[each.source.begin : each.source.end] for each in result.sentences]
    inside = 'Tom <b title="The sea. It is old.">lives</b> in'
    assert sources == ["The man", inside, "The sea.", "It is old.", "Boston", "Tom &amp; Tom"]
    assert [(each.source.begin, each.source.end) for each in result.sentences] == [
        (each.target.begin, each.target.end) for each in result.sentences
    ]


async def test_links_of_an_alignment_are_in_the_page(server: RunningServer):
    page = "<p>Tom <i>lives</i>. The <b>sea</b></p>"
    result = await result_of(server, page, text=TEXT(format=HTML), options=OPTIONS(return_alignment=True))
    assert result.normalised_text == "Tom lives. The sea"
    text, seen = result.hypotheses[0].text, result.normalised_text
    links = {
        (seen[link.source.begin : link.source.end], text[link.target.begin : link.target.end])
        for link in result.hypotheses[0].alignment
    }
    assert links
    assert all(source == target for source, target in links)


async def test_a_stream_sends_a_page_in_one_delta(server: RunningServer):
    events = await server.stream(PAGES[0], "Tom lives.", options=OPTIONS(beam_size=1), text=TEXT(format=HTML))
    deltas = [event.delta.text for event in events if event.HasField("delta") and event.delta.text_index == 0]
    assert deltas == [PAGES[0]]


async def test_tags_are_placed_by_the_order_of_words_in_a_model_without_attention():
    async with running(bundles=({"alignment": Alignment(0, ())},)) as server:
        for page in PAGES:
            assert (await result_of(server, page, text=TEXT(format=HTML))).hypotheses[0].text == page


async def test_xml_that_is_not_well_formed_is_an_error_of_its_text(server: RunningServer):
    good, bad = (await server.translate("<a>Tom</a>", "<a>Tom", text=TEXT(format=XML))).results
    assert good.hypotheses[0].text == "<a>Tom</a>"
    assert "texts[1] is not well-formed XML: line 1, column" in bad.status.message


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("Tom <code>a</code>" * 10_001, "more than 10000 strings to keep"),
        ("Tom <b>" * 50_001, "more than 50000 tags"),
        ("Tom" + "<i></i>" * 5_001 + "lives", "5001 elements that do not split it in one part, 5000 are allowed"),
        ("<p>Tom" * 1025, "1025 parts between tags that split it; a request may have 1024 sentences at most"),
    ],
    ids=["kept", "tags", "inline", "parts"],
)
async def test_a_page_has_bounds(server: RunningServer, page: str, told: str):
    (result,) = (await server.translate(page, text=TEXT(format=HTML))).results
    assert told in result.status.message


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": TEXT(format=9)}, "text.format has no value 9"),  # type: ignore[arg-type]
        ({"text": TEXT(ignore_tags=["b"])}, "text.ignore_tags needs a text.format with markup"),
        ({"text": TEXT(format=HTML, ignore_tags=["b"] * 257)}, "text.ignore_tags must have at most 256 strings"),
        ({"text": TEXT(translate_attributes=["alt"])}, "text.translate_attributes needs a text.format with markup"),
        (
            {"text": TEXT(format=HTML, translate_attributes=["alt", "a=b"])},
            r"text.translate_attributes\[1\] must be the name of an attribute, which has no '='",
        ),
        ({"text": TEXT(format=HTML, splitting_tags=[" "])}, r"text.splitting_tags\[0\] must have 1 to 256"),
        ({"text": TEXT(format=HTML, splitting_tags=["b"], non_splitting_tags=["B"])}, "'b' is in splitting_tags and"),
        ({"text": TEXT(format=HTML), "target_prefixes": ["a"]}, "target_prefixes cannot be used with a text.format"),
        (
            {"text": TEXT(format=XML), "options": OPTIONS(beam_size=4, forced_words=["Tom"])},
            "text.format must be plain",
        ),
    ],
    ids=str,
)
async def test_options_that_do_not_fit_are_refused(server: RunningServer, fields: dict[str, Any], told: str):
    with pytest.raises(grpc.aio.AioRpcError, match=told) as raised:
        await server.translate("<b>Tom</b>", **fields)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
