"""A gRPC client in Node, which knows the API by reflection alone: every call ends once, translated as alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.support.foreign_server import QUEUE, ForeignServer, NodeAnswer, call, make_calls
from tests.support.repository import scaled
from tests.support.shipped_model import LINES, bundle

pytestmark = pytest.mark.foreign("node")

ENDS = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
METHODS = ["Translate", "TranslateStream"]
GZIP = 2  # the number of gzip in grpc.default_compression_algorithm
MORE_CALLS = scaled(1, 10)


def test_texts_are_translated_by_calls_and_streams(server: ForeignServer):
    calls = [
        call(
            f"node-{method}-{beam_size}-{place}", *LINES[5 * place : 5 * place + 3], method=method, beam_size=beam_size
        )
        for method in METHODS
        for beam_size in (1, 4)
        for place in range(5)
    ]
    answers = make_calls(server.address, calls)
    assert {answer.code for answer in answers} == {"OK"}
    assert server.violations([answer.outcome for answer in answers]) == []
    assert {answer.outcome.version for answer in answers} == {str(bundle().manifest.version)}


def test_the_deltas_of_a_greedy_stream_are_its_translation(server: ForeignServer):
    calls = [call(f"delta-{place}", text, method="TranslateStream") for place, text in enumerate(LINES[:20])]
    for answer in make_calls(server.address, calls):
        assert answer.text == answer.outcome.results[0].text != ""


def test_1000_calls_at_once_all_end_with_an_answer_or_a_refusal(server: ForeignServer):
    for turn in range(MORE_CALLS):
        calls = [
            call(f"many-{turn}-{place}", LINES[place % 50], method=METHODS[place % len(METHODS)])
            for place in range(1000)
        ]
        answers = make_calls(server.address, calls)
        assert {answer.code for answer in answers} <= {"OK", "RESOURCE_EXHAUSTED"}
        assert refusals_without_a_time_to_retry(answers) == []
        assert server.violations([answer.outcome for answer in answers]) == []


def test_calls_that_find_the_queue_full_are_refused_with_a_time_to_retry(server: ForeignServer):
    calls = [call(f"full-{place}", *LINES[:QUEUE], beam_size=4) for place in range(6)]
    answers = make_calls(server.address, calls)
    assert {answer.code for answer in answers} == {"OK", "RESOURCE_EXHAUSTED"}
    assert refusals_without_a_time_to_retry(answers) == []


def refusals_without_a_time_to_retry(answers: Sequence[NodeAnswer]) -> list[NodeAnswer]:
    """The refused calls that do not say, both in a trailer and in the details, when to try again."""
    refused = [answer for answer in answers if answer.code == "RESOURCE_EXHAUSTED"]
    return [
        answer
        for answer in refused
        if not answer.retry_after or "RetryInfo" not in answer.details or answer.outcome.reason != "QUEUE_FULL"
    ]


def test_calls_that_are_cancelled_or_late_end_once_and_free_their_places(server: ForeignServer):
    draw, calls = random.Random(1), []
    for place in range(200 * MORE_CALLS):
        times = draw.choice(
            [
                {"deadline": draw.uniform(0.001, 0.2)},
                {"cancel_after": draw.uniform(0.001, 0.1)},
                {"cancel_after": 0.0},
                {},
            ]
        )
        wanted = {"method": draw.choice(METHODS), "beam_size": draw.choice([1, 4]), "due": place / 100, **times}
        calls.append(call(f"fate-{place}", draw.choice(LINES[:50]), **wanted))
    answers = make_calls(server.address, calls)
    assert {answer.code for answer in answers} >= {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
    assert {answer.code for answer in answers} <= ENDS
    assert server.violations([answer.outcome for answer in answers]) == []
    seen = {each.code for each in server.process.calls() if each.request_id.startswith("fate-")}
    assert seen >= {"OK", "CANCELLED"}, "no call was cancelled while the server worked on it"


def test_the_details_of_errors_are_decoded(server: ForeignServer):
    calls = [
        call("none"),
        call("beam", "Tom", beam_size=99),
        call("stream", "Tom", method="TranslateStream", beam_size=99),
        {**call("model"), "request": {"texts": ["Tom"], "model": "no"}},
    ]
    answers = make_calls(server.address, calls)
    found = [(answer.code, answer.outcome.reason, sorted(answer.details)) for answer in answers]
    assert found[:3] == [("INVALID_ARGUMENT", "INVALID_FIELD", ["BadRequest", "ErrorInfo"])] * 3
    assert found[3] == ("NOT_FOUND", "UNKNOWN_MODEL", ["ErrorInfo", "ResourceInfo"])
    for answer in answers:
        assert answer.outcome.request_id == answer.outcome.id
        assert answer.message
    fields = [answer.details["BadRequest"]["field_violations"][0]["field"] for answer in answers[:3]]
    assert fields == ["texts", "options.beam_size", "options.beam_size"]


def test_a_request_that_is_compressed_is_translated(server: ForeignServer):
    calls = [call(f"gzip-{place}", " ".join([text] * 2)) for place, text in enumerate(LINES[:6])]
    answers = make_calls(server.address, calls, default_compression_algorithm=GZIP)
    assert {answer.code for answer in answers} == {"OK"}
    assert server.violations([answer.outcome for answer in answers]) == []


def test_metadata_that_is_too_large_ends_its_own_call_only(server: ForeignServer):
    sizes = {"small": 7000, "large": 30_000, "huge": 1_000_000}
    calls = [
        call(f"{size}-{place}", LINES[place], metadata={"x-trace": "v" * length})
        for place in range(10)
        for size, length in sizes.items()
    ]
    answers = make_calls(server.address, calls)
    codes = {(answer.outcome.id.partition("-")[0], answer.code) for answer in answers}
    assert codes == {("small", "OK"), ("large", "RESOURCE_EXHAUSTED"), ("huge", "RESOURCE_EXHAUSTED")}


def test_a_client_that_pings_too_often_loses_its_connection_alone(server: ForeignServer):
    """grpc-js reports ENHANCE_YOUR_CALM, with which gRPC closes such a connection, as RESOURCE_EXHAUSTED."""
    pings = {"keepalive_time_ms": 5, "keepalive_timeout_ms": 5000}
    hasty = [call(f"ping-{place}", " ".join(LINES[:6]), beam_size=4) for place in range(20)]
    assert {answer.code for answer in make_calls(server.address, hasty, **pings)} <= {"OK", "RESOURCE_EXHAUSTED"}
    calm = make_calls(server.address, [call(f"calm-{place}", LINES[place]) for place in range(5)])
    assert {answer.code for answer in calm} == {"OK"}
    assert server.violations([answer.outcome for answer in calm]) == []
