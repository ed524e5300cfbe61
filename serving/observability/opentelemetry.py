"""Traces as OpenTelemetry has them, sent by OTLP over gRPC; all that OTEL_... variables set is as the SDK defines it.

The engine's thread leaves time stamps in its jobs and knows nothing of spans: those are made of the stamps on the
event loop, when a job is over. All times of a call are told by one clock: a step of the wall clock breaks no order.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

from google.rpc import code_pb2
from opentelemetry import trace as otel
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lingon.errors import RequestError, SettingsError
from lingon.serving.decoding.job import Job, PhaseTimes, ScoreJob
from lingon.serving.observability.tracing import Metadata, NullTrace, Trace, TracedJob
from lingon.serving.system.threads import run_in_thread
from lingon.translation.v1 import translation_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
FLUSH = 1.5  # seconds that what is left may take at the end, whatever the collector does
CUT = 0.3  # seconds for sending that hangs to notice that it is cut off
OUR_FAULT = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes that are errors of a server by OpenTelemetry's conventions; the others are its caller's."""


class OpenTelemetryTracer:
    """Makes the spans of calls and has them sent in batches by a thread of their own."""

    def __init__(self) -> None:
        """Raises SettingsError where a variable cannot be."""
        _check("OTEL_TRACES_EXPORTER", "otlp")
        _check("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        _check("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
        try:
            self._exporter = OTLPSpanExporter()
            processor = BatchSpanProcessor(self._exporter)
        except Exception as error:  # their own kinds, without a common root
            raise SettingsError(f"traces: a variable of OpenTelemetry (OTEL_...) cannot be used: {error}") from None
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lingon", importlib.metadata.version("lingon"))
        self._propagator = TraceContextTextMapPropagator()
        logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)  # its warnings quote what callers sent

    def call(self, method: str, request_id: str, metadata: Metadata) -> Trace:
        """A server's span; traceparent in the metadata names its parent, unless it is malformed."""
        clock = Clock()
        span = self._tracer.start_span(
            f"{SERVICE}/{method}",
            self._propagator.extract(_carrier(metadata)),
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": method, "lingon.request_id": request_id},
            start_time=clock.now(),
        )
        context = span.get_span_context()
        trace_id = format_trace_id(context.trace_id) if context.is_valid else ""
        return CallTrace(self._tracer, span, clock, trace_id) if span.is_recording() else NullTrace(trace_id)

    async def close(self) -> None:
        """Send what is left; what the collector has not taken within FLUSH seconds is lost."""
        sending = run_in_thread(self._provider.shutdown, "last traces")
        await asyncio.wait({sending}, timeout=FLUSH)
        if not sending.done():
            await asyncio.wait({sending, run_in_thread(self._exporter.shutdown, "cut")}, timeout=CUT)


class Clock:
    """Nanoseconds since 1970, by the steady clock; the wall clock is read once."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """This moment."""
        return time.monotonic_ns() + self._offset

    def at(self, seconds: float) -> int:
        """A moment that `time.monotonic` told."""
        return int(seconds * 1e9) + self._offset


class CallTrace:
    """The span of a call, and below it those of its sentences."""

    def __init__(self, tracer: otel.Tracer, span: Span, clock: Clock, trace_id: str) -> None:
        self.trace_id = trace_id
        self._tracer, self._span, self._clock = tracer, span, clock
        self._context = set_span_in_context(span)
        self._open: dict[int, TracedJob] = {}

    def about(self, **attributes: str | int) -> None:
        """Attributes lingon.NAME of the call."""
        self._span.set_attributes({f"lingon.{name}": value for name, value in attributes.items()})

    @contextmanager
    def trace_jobs(self, jobs: Iterable[TracedJob]) -> Iterator[None]:
        """Have jobs stamped; each has its spans when its outcome has arrived, at the latest when the call ends."""
        traced, now = list(jobs), time.monotonic()
        for _, job, _ in traced:
            job.phase_times = PhaseTimes(now)
        yield
        for text, job, outcome in traced:
            self._open[job.number] = text, job, outcome
            outcome.add_done_callback(partial(self._arrived, job.number))

    @contextmanager
    def phase(self, name: str, text: int) -> Iterator[None]:
        """A span of what is done inside."""
        begin, reason = time.monotonic(), "INTERNAL"
        try:
            yield
            reason = "OK"
        finally:
            self._tell(name, begin, time.monotonic(), {"lingon.text": text}, reason)

    def end(self, code: int) -> None:
        """End the call's span, after those of whatever it still waited for."""
        name = code_pb2.Code.Name(code)
        for text, job, outcome in self._open.values():
            self._tell_job(job, text, _reason(outcome, name))
        self._open.clear()
        self._span.set_attribute("rpc.grpc.status_code", code)
        if name in OUR_FAULT:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(self._clock.now())

    def _arrived(self, number: int, outcome: asyncio.Future[Any]) -> None:
        """A job's outcome is there; where the call was cut short instead, its end tells why."""
        if number in self._open and not outcome.cancelled():
            text, job, _ = self._open.pop(number)
            self._tell_job(job, text, _reason(outcome))

    def _tell_job(self, job: Job, text: int, reason: str) -> None:
        """The spans of a job as far as it came; the last one bears the reason for which it came no further."""
        stamps = job.phase_times
        assert stamps is not None
        # The latest first, and the clock last: the engine may write the next one at any moment.
        ended, encoded, begun = stamps.ended, stamps.encoded, stamps.started
        over = ended or time.monotonic()
        begins = [("queue", stamps.submitted)]
        if begun is not None:
            begins.append(("score" if isinstance(job, ScoreJob) else "encode", begun))
        if encoded is not None:
            begins.append(("decode", encoded))
        attributes = {"lingon.text": text, "lingon.source_tokens": len(job.source_ids)}
        for (name, begin), (_, end) in pairwise(begins):
            self._tell(name, begin, end, attributes, "OK")
        self._tell(*begins[-1], over, attributes, reason)

    def _tell(self, name: str, begin: float, end: float, attributes: Mapping[str, str | int], reason: str) -> None:
        span = self._tracer.start_span(name, self._context, attributes=attributes, start_time=self._clock.at(begin))
        if reason != "OK":
            span.set_attribute("error.type", reason)
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._clock.at(end))


def _reason(outcome: asyncio.Future[Any], otherwise: str = "OK") -> str:
    """The reason of an outcome that is an error; `otherwise` where there is no outcome."""
    if not outcome.done() or outcome.cancelled():
        return otherwise
    found = outcome.result()
    return found.reason if isinstance(found, RequestError) else "OK"


def _carrier(metadata: Metadata) -> dict[str, list[str]]:
    """What W3C Trace Context reads."""
    found: dict[str, list[str]] = {"traceparent": [], "tracestate": []}
    for name, value in metadata:
        if name in found and isinstance(value, str):
            found[name].append(value)
    return found


def _resource() -> Resource:
    """Who sends the spans: `lingon`, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise."""
    ours = Resource({"service.name": "lingon", "service.version": importlib.metadata.version("lingon")})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _check(variable: str, only: str) -> None:
    if os.environ.get(variable, only) != only:
        raise SettingsError(f"traces: {variable} must be {only} or unset, got {os.environ[variable]!r}")
