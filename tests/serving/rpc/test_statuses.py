"""Every status of the table in lingon/errors.py over a real socket, with the details that clients use."""

from __future__ import annotations

import asyncio
import logging

import pytest
from google.rpc import code_pb2

from lingon.bundle.manifest import Alignment
from lingon.errors import RequestError
from lingon.status import to_status
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CANARY, BrokenEngine, EchoRunner, details, failure, running
from tests.support.timing import eventually

TWO_MODELS = ({}, {"name": "other"}, {"name": "en-fr", "target_language": "fr"})


OUT_OF_BOUNDS = {
    "texts": {"texts": []},
    "target_prefixes": {"target_prefixes": ["a", "b"]},
    "options.beam_size": {"options": pb.DecodingOptions(beam_size=5)},
    "options.num_hypotheses": {"options": pb.DecodingOptions(num_hypotheses=2)},
    "options.length_penalty": {"options": pb.DecodingOptions(length_penalty=float("nan"))},
    "options.max_output_tokens": {"options": pb.DecodingOptions(max_output_tokens=0)},
    "options.sampling.temperature": {"options": pb.DecodingOptions(sampling=pb.SamplingOptions(temperature=0))},
    "options.sampling.top_p": {"options": pb.DecodingOptions(sampling=pb.SamplingOptions(top_p=1.5))},
    "options.min_output_tokens": {"options": pb.DecodingOptions(min_output_tokens=9, max_output_tokens=8)},
    "options.no_repeat_ngram_size": {"options": pb.DecodingOptions(no_repeat_ngram_size=33)},
    "options.repetition_penalty": {"options": pb.DecodingOptions(repetition_penalty=0.5)},
    "options.forbidden_words": {"options": pb.DecodingOptions(forbidden_words=["a"] * 65)},
    "options.forced_words": {"options": pb.DecodingOptions(forced_words=["Tom lives in Boston."], max_output_tokens=2)},
    "options.patience": {"options": pb.DecodingOptions(patience=0)},
    "options.coverage_penalty": {"options": pb.DecodingOptions(coverage_penalty=-1)},
    "options.prefix_bias": {"options": pb.DecodingOptions(prefix_bias=1.5)},
    "options.alternatives": {"options": pb.DecodingOptions(alternatives=2**32 - 1)},
    "options.min_alternative_probability": {"options": pb.DecodingOptions(min_alternative_probability=1.5)},
    "options.long_text": {"options": pb.DecodingOptions(long_text=9)},  # type: ignore[arg-type]
    "source_language_code": {"source_language_code": "English!"},
    "model": {"model": "en-de", "target_language_code": "it"},
}


@pytest.mark.parametrize("field", OUT_OF_BOUNDS)
@pytest.mark.parametrize("method", ["Translate", "TranslateStream"])
async def test_a_value_out_of_bounds_is_refused_with_the_name_of_its_field(field: str, method: str):
    async with running() as server:
        values = {"texts": ["Tom"], **OUT_OF_BOUNDS[field]}
        if method == "Translate":
            call = server.stub.Translate(pb.TranslateRequest(**values))
        else:
            call = server.stream(*values.pop("texts"), **values)
        status, _ = await failure(call)
    (violation,) = details(status)["BadRequest"].field_violations
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert violation.field == field
    assert field in violation.description


async def test_too_many_texts_are_refused_with_bound_and_number():
    async with running(max_texts=3) as server:
        status, _ = await failure(server.translate(*"abcd"))
        pairs = [pb.ScorePair(source="a", target="b")] * 4
        scoring, _ = await failure(server.stub.Score(pb.ScoreRequest(pairs=pairs)))
    assert status.message == "texts must be 1 to 3, got 4"
    assert scoring.message == "pairs must be 1 to 3, got 4"


async def test_a_request_larger_than_the_queue_has_no_retry_delay():
    async with running(max_queue_texts=2) as server:
        status, _ = await failure(server.translate("a", "b", "c"))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert "RetryInfo" not in details(status)


async def test_bad_utf8_is_an_invalid_argument():
    async with running() as server:
        call = server.channel.unary_unary("/lingon.translation.v1.TranslationService/Translate")
        status, _ = await failure(call(b"\x0a\x02\xff\xfe"))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert details(status)["BadRequest"].field_violations[0].field == "request"


async def test_errors_of_single_texts_have_details():
    async with running() as server:
        good, long = (await server.translate("", "Tom lives in Boston " * 30)).results
    assert good.status.code == code_pb2.OK
    assert long.status.code == code_pb2.INVALID_ARGUMENT
    assert details(long.status)["ErrorInfo"].reason == "TEXT_TOO_LONG"
    assert details(long.status)["BadRequest"].field_violations[0].field == "texts[1]"


async def test_an_unknown_model_is_not_found():
    async with running() as server:
        by_name, _ = await failure(server.translate("Tom", model="nope/3"))
        by_pair, _ = await failure(server.translate("Tom", source_language_code="it"))
    assert by_name.code == by_pair.code == code_pb2.NOT_FOUND
    assert details(by_name)["ResourceInfo"].resource_name == "nope/3"
    assert "en-de/1 (en to de)" in by_pair.message


async def test_a_language_pair_selects_the_model_and_an_ambiguous_one_names_the_candidates():
    async with running(bundles=TWO_MODELS) as server:
        french = await server.translate("Tom", source_language_code="eng_Latn", target_language_code="FR-ca")
        german = await server.translate("Tom", model="other", source_language_code="en-US")
        status, _ = await failure(server.translate("Tom", target_language_code="de"))
    assert (french.model, german.model) == ("en-fr", "other")
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert "en-de/1" in status.message
    assert "other/1" in status.message


