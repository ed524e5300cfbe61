"""Pairs of languages that no model translates, and two models do through a pivot language."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.bundle.manifest import Confidence, TextData
from lingon.language_tags import ServedPairs
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, running, tokenizer
from tests.support.gateway import BUNDLES, TwoModels
from tests.support.timing import eventually

GERMAN = {"source_language_code": "de", "target_language_code": "fr"}
OPTIONS = pb.DecodingOptions


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running(bundles=BUNDLES, loader=TwoModels) as started:
        yield started


def texts_of(reply: pb.TranslateResponse) -> list[str]:
    return [result.hypotheses[0].text if result.hypotheses else "" for result in reply.results]


async def test_a_pair_is_translated_through_the_pivot_and_the_reply_says_so(server: RunningServer):
    reply = await server.translate("Der alte Mann.\n\nWo ist er?  Das Meer.", **GERMAN)
    assert texts_of(reply) == ["Le vieil homme.\n\nOù ? Est-il là ?  La mer."]
    assert (reply.model, reply.version, reply.pivot_language_code) == ("de-en+en-fr", "1+1", "en")
    assert (reply.source_language_code, reply.target_language_code) == ("de", "fr")
    direct = await server.translate("The sea.", source_language_code="en", target_language_code="fr")
    assert (texts_of(direct), direct.model, direct.pivot_language_code) == (["La mer."], "en-fr", "")
    assert (await server.stub.ListModels(pb.ListModelsRequest())).pivot_language_code == "en"


@pytest.mark.parametrize("sentences", [False, True])
async def test_a_stream_sends_what_the_reply_has(server: RunningServer, sentences: bool):
    texts, text = ["Der alte Mann. Das Meer.", " ", "Wo ist er?", "Nichts."], pb.TextOptions(return_sentences=sentences)
    reply = await server.translate(*texts, text=text, **GERMAN)
    assert [len(result.sentences) for result in reply.results] == ([2, 0, 1, 1] if sentences else [0, 0, 0, 0])
    start, *events = await server.stream(*texts, text=text, **GERMAN)
    assert (start.start.model, start.start.pivot_language_code) == ("de-en+en-fr", "en")
    done = {event.done.text_index: event.done.result for event in events if event.HasField("done")}
    assert [done[place] for place in range(len(texts))] == list(reply.results)
    deltas = [[event.delta.text for event in events if event.delta.text_index == place] for place in range(len(texts))]
    assert ["".join(parts) for parts in deltas] == texts_of(reply)


async def test_a_text_that_one_of_the_models_does_not_translate_has_its_error(server: RunningServer):
    server.loader.runners["de-en"].faulty = tokenizer().encode_source("Germany")[0]
    server.loader.runners["en-fr"].faulty = tokenizer().encode_source("Boston")[0]
    reply = await server.translate("Das Meer.", " ", "Germany", "Tom lives in Boston", "Nichts.", **GERMAN)
    codes = [code_pb2.OK, code_pb2.OK, code_pb2.INTERNAL, code_pb2.INTERNAL, code_pb2.OK]
    assert [result.status.code for result in reply.results] == codes
    assert reply.results[3].status.message.startswith("translated to en: ")
    assert texts_of(reply) == ["La mer.", " ", "", "", ""]
    assert pb.WARNING_CODE_EMPTY in [warning.code for warning in reply.results[4].warnings]


async def test_sentences_are_those_of_the_source_and_its_last_translation(server: RunningServer):
    source = " Der alte Mann. Wo ist er?  Nichts. Das Meer."
    (result,) = (await server.translate(source, text=pb.TextOptions(return_sentences=True), **GERMAN)).results
    text = result.hypotheses[0].text
    found = [
        (source[each.source.begin : each.source.end], text[each.target.begin : each.target.end])
        for each in result.sentences
    ]
    assert found == [
        ("Der alte Mann.", "Le vieil homme."),
        ("Wo ist er?", "Où ? Est-il là ?"),
        ("Nichts.", ""),
        ("Das Meer.", "La mer."),
    ]
    assert pb.WARNING_CODE_EMPTY in result.sentences[2].warnings


@pytest.mark.parametrize("asked", [False, True])
async def test_a_text_for_which_the_first_model_writes_nothing_has_sentences_if_they_are_asked_for(
    server: RunningServer, asked: bool
):
    (result,) = (await server.translate("Nichts.", text=pb.TextOptions(return_sentences=asked), **GERMAN)).results
    assert [(each.source.end, each.target.end) for each in result.sentences] == [(7, 0)] * asked


async def test_a_confidence_is_the_product_of_both():
    measured = [{**each, "text": TextData((), (), Confidence(3.0, {"mean": 1.0}, 0.2, ()))} for each in BUNDLES]
    async with running(bundles=tuple(measured), loader=TwoModels) as server:
        german, english = ({"source_language_code": tag, "target_language_code": "fr"} for tag in ("de", "en"))
        (through,) = (await server.translate("Das Meer.", **german)).results
        *_, event = await server.stream("Das Meer.", **german)
        (second,) = (await server.translate("The sea.", **english)).results
        (first,) = (await server.translate("Das Meer.", source_language_code="de", target_language_code="en")).results
    assert 0 < first.confidence < 1
    assert through.confidence == event.done.result.confidence == pytest.approx(first.confidence * second.confidence)


async def test_what_restricts_translations_is_for_the_target_language_alone(server: RunningServer):
    options = OPTIONS(forced_words=["Tom"], beam_size=4, num_hypotheses=2)
    reply = await server.translate("Das Meer.", "Der alte Mann.", options=options, **GERMAN)
    assert ["Tom" in text for text in texts_of(reply)] == [True, True]
    assert [len(result.hypotheses) for result in reply.results] == [2, 2]
    assert (reply.options.num_hypotheses, reply.options.beam_size) == (2, 4)
    reply = await server.translate("Das Meer.", " ", "Der alte Mann.", target_prefixes=["Tom", "", ""], **GERMAN)
    assert texts_of(reply)[0].startswith("Tom")
    assert texts_of(reply)[2] == "Le vieil homme."


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"options": OPTIONS(return_alignment=True)}, grpc.StatusCode.UNIMPLEMENTED),
        ({"options": OPTIONS(beam_size=99)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target_prefixes": ["La", "mer"]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"model": "de-en"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target_language_code": "de-AT"}, grpc.StatusCode.NOT_FOUND),
        ({"source_language_code": "it"}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_what_two_models_cannot_do_is_refused_before_one_works(
    server: RunningServer, fields: dict[str, Any], code: grpc.StatusCode
):
    before = [runner.encoded for runner in server.loader.runners.values()]  # by the warm-up
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await server.translate("Das Meer.", **{**GERMAN, **fields})
    assert error.value.code() == code
    assert [runner.encoded for runner in server.loader.runners.values()] == before


async def test_scores_need_one_model(server: RunningServer):
    pairs = [pb.ScorePair(source="Das Meer.", target="La mer.")]
    with pytest.raises(grpc.aio.AioRpcError, match="no model translates from de to fr"):
        await server.stub.Score(pb.ScoreRequest(pairs=pairs, **GERMAN))


async def test_without_a_pivot_language_the_pair_is_not_translated():
    async with running(bundles=BUNDLES, loader=TwoModels, pivot_language="none") as server:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await server.translate("Das Meer.", **GERMAN)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        assert not (await server.stub.ListModels(pb.ListModelsRequest())).pivot_language_code


async def test_each_model_counts_what_it_translated_and_stays_until_both_are_done(server: RunningServer):
    second, entries = server.loader.runners["en-fr"], server.server._registry.catalog.entries
    before = second.encoded
    second.gate.clear()
    call = server.call("Das Meer.", "Nichts.", **GERMAN)
    await eventually(lambda: second.encoded > before)
    assert [entry.model.in_flight.count for entry in entries] == [1, 1]
    second.gate.set()
    await call
    await eventually(lambda: not any(entry.model.in_flight.count for entry in entries))
    counted = [server.metric("lingon_translated_texts_total", model=name, version="1") for name in ("de-en", "en-fr")]
    assert counted == [2, 1]


async def test_a_full_queue_of_the_second_model_delays_texts_that_the_first_one_has_translated():
    async with running(bundles=BUNDLES, loader=TwoModels, max_queue_texts=2, max_rows=1) as server:
        first, second = server.loader.runners.values()
        before = first.encoded
        first.gate.clear()
        second.gate.clear()
        call = server.call("Das Meer.", **GERMAN)
        await eventually(lambda: first.encoded > before)
        english = {"source_language_code": "en", "target_language_code": "fr"}
        others = [asyncio.ensure_future(server.translate("The sea.", **english))]
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-fr", version="1") == 1)
        others += [asyncio.ensure_future(server.translate("The sea.", **english)) for _ in range(2)]
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-fr", version="1") == 2)
        with pytest.raises(grpc.aio.AioRpcError, match="1 more would exceed the limit of 2"):
            await server.translate("Das Meer.", seconds=5, **GERMAN)
        first.gate.set()
        await asyncio.sleep(0.1)
        second.gate.set()
        assert texts_of(await call) == ["La mer."]
        assert [texts_of(await each) for each in others] == [["La mer."]] * 3


@pytest.mark.parametrize(("pivots", "named"), [("en", ["en"]), ("any", ["en"]), ("nl,en", ["nl", "en"])])
async def test_the_pivot_languages_are_listed_and_their_pairs_are_served(pivots: str, named: list[str]):
    async with running(bundles=BUNDLES, loader=TwoModels, pivot_language=pivots) as server:
        listed = await server.stub.ListModels(pb.ListModelsRequest())
        assert (listed.pivot_language_code, list(listed.pivot_language_codes)) == (named[0], named)
        assert ("de", "fr") in ServedPairs.of(listed).pairs
        assert (await server.translate("Das Meer.", **GERMAN)).pivot_language_code == "en"
