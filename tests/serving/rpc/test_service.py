"""The translation service over a real socket: results, their order, streams, options, cancellation, admission."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.client.results import NormalisedText
from lingon.errors import NotBegun
from lingon.segments.layout import Split, TextLayout
from lingon.serving.rpc.calls import deadline_of
from lingon.text import normalise, to_nfc
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import LIMITS, EchoRunner, full_shortlist, running, tokenizer, warning_codes
from tests.support.timing import eventually

TEXTS = ["Tom lives in Boston.", "The old man", "Where is the station?", "what time it is"]
LONG = (
    "The old man and the sea. Tom lives in Boston. " * 3 + "She said: I would like to know what time it is and where."
)
OPTIONS = pb.DecodingOptions


async def test_results_come_in_the_order_of_the_texts_and_name_the_model():
    async with running() as server:
        reply = await server.translate(*TEXTS)
    assert [result.hypotheses[0].text for result in reply.results] == TEXTS
    assert (reply.model, reply.version) == ("en-de", "1")
    assert (reply.source_language_code, reply.target_language_code) == ("en", "de")
    assert all(result.hypotheses[0].finish_reason == pb.FINISH_REASON_END for result in reply.results)


async def test_a_text_that_fails_does_not_fail_the_others():
    async with running(EchoRunner(faulty="Germany")) as server:
        reply = await server.translate("Tom", " \u200b ", LONG, "He has been to Germany", "The sea")
    assert [result.status.code for result in reply.results] == [
        code_pb2.OK,
        code_pb2.OK,
        code_pb2.INVALID_ARGUMENT,
        code_pb2.INTERNAL,
        code_pb2.OK,
    ]
    assert [len(result.hypotheses) for result in reply.results] == [1, 1, 0, 0, 1]


async def test_concurrent_requests_have_the_same_results_as_single_ones():
    texts = [f"Tom lives in Boston {number}" for number in range(40)]
    async with running(EchoRunner(delay=0.001)) as server:
        replies = await asyncio.gather(
            *(server.translate(text, TEXTS[number % 4]) for number, text in enumerate(texts))
        )
    assert [[result.hypotheses[0].text for result in reply.results] for reply in replies] == [
        [text, TEXTS[number % 4]] for number, text in enumerate(texts)
    ]


async def test_results_report_whether_a_shortlist_was_used():
    async with running(EchoRunner(shortlist=full_shortlist())) as server:
        plain = await server.translate(*TEXTS)
        listed = await server.translate(*TEXTS, options=OPTIONS(shortlist=True))
        *_, event = await server.stream("Tom", options=OPTIONS(shortlist=True))
        sampled = await server.translate("Tom", options=OPTIONS(sampling=pb.SamplingOptions()))
        models = (await server.stub.ListModels(pb.ListModelsRequest())).models
    assert {result.shortlist for result in plain.results} == {plain.options.shortlist} == {False}
    assert {result.shortlist for result in listed.results} == {listed.options.shortlist} == {True}
    assert event.done.result.shortlist
    assert not sampled.results[0].shortlist
    assert models[0].has_shortlist


async def test_the_joined_deltas_of_a_stream_are_its_texts():
    texts = [*TEXTS, "Grüße 😀 日本 x²", LONG, "Tom " * 20]
    options = OPTIONS(long_text=pb.LONG_TEXT_POLICY_SPLIT)
    # With a shorter delay the reader is slower than the steps, and one delta has the text of several tokens.
    async with running(EchoRunner(delay=0.02)) as server:
        events = await server.stream(*texts, options=options, target_prefixes=["", "Ich möchte", *[""] * 5])
    joined: dict[int, str] = defaultdict(str)
    for event in events:
        joined[event.delta.text_index] += event.delta.text
    done = {event.done.text_index: event.done.result for event in events if event.WhichOneof("event") == "done"}
    assert events[0].WhichOneof("event") == "start"
    assert events[0].start.options.beam_size == 1
    assert {index: result.hypotheses[0].text for index, result in done.items()} == dict(joined)
    assert sorted(done) == list(range(len(texts)))
    assert len([event for event in events if event.WhichOneof("event") == "delta"]) > 2 * len(texts)


async def test_a_stream_sends_each_text_as_soon_as_it_is_done():
    async with running(EchoRunner(delay=0.002)) as server:
        events = await server.stream("I would like to know what time it is.", "", "Tom")
    done = [event.done.text_index for event in events if event.WhichOneof("event") == "done"]
    assert done == [1, 2, 0]


async def test_beams_stream_results_but_no_deltas():
    async with running() as server:
        events = await server.stream(*TEXTS, options=OPTIONS(beam_size=2, num_hypotheses=2))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["start", *["done"] * len(TEXTS)]


async def test_hypotheses_are_sorted_by_score_and_have_the_requested_number():
    async with running() as server:
        reply = await server.translate(*TEXTS, options=OPTIONS(beam_size=4, num_hypotheses=3))
    for text, result in zip(TEXTS, reply.results, strict=True):
        scores = [hypothesis.score for hypothesis in result.hypotheses]
        assert result.hypotheses[0].text == text
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


async def test_the_reply_contains_the_options_that_were_used():
    async with running() as server:
        plain = await server.translate("Tom")
        sampled = await server.translate("Tom", options=OPTIONS(sampling=pb.SamplingOptions(seed=7)))
    assert plain.options == OPTIONS(
        beam_size=1,
        num_hypotheses=1,
        length_penalty=1.0,
        max_output_tokens=LIMITS.max_target_tokens,
        long_text=pb.LONG_TEXT_POLICY_REFUSE,
        shortlist=False,
        min_output_tokens=0,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
        patience=1.0,
        coverage_penalty=0.0,
        prefix_bias=1.0,
        alternatives=0,
        min_alternative_probability=0.0,
    )
    assert sampled.options.sampling == pb.SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, seed=7)


async def test_sampling_is_repeatable_and_differs_by_seed_and_text():
    def options(seed: int) -> pb.DecodingOptions:
        return OPTIONS(num_hypotheses=4, sampling=pb.SamplingOptions(seed=seed, temperature=4.0))

    async def draw(server: object, seed: int) -> list[list[str]]:
        reply = await server.translate("Tom lives in Boston.", "Tom lives in Boston.", options=options(seed))  # type: ignore[attr-defined]
        return [[hypothesis.text for hypothesis in result.hypotheses] for result in reply.results]

    async with running() as server:
        first, again, other = await draw(server, 1), await draw(server, 1), await draw(server, 2)
    assert first == again != other
    assert first[0] != first[1]
    assert len(set(first[0])) > 1


async def test_tokens_are_returned_with_their_log_probabilities():
    async with running() as server:
        reply = await server.translate("Tom lives in Boston.", options=OPTIONS(return_tokens=True))
    (result,) = reply.results
    (hypothesis,) = result.hypotheses
    assert "".join(token.piece for token in hypothesis.tokens).replace("▁", " ").strip() == "Tom lives in Boston."
    assert all(token.log_prob == pytest.approx(-0.1) for token in hypothesis.tokens)
    assert hypothesis.score == pytest.approx(-0.1)  # normalised by length
    assert result.usage.source_tokens == result.usage.target_tokens == len(hypothesis.tokens) + 1


@pytest.mark.parametrize("text", ["Tom lives  in Boston.", "Grüße 😀 日本!", LONG, LONG.replace(". ", ".\r\n\t")])
async def test_an_alignment_links_spans_of_source_and_target(text: str):
    options = OPTIONS(return_alignment=True, long_text=pb.LONG_TEXT_POLICY_SPLIT)
    async with running() as server:
        (result,) = (await server.translate(text, options=options, text=pb.TextOptions(return_sentences=True))).results
    source, target = result.normalised_text, result.hypotheses[0].text
    links = result.hypotheses[0].alignment
    assert source == " ".join(text.split()) == " ".join(target.split())
    assert len(links) == result.usage.target_tokens - _parts(result)
    for link in links:
        assert source[link.source.begin : link.source.end] == target[link.target.begin : link.target.end] != ""
        assert link.weight == pytest.approx(0.9)


@pytest.mark.parametrize("text", ["\ufeffTom\u00ad lives\u0085in  Bo\u200bston.", f"\u2066{LONG}\u001c The sea.\u2069"])
async def test_spans_of_both_methods_refer_to_the_normalised_text_that_the_result_has(text: str):
    options = OPTIONS(return_alignment=True, long_text=pb.LONG_TEXT_POLICY_SPLIT)
    short = text[-10:]
    async with running() as server:
        (result,) = (await server.translate(text, options=options)).results
        (plain,) = (await server.translate(text, options=OPTIONS(long_text=pb.LONG_TEXT_POLICY_SPLIT))).results
        pairs = [pb.ScorePair(source=short, target=short)]
        (scored,) = (await server.stub.Score(pb.ScoreRequest(pairs=pairs, return_alignment=True))).results
        (unaligned,) = (await server.stub.Score(pb.ScoreRequest(pairs=pairs))).results
    source = NormalisedText(text)
    assert result.normalised_text == source.text
    assert scored.normalised_source == scored.normalised_target == NormalisedText(short).text
    assert (plain.normalised_text, unaligned.normalised_source, unaligned.normalised_target) == ("", "", "")
    for link in result.hypotheses[0].alignment:
        begin, end = source.original_span((link.source.begin, link.source.end))
        target = result.hypotheses[0].text[link.target.begin : link.target.end]
        assert normalise(text[begin:end]) == target.strip()
        assert target
    for link in scored.alignment:
        begin, end = NormalisedText(short).original_span((link.source.begin, link.source.end))
        target = scored.normalised_target[link.target.begin : link.target.end]
        assert normalise(short[begin:end]) == target.strip()
        assert target


def _parts(result: pb.TextResult) -> int:
    """Return the number of parts, each of which has an end token that is in the usage but has no link.

    result: with sentences, of which at most one is in parts
    """
    whole = len(result.sentences)
    split = pb.WARNING_CODE_SPLIT in warning_codes(result)
    return whole - 1 + int(result.warnings[0].message.split()[-2]) if split else whole


async def test_a_long_text_is_refused_or_split_but_never_truncated():
    async with running() as server:
        (refused,) = (await server.translate(LONG)).results
        text = pb.TextOptions(return_sentences=True)
        options = OPTIONS(long_text=pb.LONG_TEXT_POLICY_SPLIT)
        (split,) = (await server.translate(LONG, options=options, text=text)).results
    assert refused.status.code == code_pb2.INVALID_ARGUMENT
    assert split.hypotheses[0].text == LONG
    assert warning_codes(split) == [pb.WARNING_CODE_SPLIT]
    assert split.usage.source_tokens == len(tokenizer().encode_source(LONG)) - 1 + _parts(split)


async def test_a_translation_that_reaches_its_length_limit_has_a_warning():
    async with running(EchoRunner(endless=True)) as server:
        default, bounded = [
            (await server.translate("Tom", options=options, text=pb.TextOptions(guard=pb.GUARD_POLICY_OFF))).results[0]
            for options in (OPTIONS(return_tokens=True), OPTIONS(return_tokens=True, max_output_tokens=3))
        ]
    source = len(tokenizer().encode_source("Tom"))
    for result, bound in ((default, LIMITS.max_output(source)), (bounded, 3)):
        assert result.hypotheses[0].finish_reason == pb.FINISH_REASON_LENGTH
        assert warning_codes(result) == [pb.WARNING_CODE_LENGTH]
        assert len(result.hypotheses[0].tokens) == bound


async def test_a_translation_begins_with_its_prefix():
    async with running() as server:
        reply = await server.translate("Tom lives in Boston.", "Tom", target_prefixes=["Wie geht", ""])
    assert reply.results[0].hypotheses[0].text.startswith("Wie geht")
    assert reply.results[1].hypotheses[0].text == "Tom"


async def test_score_returns_the_probability_of_every_token():
    async with running() as server:
        pairs = [pb.ScorePair(source="Tom lives", target="Tom lives"), pb.ScorePair(source="", target="Tom")]
        reply = await server.stub.Score(pb.ScoreRequest(pairs=pairs, return_alignment=True))
    good, bad = reply.results
    assert good.log_prob == pytest.approx(-0.25 * len(good.tokens))
    assert good.tokens[-1].piece == "</s>"
    spans = [(link.source.begin, link.source.end, link.target.begin, link.target.end) for link in good.alignment]
    assert len(spans) == len(good.tokens) - 1
    assert all((begin, end) == (other_begin, other_end) for begin, end, other_begin, other_end in spans)
    assert [warning.code for warning in bad.warnings] == [pb.WARNING_CODE_EMPTY_SOURCE]


async def test_list_models_returns_the_served_models():
    async with running(bundles=({}, {"name": "en-fr", "target_language": "fr"}), max_texts=7) as server:
        reply = await server.stub.ListModels(pb.ListModelsRequest())
    assert reply.max_texts == 7
    assert [(model.name, model.version, model.target_language_code) for model in reply.models] == [
        ("en-de", "1", "de"),
        ("en-fr", "1", "fr"),
    ]
    assert reply.models[0].max_source_tokens == LIMITS.max_source_tokens
    assert reply.models[0].default_options.beam_size == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_a_cancelled_call_frees_its_rows_at_once(streams: bool):
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        if streams:
            call = server.stub.TranslateStream(pb.TranslateStreamRequest(texts=TEXTS))
            await call.read()
        else:
            call = server.call(*TEXTS)
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == len(TEXTS))
        call.cancel()
        await eventually(lambda: server.loader.engines[0].idle)
        steps = server.runner.steps
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        outcome = {"model": "en-de", "version": "1", "outcome": "CANCELLED"}
        assert server.metric("lingon_sentences_total", **outcome) == len(TEXTS)
        assert server.metric("lingon_texts_total", code="CANCELLED") == len(TEXTS)
        assert server.runner.steps <= steps + 1
        assert (await server.translate("Tom", options=OPTIONS(max_output_tokens=1))).results[0].status.code == 0


async def test_a_text_that_expires_in_the_queue_is_never_decoded():
    async with running(max_rows=1) as server:
        server.runner.gate.clear()
        encoded = server.runner.encoded + 1
        first = server.call("Tom")
        await eventually(lambda: server.runner.encoded == encoded)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.call(*TEXTS, seconds=1.0)
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)  # the server's deadline is later
        server.runner.gate.set()
        await first
        await eventually(lambda: server.loader.engines[0].idle)
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.runner.encoded == encoded
    assert server.metric("lingon_texts_total", code="DEADLINE_EXCEEDED") == len(TEXTS)


async def test_all_texts_of_a_request_are_admitted_or_none():
    async with running(max_rows=1, max_queue_texts=4) as server:
        server.runner.gate.clear()
        running_call = server.call("Tom")
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        waiting = server.call("a", "b", "c")
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") == 3)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.translate("d", "e")
        assert server.metric("lingon_queue_depth", model="en-de", version="1") == 3
        fits = server.call("d")
        server.runner.gate.set()
        assert [len((await call).results) for call in (running_call, waiting, fits)] == [1, 3, 1]
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert server.metric("lingon_rejected_total", reason="QUEUE_FULL") == 1


ODD_TEXTS = [
    "\x00Tom\x00",
    "\u202eright to left\u202c",
    "👩‍👩‍👧 family",
    "e" + "\u0301" * 10,
    "\ufeffTom",
    "ﬁne ½ Ⅲ",
    "नमस्ते",
    "a\u3000b",
    "<s> </s> <pad> <0x41>",
    "\U0010ffff",
]


async def test_odd_texts_are_translated_whole_or_refused():
    async with running() as server:
        reply = await server.translate(*ODD_TEXTS)
        marks = "x" + "\u0301\u0323" * 2_000
        kept, oversized = (await server.translate(marks, "x" * 100_000)).results
    for text, result in zip(ODD_TEXTS, reply.results, strict=True):
        assert result.status.code == code_pb2.OK
        read = text.replace("ﬁ", "fi").replace("Ⅲ", "III")  # the model has these letters and not the others
        document = TextLayout.of(read, Split.OFF)  # invisible characters at its ends are kept
        found = to_nfc(result.hypotheses[0].text)  # what the model cannot read is as it was sent
        assert found == document.join([normalise(document.segment(0))]).text
    assert kept.hypotheses[0].text == marks
    assert oversized.status.code == code_pb2.INVALID_ARGUMENT


async def test_alignments_wait_for_capacity_in_a_queue_of_one():
    options = OPTIONS(beam_size=4, num_hypotheses=3, return_alignment=True)
    async with running(EchoRunner(delay=0.002), max_queue_texts=1) as server:
        calls = [server.call("Tom lives in Boston.", options=options) for _ in range(8)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
    replies = [reply for reply in ended if not isinstance(reply, BaseException)]
    refused = [error for error in ended if isinstance(error, grpc.aio.AioRpcError)]
    assert replies
    assert len(replies) + len(refused) == len(calls)
    assert {error.code() for error in refused} <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for reply in replies:
        assert [len(hypothesis.alignment) > 0 for hypothesis in reply.results[0].hypotheses] == [True] * 3


def test_a_call_whose_deadline_has_passed_raises_not_begun():
    late: Any = SimpleNamespace(time_remaining=lambda: 0.0)
    without: Any = SimpleNamespace(time_remaining=lambda: None)
    with pytest.raises(NotBegun):
        deadline_of(late)
    assert deadline_of(without) is None