async def test_a_name_without_a_version_selects_the_highest_version():
    async with running(bundles=({}, {"version": 9}, {"version": 10})) as server:
        # Only the highest version in the folder of a model is loaded.
        assert (await server.translate("Tom", model="en-de")).version == "10"
        status, _ = await failure(server.translate("Tom", model="en-de/9"))
    assert status.code == code_pb2.NOT_FOUND


async def test_options_that_a_model_does_not_support_are_unimplemented():
    async with running(bundles=({"alignment": Alignment(0, ())},)) as server:
        options = pb.DecodingOptions(return_alignment=True)
        status, _ = await failure(server.translate("Tom", options=options))
        pairs = [pb.ScorePair(source="a", target="b")]
        scoring, _ = await failure(server.stub.Score(pb.ScoreRequest(pairs=pairs, return_alignment=True)))
        listed, _ = await failure(server.translate("Tom", options=pb.DecodingOptions(shortlist=True)))
    for found in (status, scoring, listed):
        assert found.code == code_pb2.UNIMPLEMENTED
        assert details(found)["ErrorInfo"].reason == "UNSUPPORTED_OPTION"


async def test_a_full_queue_has_a_retry_delay():
    async with running(max_rows=1, max_queue_texts=1) as server:
        server.runner.gate.clear()
        calls = [server.call("Tom")]
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        calls.append(server.call("Tom"))
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") == 1)
        status, _ = await failure(server.translate("Tom"))
        server.runner.gate.set()
        await asyncio.gather(*calls)
    assert status.code == code_pb2.RESOURCE_EXHAUSTED
    assert details(status)["ErrorInfo"].reason == "QUEUE_FULL"
    assert details(status)["RetryInfo"].retry_delay.ToMilliseconds() > 0


async def test_a_message_over_the_limit_is_refused():
    async with running(max_message_bytes=2048) as server:
        status, _ = await failure(server.translate("a" * 4096))
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK
    assert status.code == code_pb2.RESOURCE_EXHAUSTED


async def test_a_starting_server_is_unavailable():
    async with running(ready=False) as server:
        status, _ = await failure(server.translate("Tom"))
        server.loader.gate.set()
    assert status.code == code_pb2.UNAVAILABLE
    assert details(status)["ErrorInfo"].reason == "DRAINING"
    assert details(status)["RetryInfo"].retry_delay.ToMilliseconds() > 0


async def test_an_unexpected_error_is_internal_and_reveals_only_the_request_id(caplog: pytest.LogCaptureFixture):
    async with running(engine=BrokenEngine) as server:
        metadata = (("x-request-id", "mine-1"),)
        request = pb.TranslateRequest(texts=[f"{CANARY} text"])
        status, trailers = await failure(server.stub.Translate(request, metadata=metadata))
        invalid_id = (("x-request-id", f"{CANARY} with spaces"),)
        other, other_trailers = await failure(server.stub.Translate(request, metadata=invalid_id))
    assert status.code == other.code == code_pb2.INTERNAL
    assert status.message == "internal error; the server's log has its cause under request id mine-1"
    assert trailers["x-request-id"] == "mine-1"
    assert CANARY not in other_trailers["x-request-id"]
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.fields["error"] == "ValueError"  # type: ignore[attr-defined]
    assert record.fields["request_id"] == "mine-1"  # type: ignore[attr-defined]
    assert any("in submit" in line for line in record.fields["traceback"])  # type: ignore[attr-defined]


async def test_every_reply_has_the_request_id():
    async with running() as server:
        call = server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=(("x-request-id", "abc/1"),))
        await call
        assert dict(await call.trailing_metadata())["x-request-id"] == "abc/1"
        call = server.stub.Translate(pb.TranslateRequest(texts=["Tom"]))
        await call
        assert len(dict(await call.trailing_metadata())["x-request-id"]) == 32


async def test_expired_and_cancelled_calls_are_counted_by_code():
    async with running(EchoRunner(endless=True, delay=0.01)) as server:
        server.runner.gate.clear()
        late, _ = await failure(server.call("Tom", seconds=1.0))
        server.runner.gate.set()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        call = server.call("Tom")
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        for code in ("DEADLINE_EXCEEDED", "CANCELLED"):
            assert server.metric("lingon_requests_total", method="Translate", code=code) == 1
            assert server.metric("lingon_texts_total", code=code) == 1
    assert late.code == code_pb2.DEADLINE_EXCEEDED


def _family(kind: type[RequestError] = RequestError) -> list[type[RequestError]]:
    return [found for child in kind.__subclasses__() for found in [child, *_family(child)]]


@pytest.mark.parametrize("kind", _family(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_with_its_code_and_reason(kind: type[RequestError]):
    arguments = {
        "InvalidRequest": ("field",),
        "TextTooLong": ("field",),
        "RequestTooLarge": ("field",),
        "UnknownModel": ("x",),
        "NotStored": ("glossary", "x"),
    }
    status = to_status(kind(*arguments.get(kind.__name__, ()), "what is wrong"))
    assert (status.code, status.message) == (kind.code, "what is wrong")
    assert details(status)["ErrorInfo"].reason == kind.reason
    assert status.code not in (code_pb2.OK, code_pb2.UNKNOWN)
