"""What the service does about translations that it suspects, and what it says of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.bundle.manifest import Confidence, LengthRange, Limits, TextData
from lingon.bundle.names import PROFILES
from lingon.serving.guard import profile
from lingon.text import EOS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, running, tokenizer
from tests.support.repository import ROOT
from tests.support.shipped_model import LINES

OPTIONS, TEXT = pb.DecodingOptions, pb.TextOptions
OFF, WARN, RETRY, REFUSE = (getattr(pb, f"GUARD_POLICY_{name}") for name in ("OFF", "WARN", "RETRY", "REFUSE"))
GERMAN = (ROOT / "tests" / "data" / "tatoeba.de").read_text(encoding="utf-8").splitlines()
Says = Callable[[list[int]], list[int]]
LOOP = "The old man and the sea, where is the station"
MEASURED: dict[str, Any] = {"text": TextData((), (), Confidence(3.0, {"mean": 1.0}, 0.2, ()))}


def codes(result: pb.TextResult) -> list[int]:
    return [warning.code for warning in result.warnings]


async def result_of(server: Any, source: str, **fields: Any) -> pb.TextResult:
    (result,) = (await server.translate(source, **fields)).results
    return result


async def test_a_loop_is_cut_while_it_is_decoded():
    async with running(EchoRunner(endless=True)) as server:
        whole, cut = [await result_of(server, LOOP, text=TEXT(guard=guard)) for guard in (OFF, WARN)]
    assert pb.WARNING_CODE_REPETITION not in codes(whole)
    assert pb.WARNING_CODE_REPETITION in codes(cut)
    assert cut.usage.target_tokens < whole.usage.target_tokens
    assert whole.hypotheses[0].text.startswith(cut.hypotheses[0].text)


async def test_a_prefix_of_any_length_is_no_loop():
    words = "Tom " * 12
    async with running(EchoRunner(endless=True)) as server:
        for count in range(1, 13):
            options, prefix = OPTIONS(beam_size=1), words[: 4 * count]
            (result,) = (await server.translate(LOOP, target_prefixes=[prefix], options=options)).results
            assert result.hypotheses[0].text.startswith(prefix.strip())


async def test_a_loop_is_translated_once_more_and_the_better_translation_is_returned():
    async with running(EchoRunner(endless=True)) as server:
        result = await result_of(server, LOOP, options=OPTIONS(beam_size=1), text=TEXT(return_sentences=True))
        assert server.metric("lingon_degenerate_total", model="en-de", version="1", reason="retried") == 1
    assert pb.WARNING_CODE_RETRIED in codes(result)
    assert pb.WARNING_CODE_REPETITION not in codes(result)
    assert pb.WARNING_CODE_RETRIED in result.sentences[0].warnings


async def test_only_the_sentence_that_loops_is_translated_again():
    text = "Tom lives in Boston. The man lives. The old man and the sea."
    async with running() as server:
        plain = await result_of(server, text, options=OPTIONS(beam_size=1), text=TEXT(return_sentences=True))
    assert pb.WARNING_CODE_RETRIED not in codes(plain)
    assert plain.hypotheses[0].text == text


async def test_a_stream_warns_and_takes_nothing_back():
    async with running(EchoRunner(endless=True)) as server:
        events = await server.stream(LOOP, options=OPTIONS(beam_size=1))
    (result,) = [event.done.result for event in events if event.HasField("done")]
    assert pb.WARNING_CODE_REPETITION in codes(result)
    assert pb.WARNING_CODE_RETRIED not in codes(result)
    deltas = [event.delta.text for event in events if event.HasField("delta")]
    assert "".join(deltas) == result.hypotheses[0].text


async def test_a_text_is_refused_and_the_others_are_not():
    async with running(EchoRunner(endless=True)) as server:
        good, bad = (
            await server.translate("https://example.com", LOOP, text=TEXT(guard=REFUSE), options=OPTIONS(beam_size=1))
        ).results
    assert good.hypotheses[0].text == "https://example.com"
    assert (bad.status.code, bad.status.message) == (
        code_pb2.FAILED_PRECONDITION,
        "the translation repeats itself",
    )
    assert not bad.hypotheses


async def test_a_page_that_is_refused_ends_its_stream_with_the_error():
    refuse = TEXT(guard=REFUSE, format=pb.TEXT_FORMAT_HTML)
    async with running(EchoRunner(endless=True)) as server:
        events = await server.stream(f"<p>{LOOP}</p>", text=refuse, options=OPTIONS(beam_size=1))
    (result,) = [event.done.result for event in events if event.HasField("done")]
    assert result.status.code == code_pb2.FAILED_PRECONDITION
    assert not [event for event in events if event.HasField("delta")]


async def test_each_sentence_has_its_confidence_and_the_text_the_lowest():
    text = "Tom lives in Boston. The {name} and the sea. THE OLD MAN. https://example.com"
    async with running(bundles=(MEASURED,)) as server:
        result = await result_of(server, text, text=TEXT(return_sentences=True), options=OPTIONS(beam_size=2))
        off = await result_of(server, text, text=TEXT(return_sentences=True, guard=OFF))
        (model,) = (await server.stub.ListModels(pb.ListModelsRequest())).models
    assert model.has_confidence
    found = [each.confidence for each in result.sentences if each.HasField("confidence")]
    assert len(found) == len(result.sentences) - text.endswith("com")
    assert all(0 < each < 1 for each in found)
    assert result.confidence == min(found)
    assert not off.HasField("confidence")
    assert not any(each.HasField("confidence") for each in off.sentences)
    assert codes(off) == [pb.WARNING_CODE_MARKUP_SPLIT]


async def test_a_confidence_below_that_of_usual_sentences_is_a_warning():
    low = TextData((), (), Confidence(-3.0, {}, 0.2, ()))
    async with running(bundles=({"text": low},)) as server:
        result = await result_of(server, "Tom lives.")
    assert pb.WARNING_CODE_LOW_CONFIDENCE in codes(result)
    assert result.confidence == pytest.approx(0.047, abs=1e-3)


async def test_a_model_without_text_data_has_no_confidence():
    async with running() as server:
        result = await result_of(server, "Tom lives.", text=TEXT(return_sentences=True))
        (model,) = (await server.stub.ListModels(pb.ListModelsRequest())).models
    assert not model.has_confidence
    assert not result.HasField("confidence")
    assert not result.sentences[0].HasField("confidence")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": TEXT(guard=9)}, "text.guard has no value 9"),  # type: ignore[arg-type]
        ({"options": OPTIONS(beam_size=2, num_hypotheses=2)}, "must not be GUARD_POLICY_RETRY with num_hypotheses"),
        (
            {"options": OPTIONS(beam_size=1, sampling=pb.SamplingOptions())},
            "must not be GUARD_POLICY_RETRY with sampling",
        ),
        ({"options": OPTIONS(no_repeat_ngram_size=3)}, "must not be GUARD_POLICY_RETRY with no_repeat_ngram_size"),
    ],
    ids=str,
)
async def test_a_second_try_that_is_not_possible_is_refused(fields: dict[str, Any], told: str):
    async with running() as server:
        with pytest.raises(grpc.aio.AioRpcError, match=told) as raised:
            await server.translate("Tom", **{"text": TEXT(guard=RETRY), **fields})
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def loop(source: list[int]) -> list[int]:
    return [*(source[:2] * 20), EOS]


def copy(source: list[int]) -> list[int]:
    return source


def nothing(source: list[int]) -> list[int]:
    return [EOS]


def english(source: list[int]) -> list[int]:
    return tokenizer().encode_source("She said that it would be the best of all the things they had seen there.")


def far_too_short(source: list[int]) -> list[int]:
    return tokenizer().encode_source("Ja")


@pytest.mark.parametrize(
    ("fault", "flag"),
    [
        (loop, pb.WARNING_CODE_REPETITION),
        (copy, pb.WARNING_CODE_COPY),
        (nothing, pb.WARNING_CODE_EMPTY),
        (english, pb.WARNING_CODE_WRONG_LANGUAGE),
        (far_too_short, pb.WARNING_CODE_LENGTH_RATIO),
    ],
)
async def test_a_bundle_with_a_fault_is_flagged_for_every_sentence(fault: Says, flag: int):
    limits = Limits(max_source_tokens=200, max_target_tokens=300, output_factor=2.0, output_extra=50, max_beam_size=4)
    text = TextData((), (LengthRange(400, 0.5, 2.0),), Confidence(3.0, {"mean": 1.0}, 0.2, ()))
    declared = {"text": text, "limits": limits, "files": {PROFILES: profile(LINES) + profile(GERMAN)}}
    known = [line for line in LINES if tokenizer().unreadable.isdisjoint(tokenizer().encode_source(line))]
    texts = [line for line in known if len(line.split()) > 5][:60]  # of others, the model reads a part
    async with running(EchoRunner(says=fault, limits=limits), bundles=(declared,)) as server:
        options = OPTIONS(beam_size=1, long_text=pb.LONG_TEXT_POLICY_SPLIT)
        results = (await server.translate(*texts, text=TEXT(guard=WARN), options=options)).results
    assert len(results) == 60
    assert [flag in codes(result) for result in results] == [True] * 60
