"""A collector of OpenTelemetry traces, which receives spans over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

SERVER = trace_pb2.Span.SPAN_KIND_SERVER
UNSET, ERROR = trace_pb2.Status.STATUS_CODE_UNSET, trace_pb2.Status.STATUS_CODE_ERROR
PHASES = ["queue", "encode", "decode", "detokenise"]


class SpanCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """A receiver of spans, as an OpenTelemetry collector."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[Any]:
        """All spans in the order of their start."""
        found = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def call(self) -> Any:
        """Return the only span of a call."""
        (span,) = (span for span in self.spans if span.kind == SERVER)
        return span

    def phases(self, text: int = 0) -> list[Any]:
        """Return the spans of one text."""
        return [span for span in self.spans if values(span).get("lingon.text") == text]


def values(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def names(spans: list[Any]) -> list[str]:
    return [span.name for span in spans]


@contextmanager
def running_collector(environment: pytest.MonkeyPatch) -> Iterator[SpanCollector]:
    """Run a collector, to which servers that the block starts send their spans."""
    received = SpanCollector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(received, server)
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    yield received
    server.stop(0).wait()
