"""OpenTelemetry traces, sent by OTLP over gRPC. The SDK reads its usual OTEL_... variables.

The attributes of a call follow the semantic conventions for gRPC, version 1.44.

The engine's threads only write timestamps into jobs. The event loop creates the spans from them when a job ends. All
times of a call come from one monotonic clock, so that a change of the wall clock cannot reorder spans.
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
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lingon.errors import RequestError, SettingsError
from lingon.serving.decoding.job import Job, PhaseTimes, ScoreJob
from lingon.serving.observability.tracing import Metadata, NullTrace, Trace, TracedJob
from lingon.serving.threads import run_in_thread
from lingon.translation.v1 import translation_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
FLUSH = 1.5  # seconds to send the remaining spans at the end, even if the collector does not answer
EXPORTER_SHUTDOWN = 0.3  # seconds to stop an exporter that hangs
SERVER_ERRORS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes of server errors by OpenTelemetry's conventions. The others are errors of the caller."""


class OpenTelemetryTracer:
    """A tracer that creates the spans of calls. A thread of the SDK sends them in batches."""

    def __init__(self, *, trust_parents: bool = False) -> None:
        """Create the exporter. Raises SettingsError if an OTEL_... variable has an unsupported value.

        trust_parents: whether the sampler uses the caller's parent span and its sampled flag
        """
        _check("OTEL_TRACES_EXPORTER", "otlp")
        _check("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        _check("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
        try:
            self._exporter = OTLPSpanExporter()
            processor = BatchSpanProcessor(self._exporter)
            sampler = TracerProvider(shutdown_on_exit=False).sampler  # configured by OTEL_TRACES_SAMPLER
        except Exception as error:  # the SDK raises several types without a common base
            raise SettingsError(f"traces: an OpenTelemetry variable (OTEL_...) has an invalid value: {error}") from None
        self._provider = TracerProvider(
            sampler if trust_parents else OwnDecision(sampler), _resource(), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lingon", importlib.metadata.version("lingon"))
        self._propagator = TraceContextTextMapPropagator()
        logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)  # its warnings quote metadata of callers

    def call(self, method: str, request_id: str, metadata: Metadata, caller: str) -> Trace:
        """Start a server span. A well-formed traceparent in the metadata is its parent."""
        clock, name = Clock(), f"{SERVICE}/{method}"
        span = self._tracer.start_span(
            name,
            self._propagator.extract(_carrier(metadata)),
            SpanKind.SERVER,
            {"rpc.system.name": "grpc", "rpc.method": name, "lingon.request_id": request_id, "lingon.caller": caller},
            start_time=clock.now(),
        )
        context = span.get_span_context()
        trace_id = format_trace_id(context.trace_id) if context.is_valid else ""
        return CallTrace(self._tracer, span, clock, trace_id) if span.is_recording() else NullTrace(trace_id)

    async def close(self) -> None:
        """Send the remaining spans. Spans that the collector has not accepted within FLUSH seconds are lost."""
        sending = run_in_thread(self._provider.shutdown, "last traces")
        await asyncio.wait({sending}, timeout=FLUSH)
        if not sending.done():
            shutdown = run_in_thread(self._exporter.shutdown, "exporter shutdown")
            await asyncio.wait({sending, shutdown}, timeout=EXPORTER_SHUTDOWN)


class OwnDecision(Sampler):
    """A sampler that treats a call with a remote parent like one without. Spans below a local span follow that span.

    Otherwise a caller could have all its calls recorded, or none, by the sampled flag or by the choice of a trace id.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self._ids = sampler, RandomIdGenerator()

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, *more: Any, **rest: Any
    ) -> SamplingResult:
        parent = otel.get_current_span(parent_context).get_span_context()
        if not parent.is_remote:
            return self._sampler.should_sample(parent_context, trace_id, name, *more, **rest)
        found = self._sampler.should_sample(Context(), self._ids.generate_trace_id(), name, *more, **rest)
        return SamplingResult(found.decision, found.attributes, parent.trace_state)

    def get_description(self) -> str:
        return f"OwnDecision{{{self._sampler.get_description()}}}"


class Clock:
    """Nanoseconds since 1970 by the monotonic clock. The wall clock is read once."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() + self._offset

    def at(self, seconds: float) -> int:
        """Return the time of a value of `time.monotonic`."""
        return int(seconds * 1e9) + self._offset


class CallTrace:
    """The span of a call, with child spans for the phases of its sentences."""

    def __init__(self, tracer: otel.Tracer, span: Span, clock: Clock, trace_id: str) -> None:
        self.trace_id, self.exemplar = trace_id, {"trace_id": trace_id}
        self._tracer, self._span, self._clock = tracer, span, clock
        self._context = set_span_in_context(span)
        self._open: dict[int, TracedJob] = {}

    def about(self, **attributes: str | int) -> None:
        """Set attributes of the call, named lingon.NAME."""
        self._span.set_attributes({f"lingon.{name}": value for name, value in attributes.items()})

    @contextmanager
    def trace_jobs(self, jobs: Iterable[TracedJob]) -> Iterator[None]:
        """Record the phases of jobs. A job gets its spans when its outcome arrives, or else when the call ends."""
        traced, now = list(jobs), time.monotonic()
        for _, job, _ in traced:
            job.phase_times = PhaseTimes(now)
        yield
        for text, job, outcome in traced:
            self._open[job.number] = text, job, outcome
            outcome.add_done_callback(partial(self._arrived, job.number))

    @contextmanager
    def phase(self, name: str, text: int) -> Iterator[None]:
        """Record a span for the duration of the context."""
        begin, reason = time.monotonic(), "INTERNAL"
        try:
            yield
            reason = "OK"
        finally:
            self._record(name, begin, time.monotonic(), {"lingon.text": text}, reason)

    def end(self, code: int) -> None:
        """End the spans of jobs without an outcome, then the span of the call."""
        name = code_pb2.Code.Name(code)
        for text, job, outcome in self._open.values():
            self._record_job(job, text, _reason(outcome, name))
        self._open.clear()
        self._span.set_attribute("rpc.response.status_code", name)
        if code != code_pb2.OK:
            self._span.set_attribute("error.type", name)
        if name in SERVER_ERRORS:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(self._clock.now())

    def _arrived(self, number: int, outcome: asyncio.Future[Any]) -> None:
        """Create the spans of a job that has an outcome. `end` does it for jobs of a cancelled call."""
        if number in self._open and not outcome.cancelled():
            text, job, _ = self._open.pop(number)
            self._record_job(job, text, _reason(outcome))

    def _record_job(self, job: Job, text: int, reason: str) -> None:
        """Create the spans of the phases that a job reached. The last one has the reason of an error."""
        stamps = job.phase_times
        assert stamps is not None
        # The last timestamp is read first and the clock last, because the engine may write a timestamp at any moment.
        ended, encoded, begun = stamps.ended, stamps.encoded, stamps.started
        over = ended or time.monotonic()
        begins = [("queue", stamps.submitted)]
        if begun is not None:
            begins.append(("score" if isinstance(job, ScoreJob) else "encode", begun))
        if encoded is not None:
            begins.append(("decode", encoded))
        attributes = {"lingon.text": text, "lingon.source_tokens": len(job.source_ids)}
        for (name, begin), (_, end) in pairwise(begins):
            self._record(name, begin, end, attributes, "OK")
        self._record(*begins[-1], over, attributes, reason)

    def _record(self, name: str, begin: float, end: float, attributes: Mapping[str, str | int], reason: str) -> None:
        span = self._tracer.start_span(name, self._context, attributes=attributes, start_time=self._clock.at(begin))
        if reason != "OK":
            span.set_attribute("error.type", reason)
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._clock.at(end))


def _reason(outcome: asyncio.Future[Any], otherwise: str = "OK") -> str:
    """Return the reason of an error as the outcome, "OK" for other outcomes, or `otherwise` without an outcome."""
    if not outcome.done() or outcome.cancelled():
        return otherwise
    found = outcome.result()
    return found.reason if isinstance(found, RequestError) else "OK"


def _carrier(metadata: Metadata) -> dict[str, list[str]]:
    """Return the headers of W3C Trace Context in the metadata."""
    found: dict[str, list[str]] = {"traceparent": [], "tracestate": []}
    for name, value in metadata:
        if name in found and isinstance(value, str):
            found[name].append(value)
    return found


def _resource() -> Resource:
    """Return the service name `lingon` and its version, or OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES if set."""
    ours = Resource({"service.name": "lingon", "service.version": importlib.metadata.version("lingon")})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _check(variable: str, only: str) -> None:
    if os.environ.get(variable, only) != only:
        raise SettingsError(f"traces: {variable} must be {only} or unset, got {os.environ[variable]!r}")
