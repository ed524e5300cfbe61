"""The metrics agree with the replies that clients got, and contain nothing of their requests."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from prometheus_client.parser import text_string_to_metric_families

from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.errors import TextTooLong
from lingon.serving.auth.api_keys import new_key
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.observability.metrics import CODES, KEPT_MODELS, METHODS, PHASES, LoadProgress, Metrics, families
from lingon.serving.server import SERVICE
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import shipped_model
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import EchoRunner, RunningServer, running, tokenizer
from tests.support.http2 import call, call_headers, converse, get, message, opening
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port
from tests.support.shipped_model import bundle, serving
from tests.support.timing import eventually

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
    assert set(METHODS) == {"Translate", "TranslateStream", "Score", "ListModels", "DetectLanguages", "TranslateLive"}
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


SHOP, OLD, OPS = new_key(), new_key(), new_key()
KEYS = {"shop": SHOP, "old": OLD, "ops": OPS}
FIELDS = {"shop": {"requests_per_minute": 2}, "old": {"disabled": True}, "ops": {"admin": True}}
TOM = pb.TranslateRequest(texts=["Tom", "Tom lives"])


def requests(server: RunningServer) -> dict[tuple[str, str], float]:
    """The counted calls by key and code, without zeros."""
    (family,) = (each for each in server.server.metrics.registry.collect() if each.name == "lingon_key_requests")
    return {(each.labels["key"], each.labels["code"]): each.value for each in family.samples if each.value}


async def test_calls_and_characters_are_counted_by_key(tmp_path: Path):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS), admin_port=0) as server:
        for key in (SHOP, SHOP, SHOP, OLD, OPS, new_key()):
            await asyncio.gather(server.stub.Translate(TOM, metadata=bearer(key)), return_exceptions=True)
        await refused(server.channel.unary_unary("/no.such.Service/Method")(b"", metadata=bearer(OPS)))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel:
            stub: Any = admin_pb2_grpc.ModelServiceStub(channel)
            await stub.ListModels(admin_pb2.ListModelsRequest(), metadata=bearer(OPS))
            await refused(stub.ListModels(admin_pb2.ListModelsRequest(), metadata=bearer(SHOP)))
        await eventually(lambda: requests(server).get(("shop", "PERMISSION_DENIED")))
        assert requests(server) == {
            ("shop", "OK"): 2,
            ("shop", "RESOURCE_EXHAUSTED"): 1,
            ("shop", "PERMISSION_DENIED"): 1,
            ("old", "UNAUTHENTICATED"): 1,
            ("ops", "OK"): 2,
            ("ops", "UNIMPLEMENTED"): 1,
        }
        characters = [server.metric("lingon_key_characters_total", key=name) for name in KEYS]
    assert characters == [24, 0, 12]


async def test_the_time_of_the_last_use_of_a_key_is_that_of_the_last_accepted_call(tmp_path: Path):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        before = time.time()
        for key in (SHOP, OLD):
            await asyncio.gather(server.stub.Translate(TOM, metadata=bearer(key)), return_exceptions=True)
        used = {name: server.metric("lingon_key_last_used_timestamp_seconds", key=name) for name in KEYS}
    assert before <= used["shop"] <= time.time()
    assert (used["old"], used["ops"]) == (0, 0)


async def test_a_key_that_leaves_the_file_leaves_the_metrics_and_a_new_one_is_there_before_its_first_call(
    tmp_path: Path,
):
    async with running(api_keys=write_key_file(tmp_path, KEYS, **FIELDS)) as server:
        server.runner.gate.clear()
        call = server.stub.Translate(TOM, metadata=bearer(SHOP))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        write_key_file(tmp_path, {"ops": OPS, "new": new_key()})
        await eventually(lambda: _keys_after_a_call(server, {"ops", "new"}))
        server.runner.gate.set()
        await call  # a call that ends after its key left brings nothing back
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        assert _keys(server) == {"ops", "new"}
        assert server.metric("lingon_key_characters_total", key="new") == 0
        with pytest.raises(KeyError):
            server.metric("lingon_key_characters_total", key="shop")


async def _keys_after_a_call(server: RunningServer, wanted: set[str]) -> bool:
    """Whether the metrics have these keys after a call, which makes the server check the file."""
    await asyncio.gather(server.stub.ListModels(pb.ListModelsRequest(), metadata=bearer(OPS)), return_exceptions=True)
    return _keys(server) == wanted


def _keys(server: RunningServer) -> set[str]:
    families = [each for each in server.server.metrics.registry.collect() if each.name.startswith("lingon_key_")]
    assert len(families) == 3
    return {sample.labels["key"] for family in families for sample in family.samples}


SECOND = {"model": "en-de", "version": "2"}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def events(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    """The values of all log lines with a message."""
    return [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == message]


def phases_under_way(admin: AdministeredServer) -> dict[str, float]:
    """The value of the metric of each phase of en-de/2."""
    return {phase: admin.server.metric("lingon_model_load_phase", phase=phase, **SECOND) for phase in PHASES}


def test_the_phases_add_up_to_the_load():
    clock = Clock()
    progress = LoadProgress("en-de/2", clock)
    clock.now += 1
    for seconds, phase in enumerate(PHASES, 2):
        progress.begin(phase)
        assert (progress.phase, progress.ended) == (phase, False)
        clock.now += seconds
        assert progress.seconds(phase) == seconds
    total = progress.total()
    progress.end()
    clock.now += 1000
    assert (progress.phase, progress.ended) == ("", True)
    assert [progress.seconds(phase) for phase in PHASES] == [2, 3, 4, 5, 6]
    assert progress.total() == total == 1 + sum(map(progress.seconds, PHASES))


def test_a_phase_that_did_not_begin_took_no_time():
    clock = Clock()
    progress = LoadProgress("en-de/2", clock)
    progress.begin("checksums")
    clock.now += 5
    progress.fail()
    clock.now += 1000
    assert {phase: progress.seconds(phase) for phase in PHASES} == {**dict.fromkeys(PHASES, 0.0), "checksums": 5.0}
    assert progress.total() == 5


def test_loading_a_model_goes_through_all_phases_in_order():
    begun: list[str] = []
    options = LoadOptions(device="cpu", engines=1, threads=1, golden=True, on_phase=begun.append)
    translator = load_translator(shipped_model.bundle(), options)
    translator.engine.stop(0)
    assert tuple(begun) == PHASES


async def test_a_server_logs_each_phase_and_exports_its_duration(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    manifest = bundle().manifest
    label, shipped = f"{manifest.name}/{manifest.version}", {"model": manifest.name, "version": str(manifest.version)}
    async with serving() as server:
        spent = [server.counted("lingon_model_load_phase_duration_seconds", phase=phase, **shipped) for phase in PHASES]
        total = server.counted("lingon_model_load_duration_seconds", **shipped)
        assert all(server.counted("lingon_model_load_phase", phase=phase, **shipped) == 0 for phase in PHASES)
        assert server.counted("lingon_models_to_load") == 0
    assert all(spent)
    assert sum(spent) <= total
    assert [(line["model"], line["phase"]) for line in events(caplog, "loading")] == [(label, p) for p in PHASES]
    (loaded,) = events(caplog, "loaded")
    assert [loaded[phase] for phase in PHASES] == pytest.approx(spent, abs=0.01)
    assert loaded["seconds"] == pytest.approx(total, abs=0.01)


async def test_metrics_and_the_admin_port_show_a_load_that_is_under_way():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        registry, checksums = admin.server.server.metrics.registry, {**SECOND, "phase": "checksums"}
        await eventually(lambda: registry.get_sample_value("lingon_model_load_phase", checksums) == 1)
        assert sum(phases_under_way(admin).values()) == 1
        assert admin.server.metric("lingon_models_to_load") == 1
        one = await spent_on_checksums(admin)
        await eventually(lambda: admin.server.metric("lingon_model_load_duration_seconds", **SECOND) > one)
        assert await spent_on_checksums(admin) > one
        (loading,) = [each for each in await models(admin) if each.state == admin_pb2.MODEL_STATE_LOADING]
        assert (loading.load_phase, loading.load_seconds > 0) == ("checksums", True)
        admin.versions.gate.set()
        await swap
        assert set(phases_under_way(admin).values()) == {0}
        assert admin.server.metric("lingon_models_to_load") == 0
        total = admin.server.metric("lingon_model_load_duration_seconds", **SECOND)
        assert total == admin.server.metric("lingon_model_load_duration_seconds", **SECOND) > one
        (serves,) = await models(admin)
        assert (serves.load_phase, serves.load_seconds) == ("", 0)


async def models(admin: AdministeredServer) -> list[admin_pb2.Model]:
    return list((await admin.call("ListModels", admin_pb2.ListModelsRequest())).models)


async def spent_on_checksums(admin: AdministeredServer) -> float:
    return admin.server.metric("lingon_model_load_phase_duration_seconds", phase="checksums", **SECOND)


async def test_a_load_that_fails_is_logged_with_its_phase_and_leaves_no_gauge(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with running_with_admin_port() as admin:
        assert (await refused(admin.swap(admin.publish(2, golden="another translation"))))[0] == "FAILED_PRECONDITION"
        with pytest.raises(KeyError):
            phases_under_way(admin)
        assert admin.server.metric("lingon_models_to_load") == 0
        (loading,) = events(caplog, "loading failed")
        assert (loading["model"], loading["phase"]) == ("en-de/2", "golden_sentences")


async def test_models_that_wait_for_their_turn_are_counted():
    async with running(ready=False, bundles=({}, {"name": "en-fr"}, {"name": "en-it"})) as server:
        await eventually(lambda: server.metric("lingon_models_to_load") == 3)
        server.loader.gate.set()
        await eventually(lambda: server.metric("lingon_ready") == 1)
        assert server.metric("lingon_models_to_load") == 0


PATH = f"/{SERVICE}/Translate"


async def counts(server: RunningServer) -> tuple[float, float]:
    """The calls that gRPC received, and those that the server has counted by their codes."""
    _, page = await asyncio.to_thread(get, server.server.metrics_port, "/metrics")
    found = dict.fromkeys(("received_calls", "requests", "other_requests"), 0.0)
    for name, value in re.findall(r"^lingon_(\w+)_total(?:\{.*\})? (\S+)$", page, re.MULTILINE):
        if name in found:
            found[name] += float(value)
    return found["received_calls"], found["requests"] + found["other_requests"]


async def test_every_call_that_ends_was_received():
    async with running(max_message_bytes=10_000) as server:
        assert await counts(server) == (0, 0)
        await server.translate("Tom")
        await server.health()
        for method, size in (("/no/Method", 0), (f"/{SERVICE}/Method", 0), (PATH, 20_000)):
            with pytest.raises(grpc.aio.AioRpcError):
                await server.channel.unary_unary(method)(b" " * size, timeout=10)

        async def all_are_counted() -> bool:
            return await counts(server) == (5, 5)

        await eventually(all_are_counted)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_call_that_is_no_grpc_was_received_and_has_no_code(method: str):
    pairs = [(name, method if name == ":method" else value) for name, value in call_headers(PATH)]
    async with running() as server:
        for _ in range(3):
            await asyncio.to_thread(converse, server.server.port, opening() + call(pairs, message(b"")), 5)
        await server.translate("Tom")
        assert await counts(server) == (4, 1)


async def test_calls_of_the_admin_port_are_received_too():
    async with running(admin_port=0) as server:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as admin:
            with pytest.raises(grpc.aio.AioRpcError):
                await admin.unary_unary("/no/Method")(b"", timeout=10)
        assert await counts(server) == (1, 1)


async def test_calls_of_another_server_of_the_process_are_not_counted():
    async with running() as first, running() as second:
        await first.translate("Tom")
        assert [await counts(server) for server in (first, second)] == [(1, 1), (0, 0)]
