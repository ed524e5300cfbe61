"""Traces as a collector receives them from real servers: what is below what, when it was, and what is not in them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from opentelemetry.semconv._incubating.attributes import rpc_attributes
from prometheus_client.openmetrics import exposition

from lingon.serving.decoding.job import PhaseTimes
from lingon.serving.runtime.runner import Encoded
from lingon.serving.server import SERVICE
from lingon.text import EOS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import engine_harness
from tests.support.echo_engine import EchoRunner, running
from tests.support.timing import eventually
from tests.support.trace_collector import PHASES, UNSET, SpanCollector, names, running_collector, values

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
CANARY = "Boston"  # must not be in any span
DEPRECATED = set(
    re.findall(r'^[A-Z_]+: Final = "(.+)"\n"""\nDeprecated', Path(rpc_attributes.__file__).read_text(), re.MULTILINE)
)
"""Names of attributes that the installed conventions advise against."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanCollector]:
    with running_collector(monkeypatch) as found:
        yield found


async def test_every_sentence_has_spans_of_its_phases_below_the_span_of_its_call(collector: SpanCollector):
    async with running(EchoRunner(delay=0.002), traces=True) as server:
        call = server.call("Tom lives", "the sea", "")
        await call
        request_id = dict(await call.trailing_metadata())["x-request-id"]
    whole = collector.call()
    assert whole.name == f"{SERVICE}/Translate"
    assert values(whole) == {
        "rpc.system.name": "grpc",
        "rpc.method": f"{SERVICE}/Translate",
        "rpc.response.status_code": "OK",
        "lingon.request_id": request_id,
        "lingon.caller": "address/127.0.0.1",
        "lingon.texts": 3,
        "lingon.model": "en-de/1",
    }
    assert not whole.parent_span_id
    assert whole.status.code == UNSET
    for text in (0, 1):
        spans = collector.phases(text)
        assert names(spans) == PHASES
        for span in spans:
            assert (span.trace_id, span.parent_span_id) == (whole.trace_id, whole.span_id)
            assert whole.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= whole.end_time_unix_nano
        queue, encode, decode, detokenise = spans
        assert queue.end_time_unix_nano == encode.start_time_unix_nano
        assert encode.end_time_unix_nano == decode.start_time_unix_nano
        assert decode.end_time_unix_nano <= detokenise.start_time_unix_nano
        assert decode.end_time_unix_nano - decode.start_time_unix_nano >= 3 * 2_000_000, "three steps at least"
    assert collector.phases(2) == [], "an empty text has no phases"
    assert abs(whole.end_time_unix_nano / 1e9 - time.time()) < 60


@pytest.mark.parametrize("name", [None, "translator-7"])
async def test_the_service_name_comes_from_the_environment(
    collector: SpanCollector, monkeypatch: pytest.MonkeyPatch, name: str | None
):
    if name:
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    async with running(traces=True) as server:
        await server.translate("Tom")
    resource = collector.requests[0].resource_spans[0].resource
    assert values(resource)["service.name"] == (name or "lingon")
    assert values(resource)["telemetry.sdk.language"] == "python"


async def test_the_queue_span_lasts_until_the_batch_has_a_free_row(collector: SpanCollector):
    runner = EchoRunner()
    async with running(runner, traces=True, max_rows=1) as server:
        runner.gate.clear()
        calls = [server.call("Tom"), server.call("Tom")]
        labels = {"model": "en-de", "version": "1"}
        await eventually(lambda: server.metric("lingon_running_sentences", **labels) == 1)
        await eventually(lambda: server.metric("lingon_queue_depth", **labels) == 1)
        opened = time.time_ns()
        runner.gate.set()
        await asyncio.gather(*calls)
    waits = [span for span in collector.spans if span.name == "queue"]
    assert [span.end_time_unix_nano > opened for span in waits] == [False, True]


async def test_no_name_of_an_attribute_is_deprecated(collector: SpanCollector):
    async with running(EchoRunner(faulty="sea"), traces=True) as server:
        await server.translate("Tom", "the sea")
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom", model="none")
    names_of_rpc = {name for span in collector.spans for name in values(span) if name.startswith("rpc.")}
    assert names_of_rpc == {"rpc.system.name", "rpc.method", "rpc.response.status_code"}
    assert "rpc.grpc.status_code" in DEPRECATED
    assert not names_of_rpc & DEPRECATED


class SlowEncoder(EchoRunner):
    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        time.sleep(0.05)
        return super().encode(source_ids, source_lengths)


def test_the_engine_writes_the_time_of_every_phase():
    runner = SlowEncoder(delay=0.02)
    with engine_harness.running_engine(runner) as engine:
        jobs = [engine.job((5, 6, EOS), index) for index in range(2)]
        for job in jobs:
            job.phase_times = PhaseTimes(time.monotonic())
        engine.engine.submit(jobs)
        engine.collect(2)
    for job in jobs:
        stamps = job.phase_times
        assert stamps.submitted <= stamps.started < stamps.encoded < stamps.ended
        assert stamps.encoded - stamps.started >= 0.05
        assert stamps.ended - stamps.encoded >= 3 * runner.delay, "three steps"


async def test_streams_and_scores_and_alignments_have_their_phases(collector: SpanCollector):
    async with running(traces=True) as server:
        await server.stream("Tom lives")
        pairs = [pb.ScorePair(source="", target="x"), pb.ScorePair(source="Tom", target="Tom")]
        await server.stub.Score(pb.ScoreRequest(pairs=pairs))
        await server.translate("the sea", options=pb.DecodingOptions(return_alignment=True))
    calls = {values(span).get("rpc.method"): span for span in collector.spans}
    below = {
        method.removeprefix(f"{SERVICE}/"): [
            (each.name, values(each)["lingon.text"]) for each in collector.spans if each.parent_span_id == one.span_id
        ]
        for method, one in calls.items()
        if method
    }
    assert below == {
        "TranslateStream": [(name, 0) for name in PHASES],
        "Score": [("queue", 1), ("score", 1)],
        "Translate": [(name, 0) for name in [*PHASES, "queue", "score"]],
    }


@pytest.mark.parametrize("state", ["vendor=1", f"{CANARY}[=1,{CANARY}"])
async def test_a_call_belongs_to_the_trace_of_its_caller(
    collector: SpanCollector, caplog: pytest.LogCaptureFixture, state: str
):
    caplog.set_level(logging.DEBUG, "lingon.serving.rpc.interceptors")
    async with running(traces=True) as server:
        metadata = (("traceparent", TRACEPARENT), ("tracestate", state))
        await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=metadata)
    assert CANARY not in caplog.text + str(collector.requests), "nothing malformed is handed on, or quoted in the log"
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert collector.call().parent_span_id.hex() == PARENT
    (line,) = (record.fields for record in caplog.records if record.message == "call")
    assert line["trace_id"] == TRACE


@pytest.mark.parametrize(
    "sent",
    [
        "nonsense",
        f"00-{TRACE}-{PARENT}",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        "00-" + "4" * 5000,
    ],
)
async def test_a_malformed_parent_is_ignored(collector: SpanCollector, caplog: pytest.LogCaptureFixture, sent: str):
    async with running(traces=True) as server:
        await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=(("traceparent", sent),))
    assert not any(record.name.startswith("opentelemetry") for record in caplog.records), "callers could flood the log"
    assert not collector.call().parent_span_id
    assert collector.call().trace_id.hex() != TRACE
    assert names(collector.phases()) == PHASES


SAMPLED, UNSAMPLED = TRACEPARENT, TRACEPARENT[:-1] + "0"


@pytest.mark.parametrize(
    ("sampler", "parent", "trusted", "recorded"),
    [
        ("always_off", None, False, False),
        (None, UNSAMPLED, True, False),
        (None, UNSAMPLED, False, True),
        ("parentbased_always_off", SAMPLED, True, True),
        ("parentbased_always_off", SAMPLED, False, False),
    ],
)
async def test_the_flag_of_a_caller_decides_what_is_recorded_only_if_it_is_trusted(
    collector: SpanCollector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sampler: str | None,
    parent: str | None,
    trusted: bool,
    recorded: bool,
):
    caplog.set_level(logging.DEBUG, "lingon.serving.rpc.interceptors")
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    metadata = (("traceparent", parent),) if parent else ()
    async with running(traces=True, trust_traceparent=trusted) as server:
        await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=metadata)
        page = exposition.generate_latest(server.server.metrics.registry).decode()
    assert names(collector.phases()) == (PHASES if recorded else [])
    (line,) = (record.fields for record in caplog.records if record.message == "call")
    assert re.findall(r'# \{trace_id="(\w+)"\}', page) == [line["trace_id"]] * recorded
    assert re.fullmatch(TRACE if parent else "[0-9a-f]{32}", line["trace_id"]), "it has a place in a trace all the same"


async def test_a_caller_cannot_have_its_calls_recorded_by_its_choice_of_a_trace_id(
    collector: SpanCollector, monkeypatch: pytest.MonkeyPatch
):
    """The sampler records trace ids whose last 64 bits are below a bound; these are 0 and 1."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "1e-9")
    async with running(traces=True) as server:
        for trace in (f"{'4' * 16}{'0' * 16}", f"{'4' * 16}{'0' * 15}1"):
            metadata = (("traceparent", f"00-{trace}-{PARENT}-01"),)
            await server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=metadata)
    assert collector.spans == []


async def test_no_text_or_key_is_in_any_span(collector: SpanCollector):
    key = (("authorization", f"Bearer {CANARY}"), ("x-api-key", CANARY), ("baggage", f"a={CANARY}"))
    text = f"Tom lives in {CANARY}."
    async with running(EchoRunner(faulty="sea"), traces=True) as server:
        request = pb.TranslateRequest(texts=[text, f"{CANARY} sea"], target_prefixes=[CANARY, ""])
        found = await server.stub.Translate(request, metadata=key)
        await server.stub.Score(pb.ScoreRequest(pairs=[pb.ScorePair(source=text, target=text)]), metadata=key)
        with pytest.raises(grpc.aio.AioRpcError):
            await server.stub.Translate(pb.TranslateRequest(texts=["Tom"], model=CANARY), metadata=key)
    assert CANARY in found.results[0].hypotheses[0].text
    assert len(collector.spans) >= 10
    assert CANARY not in str(collector.requests)
    assert all(not span.events and not span.status.message for span in collector.spans)
