"""Traces of calls: who may follow a call through the server, and the default that follows none.

Nothing of OpenTelemetry is imported here, nor anywhere else unless traces are on: see
serving/observability/opentelemetry.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from importlib.metadata import EntryPoint
from typing import Any, Protocol, cast

from lingon.extras import name_missing_extra
from lingon.serving.decoding.job import Job

Metadata = Iterable[tuple[str, str | bytes]]
TracedJob = tuple[int, Job, asyncio.Future[Any]]
"""The index of a text in the request, a job of that text, and the future of its outcome."""


class Trace(Protocol):
    """Follows one call, on the event loop. No text, key or message of an error is ever told to it."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits; empty where the call belongs to no trace."""

    def about(self, **attributes: str | int) -> None:
        """What is to be known of the call."""

    def trace_jobs(self, jobs: Iterable[TracedJob]) -> AbstractContextManager[None]:
        """Hand jobs to the engine inside this: it stamps them, and their phases are told once they are over.

        Where the engine refuses them there is nothing to tell.
        """

    def phase(self, name: str, text: int) -> AbstractContextManager[None]:
        """Something done inside this on the event loop, for the text at this place of the request."""

    def end(self, code: int) -> None:
        """The call is over; code: its `google.rpc.Code`. What is not over by now was left by the call."""


class Tracer(Protocol):
    """Makes traces."""

    def call(self, method: str, request_id: str, metadata: Metadata) -> Trace:
        """The trace of a call that begins; metadata may name a trace that it is part of."""

    async def close(self) -> None:
        """Hand out what is left, within a bounded time."""


_NOTHING = nullcontext()


class NullTrace:
    """A trace that nobody wants to see; it may have an id, which the caller knows the call by."""

    def __init__(self, trace_id: str = "") -> None:
        self.trace_id = trace_id

    def about(self, **attributes: str | int) -> None: ...

    def trace_jobs(self, jobs: Iterable[TracedJob]) -> AbstractContextManager[None]:
        return _NOTHING

    def phase(self, name: str, text: int) -> AbstractContextManager[None]:
        return _NOTHING

    def end(self, code: int) -> None: ...


NULL_TRACE = NullTrace()


class NullTracer:
    """Follows nobody."""

    def call(self, method: str, request_id: str, metadata: Metadata) -> Trace:
        return NULL_TRACE

    async def close(self) -> None: ...


_current: ContextVar[Trace] = ContextVar("trace", default=NULL_TRACE)


def enter(trace: Trace) -> Trace:
    """The same, which from now on is the trace of this task and those that it starts."""
    _current.set(trace)
    return trace


def current() -> Trace:
    """The trace of the call that is served here: gRPC lets no argument of ours through to a method."""
    return _current.get()


def open_tracer(*, traces: bool) -> Tracer:
    """What follows the calls of a server; raises LingonError where traces are asked for and cannot be had."""
    if not traces:
        return NullTracer()
    entry = EntryPoint(
        "traces", "lingon.serving.observability.opentelemetry:OpenTelemetryTracer [tracing]", "lingon.tracers"
    )
    with name_missing_extra("lingon serve --traces", entry):
        return cast(Tracer, entry.load()())
