"""The interface of call traces, and an implementation that records nothing.

OpenTelemetry is imported only if traces are on, see serving/observability/opentelemetry.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from lingon.serving.decoding.job import Job

Metadata = Iterable[tuple[str, str | bytes]]
TracedJob = tuple[int, Job, asyncio.Future[Any]]
"""The index of a text in the request, a job of that text, and the future of its outcome."""


class Trace(Protocol):
    """The trace of one call, for use on the event loop. It never contains texts, keys or messages of errors."""

    @property
    def trace_id(self) -> str:
        """The id in 32 hexadecimal digits; empty if the call belongs to no trace."""

    @property
    def exemplar(self) -> dict[str, str] | None:
        """Labels of the trace for a measurement of its call, or None if the trace is not recorded."""

    def about(self, **attributes: str | int) -> None:
        """Set attributes of the call."""

    def trace_jobs(self, jobs: Iterable[TracedJob]) -> AbstractContextManager[None]:
        """Record the phases of jobs that are submitted to the engine inside the context.

        The engine writes timestamps into the jobs. If it refuses them, the context ends with an error and nothing is
        recorded.
        """

    def phase(self, name: str, text: int) -> AbstractContextManager[None]:
        """Record the duration of the context as a phase; text: index of the text in the request."""

    def end(self, code: int) -> None:
        """End the trace and all its jobs without an outcome; code: the call's `google.rpc.Code`."""


class Tracer(Protocol):
    """A source of traces."""

    def call(self, method: str, request_id: str, metadata: Metadata, caller: str) -> Trace:
        """Start the trace of a call. The metadata may name a parent trace."""

    async def close(self) -> None:
        """Send the remaining traces, within a bounded time."""


_NO_CONTEXT = nullcontext()


class NullTrace:
    """A trace that records nothing. It may have the id of the caller's trace, for the log."""

    exemplar = None

    def __init__(self, trace_id: str = "") -> None:
        self.trace_id = trace_id

    def about(self, **attributes: str | int) -> None: ...

    def trace_jobs(self, jobs: Iterable[TracedJob]) -> AbstractContextManager[None]:
        return _NO_CONTEXT

    def phase(self, name: str, text: int) -> AbstractContextManager[None]:
        return _NO_CONTEXT

    def end(self, code: int) -> None: ...


NULL_TRACE = NullTrace()


class NullTracer:
    """A tracer that records nothing."""

    def call(self, method: str, request_id: str, metadata: Metadata, caller: str) -> Trace:
        return NULL_TRACE

    async def close(self) -> None: ...


_current: ContextVar[Trace] = ContextVar("trace", default=NULL_TRACE)


def enter(trace: Trace) -> Trace:
    """Make a trace the current one of this task and of the tasks that it starts, and return it."""
    _current.set(trace)
    return trace


def current() -> Trace:
    """Return the trace of the call that this task serves. gRPC passes no arguments of an interceptor to a method."""
    return _current.get()
