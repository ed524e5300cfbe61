"""The metrics agree with the replies that clients got, and contain nothing of their requests."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from google.rpc import code_pb2
from prometheus_client.parser import text_string_to_metric_families

from lingon.errors import TextTooLong
from lingon.serving.observability.metrics import CODES, KEPT_MODELS, METHODS, Metrics, families
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, running, tokenizer
from tests.support.eventually import eventually
from tests.support.http import get

MODEL = {"model": "en-de", "version": "1"}
NAMES = """requests_total texts_total request_duration_seconds_bucket queue_duration_seconds_bucket
encoder_duration_seconds_bucket decoder_step_duration_seconds_bucket time_to_first_token_seconds_bucket
batch_rows_bucket source_tokens_total target_tokens_total padded_tokens_total requests_in_flight queue_depth
queue_limit queue_tokens queue_work_units rejected_total translated_texts_total truncated_total split_total
past_copied_bytes_total model_info model_load_duration_seconds model_changes_total build_info running_sentences"""


async def test_counters_reconcile_with_what_clients_saw():
    texts = ["Tom lives in Boston.", "", "The old man", "Tom " * 40]
    async with running() as server:
        replies = await asyncio.gather(*(server.translate(*texts) for _ in range(5)))
        await server.stream(*texts, options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT))
        await asyncio.gather(*(server.call("a", model="nope") for _ in range(3)), return_exceptions=True)
        results = [result for reply in replies for result in reply.results]
        assert server.metric("lingon_requests_total", method="Translate", code="OK") == 5
        assert server.metric("lingon_requests_total", method="Translate", code="NOT_FOUND") == 3
        assert server.metric("lingon_requests_total", method="TranslateStream", code="OK") == 1
        assert server.metric("lingon_request_duration_seconds_count", method="Translate", outcome="served") == 5
        assert server.metric("lingon_request_duration_seconds_count", method="Translate", outcome="refused") == 3
        good = sum(result.status.code == code_pb2.OK for result in results)
        assert server.metric("lingon_texts_total", code="OK") == good + 4
        assert server.metric("lingon_texts_total", code="INVALID_ARGUMENT") == len(results) - good
        assert server.metric("lingon_texts_total", code="NOT_FOUND") == 3
        assert server.metric("lingon_rejected_total", reason="UNKNOWN_MODEL") == 3
        assert server.metric("lingon_split_total", **MODEL) == 1
        assert server.metric("lingon_truncated_total", **MODEL) == 0
        assert server.metric("lingon_translated_texts_total", **MODEL) == good + 4
        source, target = (
            sum(getattr(result.usage, name) for result in results) for name in ("source_tokens", "target_tokens")
        )
        streamed = sum(len(tokenizer().encode_source(text)) for text in texts[:3:2])
        assert server.metric("lingon_source_tokens_total", **MODEL) >= source + streamed
        assert server.metric("lingon_target_tokens_total", **MODEL) >= target + streamed
        sentences = server.metric("lingon_queue_duration_seconds_count", **MODEL)
        assert server.metric("lingon_time_to_first_token_seconds_count", **MODEL) == sentences
        assert server.metric("lingon_sentences_total", **MODEL, outcome="OK") == sentences
        for gauge in ("queue_depth", "queue_tokens", "queue_work_units", "running_sentences"):
            assert server.metric(f"lingon_{gauge}", **MODEL) == 0
        assert server.metric("lingon_requests_in_flight") == 0


async def test_the_time_in_the_queue_has_sentences_that_end_there():
    async with running(max_rows=1) as server:
        server.runner.gate.clear()
        first = asyncio.ensure_future(server.call("Tom"))
        await eventually(lambda: server.metric("lingon_running_sentences", **MODEL) == 1)
        second = server.call("The sea")
        await eventually(lambda: server.metric("lingon_queue_depth", **MODEL) == 1)
        second.cancel()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        server.runner.gate.set()
        await first
        await eventually(lambda: server.metric("lingon_sentences_total", **MODEL, outcome="CANCELLED") == 1)
        assert server.metric("lingon_queue_duration_seconds_count", **MODEL) == 2


async def test_truncations_are_counted():
    async with running(EchoRunner(endless=True)) as server:
        await server.translate("Tom", "The sea")
        assert server.metric("lingon_truncated_total", **MODEL) == 2


async def test_every_metric_is_exported_before_the_first_request():
    async with running() as server:
        status, page = await asyncio.to_thread(get, server.server.metrics_port, "/metrics")
    names = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    assert status == 200
    assert {f"lingon_{name}" for name in NAMES.split()} <= names
    assert all(name.startswith(("lingon_", "process_")) and not name.endswith("_created") for name in names)


async def test_nothing_of_a_request_becomes_a_label():
    async with running() as server:
        _, before = await asyncio.to_thread(get, server.server.metrics_port, "/metrics")
        metadata = (("x-request-id", "canary"),)
        await asyncio.gather(
            server.translate("canary"),
            server.call("a", model="canary"),
            server.call("a", source_language_code="canary"),
            server.stub.Translate(pb.TranslateRequest(texts=["canary"]), metadata=metadata),
            server.channel.unary_unary("/lingon.translation.v1.TranslationService/Canary")(b""),
            return_exceptions=True,
        )
        _, after = await asyncio.to_thread(get, server.server.metrics_port, "/metrics")
    assert "canary" not in after.lower()
    assert len(before.splitlines()) == len(after.splitlines())


async def test_a_scrape_disturbs_no_running_call():
    async with running(EchoRunner(delay=0.01)) as server:
        call = server.call("Tom lives in Boston.")
        pages = await asyncio.gather(
            *(asyncio.to_thread(get, server.server.metrics_port, "/metrics") for _ in range(4))
        )
        assert (await call).results[0].hypotheses[0].text == "Tom lives in Boston."
    assert [status for status, _ in pages] == [200] * 4


def test_labels_are_the_methods_and_codes_of_the_service():
    assert set(METHODS) == {"Translate", "TranslateStream", "Score", "ListModels", "DetectLanguages"}
    assert set(CODES) >= {code.name for code in grpc.StatusCode}


def test_two_servers_in_a_process_do_not_share_metrics():
    one, other = Metrics(), Metrics()
    one.in_flight.inc()
    assert other.registry.get_sample_value("lingon_requests_in_flight") == 0


def test_counters_continue_for_a_model_that_is_loaded_again():
    metrics = Metrics()
    metrics.model("en-de", 1).split.inc()
    metrics.remove(metrics.model("en-de", 1))
    back = metrics.model("en-de", 1)
    for version in range(2, KEPT_MODELS + 3):
        metrics.remove(metrics.model("en-de", version))
    assert metrics.registry.get_sample_value("lingon_split_total", MODEL) == 1
    assert metrics.registry.get_sample_value("lingon_queue_depth", MODEL) == 0
    metrics.remove(back)
    assert metrics.registry.get_sample_value("lingon_queue_depth", MODEL) is None


def test_texts_of_a_huge_message_are_counted_in_one_step():
    metrics, many = Metrics(), 2_000_000
    start = time.thread_time()
    with pytest.raises(TextTooLong), metrics.count_texts(many, lambda: False):
        raise TextTooLong("texts", "too many")
    assert time.thread_time() - start < 0.5  # one by one it took 7
    assert metrics.registry.get_sample_value("lingon_texts_total", {"code": "INVALID_ARGUMENT"}) == many


def test_families_lists_every_metric_with_its_labels_and_help():
    metrics = Metrics()
    metrics.model("en-de", 1)
    exported = {family.name: family for family in metrics.registry.collect() if family.name.startswith("lingon_")}
    listed = {family.exported_name.removesuffix("_total"): (family, labels) for family, labels in families()}
    assert set(listed) == set(exported)
    for name, (family, labels) in listed.items():
        assert (family.help, family.type_name) == (exported[name].documentation, exported[name].type)
        assert family.help.endswith(".")
        assert all(set(sample.labels) - {"le"} == set(labels) for sample in exported[name].samples)
