"""Traces of failed calls, and faults of the collector, of the packages and of variables."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from lingon.errors import SettingsError
from lingon.extras import install_command
from lingon.serving.observability.opentelemetry import FLUSH
from lingon.serving.server import open_tracer
from tests.support.echo_engine import EchoRunner, running
from tests.support.repository import ROOT
from tests.support.timing import eventually
from tests.support.trace_collector import ERROR, PHASES, SERVER, UNSET, SpanCollector, names, running_collector, values


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanCollector]:
    with running_collector(monkeypatch) as found:
        yield found


def failure(span: Any) -> str | None:
    """The status that a call ended with; None for OK."""
    found = values(span)
    assert found.get("error.type", "OK") == found["rpc.response.status_code"], "the type of an error is its status"
    return found.get("error.type")


@contextmanager
def deaf() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


async def test_a_cancelled_call_has_its_spans(collector: SpanCollector):
    runner = EchoRunner(endless=True)
    async with running(runner, traces=True) as server:
        runner.gate.clear()
        call = server.call("Tom", "the sea")
        await eventually(lambda: runner.encoded > 1)
        call.cancel()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        runner.gate.set()
    assert failure(collector.call()) == "CANCELLED"
    assert collector.call().status.code == UNSET, "the caller's own wish is no error"
    for text in (0, 1):
        spans = collector.phases(text)
        assert names(spans) == PHASES[:3]
        assert [values(span).get("error.type") for span in spans] == [None, None, "CANCELLED"]
        assert spans[-1].end_time_unix_nano <= collector.call().end_time_unix_nano


async def test_an_expired_call_has_its_spans(collector: SpanCollector):
    runner = EchoRunner(endless=True)
    async with running(runner, traces=True, max_rows=1) as server:
        runner.gate.clear()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await server.call("Tom", "the sea", seconds=1.0)
        runner.gate.set()
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
    assert failure(collector.call()) == "DEADLINE_EXCEEDED"
    assert collector.call().status.code == ERROR
    last = [spans[-1] for spans in (collector.phases(0), collector.phases(1))]
    assert sorted(names(last)) == ["decode", "queue"], "one ran, the other had no room"
    assert {values(span)["error.type"] for span in last} == {"DEADLINE_EXCEEDED"}


async def test_only_the_spans_of_a_failed_text_have_its_error(collector: SpanCollector):
    async with running(EchoRunner(faulty="sea"), traces=True) as server:
        await server.translate("Tom lives", "the sea")
    assert failure(collector.call()) is None
    broken = [(span.name, values(span)["error.type"]) for span in collector.spans if "error.type" in values(span)]
    assert broken == [("decode", "ENGINE_FAULT")]
    assert values(collector.phases(1)[-1])["error.type"] == "ENGINE_FAULT"


async def test_a_refused_call_has_no_phases(collector: SpanCollector):
    runner = EchoRunner()
    async with running(runner, traces=True, max_queue_texts=1, max_rows=1) as server:
        labels = {"model": "en-de", "version": "1"}
        runner.gate.clear()
        call = server.call("Tom")
        await eventually(lambda: server.metric("lingon_running_sentences", **labels) == 1)
        waiting = server.call("Tom")
        await eventually(lambda: server.metric("lingon_queue_depth", **labels) == 1)
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom")
        runner.gate.set()
        await asyncio.gather(call, waiting)
    calls = [span for span in collector.spans if span.kind == SERVER]
    refused = calls[-1]
    assert failure(refused) == "RESOURCE_EXHAUSTED"
    assert len(calls) == 3
    assert [span.name for span in collector.spans if span.parent_span_id == refused.span_id] == []


async def test_spans_of_a_dead_engine_have_its_error(collector: SpanCollector):
    async with running(EchoRunner(dies_at=3), traces=True) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
    assert failure(collector.call()) == "UNAVAILABLE"
    assert values(collector.phases()[-1])["error.type"] == "ENGINE_RESTARTING"
    assert not any(word in str(collector.requests) for word in ("canary", "Boston")), "an error's message, a text"


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_dead_collector_delays_neither_calls_nor_the_stop(monkeypatch: pytest.MonkeyPatch, hangs: bool):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  # so that sending is under way while calls are
    with deaf() as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port if hangs else 1}")
        async with running(traces=True) as server:
            for _ in range(50):
                async with asyncio.timeout(5):
                    await server.translate("Tom lives", "the sea")
            begin = time.monotonic()
            server.server.stop()
            assert await server.task == 0
            took = time.monotonic() - begin
    assert took < FLUSH + 5, "left to itself it would be ten seconds for every 512 spans"


async def test_calls_continue_if_spans_are_created_faster_than_sent(
    collector: SpanCollector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    async with running(traces=True) as server:
        for _ in range(5):
            found = await server.translate("Tom", "the sea")
            assert [result.status.code for result in found.results] == [0, 0]
    assert collector.spans


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli"),
    ],
)
def test_an_unsupported_variable_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=value) as raised:
        open_tracer(traces=True)
    assert "\n" not in str(raised.value)


MISSING = """
import sys
sys.modules["opentelemetry"] = None
from lingon.cli.main import main
sys.exit(main(["serve", "docs", *sys.argv[1:]]))
"""


def test_traces_without_the_extra_fail_at_the_start_and_name_it():
    command = [sys.executable, "-c", MISSING, "--log-level", "error"]
    traced = subprocess.run([*command, "--traces"], cwd=ROOT, capture_output=True, text=True, check=False)
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert traced.returncode == plain.returncode == 1
    assert traced.stderr.splitlines() == [
        "lingon: error: lingon serve --traces needs what the extra 'tracing' installs (opentelemetry is missing): "
        f"{install_command('tracing')}"
    ]
    assert "docs: no bundle" in plain.stderr, "without traces it comes as far as the models"


UNTRACED = """
import asyncio, json, sys
from tests.support.echo_engine import running

async def main():
    async with running() as server:
        await server.translate("Tom lives", "the sea")

asyncio.run(main())
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
"""


def test_without_traces_nothing_of_opentelemetry_is_loaded():
    done = subprocess.run([sys.executable, "-c", UNTRACED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
