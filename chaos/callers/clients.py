"""Clients that record every request in a history when it is sent, and its outcome when it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chaos.verdict.history import CANCELLED, DEADLINE_EXCEEDED, OK, History, Outcome, TextOutcome
from lingon.bench.serve.load.jobs import arrivals
from lingon.serving.system.event_loop import LagMonitor
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

REQUEST_ID = "x-request-id"
PATIENCE = 60.0  # seconds of deadline of a request without one, so that a server that hangs does not stop the case
BACK_OFF = 0.02  # seconds that a client waits after an error, so that it does not only measure how fast requests fail
RETRY = {"maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2}
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # so that every client has its own connection
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),  # for an attempt to connect, which a busy machine delays; not a pause
    ("grpc.max_reconnect_backoff_ms", 500),
]


class Client:
    """One connection, used from one event loop."""

    def __init__(
        self, address: str, history: History, name: str = "client", *, key: str | None = None, retries: bool = False
    ) -> None:
        """key: an API key; retries: whether gRPC repeats calls that ended with UNAVAILABLE."""
        policy = {"name": [{}], "retryPolicy": {**RETRY, "retryableStatusCodes": ["UNAVAILABLE"]}}
        own = [("grpc.service_config", json.dumps({"methodConfig": [policy]}))] if retries else []
        self.channel = grpc.aio.insecure_channel(
            address, options=[*CHANNEL, ("grpc.enable_retries", int(retries)), *own]
        )
        self.stub: Any = pb_grpc.TranslationServiceStub(self.channel)
        self._health: Any = health_pb2_grpc.HealthStub(self.channel)
        self._history, self._name, self._closed = history, name, False
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    async def close(self) -> None:
        """Close the connection and cancel the running calls."""
        self._closed = True
        await self.channel.close()

    async def translate(
        self,
        *texts: str,
        beam_size: int | None = 1,
        deadline: float | None = None,
        cancel_after: float | None = None,
        due: float | None = None,
        whole: bool = False,
    ) -> Outcome:
        """Send a Translate and wait for its end; returns its outcome, and raises no error of the call.

        beam_size: None is the default of the model
        cancel_after: seconds after which the client cancels the call
        whole: whether the model reads a text at once, which is not split into its sentences
        """
        request = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(beam_size=beam_size))
        if whole:
            request.text.split_sentences = pb.SENTENCE_SPLITTING_OFF
        outcome = self._sent("Translate", texts, beam_size or 0, deadline, cancel_after, due)
        call = self.stub.Translate(request, timeout=deadline or PATIENCE, metadata=self._with_id(outcome))
        async with self._ending(outcome, call):
            reply = await call
            outcome.results = [_text_outcome(index, result) for index, result in enumerate(reply.results)]
            outcome.version, outcome.code = reply.version, OK
        return outcome

    async def stream(
        self,
        *texts: str,
        beam_size: int = 1,
        deadline: float | None = None,
        cancel_after: float | None = None,
        pause: float = 0.0,
        **options: Any,
    ) -> Outcome:
        """Like translate, with TranslateStream; pause: seconds between reading two messages."""
        request = pb.TranslateStreamRequest(texts=texts, options=pb.DecodingOptions(beam_size=beam_size, **options))
        outcome = self._sent("TranslateStream", texts, beam_size, deadline, cancel_after, None)
        call = self.stub.TranslateStream(request, timeout=deadline or PATIENCE, metadata=self._with_id(outcome))
        async with self._ending(outcome, call):
            async for event in call:
                outcome.first = outcome.first or time.monotonic()
                if event.HasField("done"):
                    outcome.results.append(_text_outcome(event.done.text_index, event.done.result))
                elif event.HasField("start"):
                    outcome.version = event.start.version
                if pause:
                    await asyncio.sleep(pause)
            outcome.code = OK
        return outcome

    async def health(self, service: str = "", seconds: float = 5.0) -> str:
        """The serving status of the health service, or the code of the failed call."""
        try:
            reply = await self._health.Check(health_pb2.HealthCheckRequest(service=service), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    async def watch(self, report: Callable[[str], None]) -> None:
        """Report every change of health until the connection breaks or the task is cancelled."""
        try:
            async for reply in self._health.Watch(health_pb2.HealthCheckRequest()):
                report(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))
        except grpc.aio.AioRpcError as error:
            report(error.code().name)

    def _sent(
        self,
        method: str,
        texts: tuple[str, ...],
        beam_size: int,
        deadline: float | None,
        cancel_after: float | None,
        due: float | None,
    ) -> Outcome:
        now = time.monotonic()
        return self._history.add(
            Outcome(
                id=self._history.new_id(self._name),
                method=method,
                texts=texts,
                beam_size=beam_size,
                deadline=deadline,
                cancel_after=cancel_after,
                due=now if due is None else due,
                sent=now,
            )
        )

    def _with_id(self, outcome: Outcome) -> tuple[tuple[str, str], ...]:
        return ((REQUEST_ID, outcome.id), *self._metadata)

    @asynccontextmanager
    async def _ending(self, outcome: Outcome, call: Any) -> AsyncIterator[None]:
        """Record how a call ends, and cancel it after `cancel_after`."""
        loop = asyncio.get_running_loop()
        timer = None if outcome.cancel_after is None else loop.call_later(outcome.cancel_after, call.cancel)
        try:
            yield
        except grpc.aio.AioRpcError as error:
            outcome.code, outcome.reason = error.code().name, reason_of(error.trailing_metadata())
            outcome.request_id = _value(error.trailing_metadata(), REQUEST_ID)
            if outcome.code == CANCELLED and outcome.deadline and time.monotonic() >= outcome.sent + outcome.deadline:
                outcome.code = (
                    DEADLINE_EXCEEDED  # the server's end of the same deadline came first: a reset has no reason
                )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not call.cancelled() or (task is not None and task.cancelling()):
                raise  # this task was cancelled, not the call
            outcome.code = CANCELLED
            if self._closed and outcome.cancel_after is None:
                outcome.cancel_after = time.monotonic() - outcome.sent
        else:
            outcome.request_id = _value(await call.trailing_metadata(), REQUEST_ID)
        finally:
            outcome.ended = time.monotonic() if outcome.code else None
            if timer is not None:
                timer.cancel()


def _text_outcome(index: int, result: pb.TextResult) -> TextOutcome:
    code = code_pb2.Code.Name(result.status.code)
    return TextOutcome(index, code, result.hypotheses[0].text if result.hypotheses else "")


def _value(metadata: Any, name: str) -> str:
    return next((str(value) for key, value in metadata or () if key == name), "")


def reason_of(metadata: Any) -> str:
    """The reason in the error details of a call's trailing metadata."""
    packed = next((value for key, value in metadata or () if key == "grpc-status-details-bin"), None)
    if packed is None:
        return ""
    info = error_details_pb2.ErrorInfo()
    details: Sequence[Any] = status_pb2.Status.FromString(packed).details
    return next((info.reason for detail in details if _unpacked(detail, info)), "")


def _unpacked(detail: Any, into: Message) -> bool:
    return bool(detail.Unpack(into))


Send = Callable[..., Any]
"""`Client.translate` or `Client.stream`, perhaps with arguments given."""


async def open_loop(send: Send, texts: Sequence[str], rate: float, seconds: float, seed: int = 1) -> list[Outcome]:
    """Send requests at Poisson arrivals, `rate` a second, whether or not earlier ones are answered; wait for all.

    A latency counts from the time at which the request was due: a client that waits for answers before it sends hides
    the slow ones (coordinated omission).
    """
    planned = arrivals(rate, seconds, len(texts), seed)
    tasks = []
    with no_collection():
        start = time.monotonic() + 0.05
        for arrival in planned:
            due = start + arrival.due
            await asyncio.sleep(max(due - time.monotonic(), 0))
            tasks.append(asyncio.create_task(send(texts[arrival.text], due=due)))
        return list(await asyncio.gather(*tasks))


async def closed_loop(
    send: Send,
    texts: Sequence[str],
    clients: int,
    *,
    seconds: float = float("inf"),
    requests: int | None = None,
    until: Callable[[Outcome], bool] = lambda _: False,
    seed: int = 1,
) -> list[Outcome]:
    """Clients that each send their next request after the answer, until the time is over or `until` holds."""
    draw, found = random.Random(seed), list[Outcome]()
    left = iter(range(requests)) if requests is not None else None

    async def client(end: float) -> None:
        while time.monotonic() < end and (left is None or next(left, None) is not None):
            outcome = await send(draw.choice(texts))
            found.append(outcome)
            if until(outcome):
                return
            if not outcome.good:
                await asyncio.sleep(BACK_OFF)

    with no_collection():
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(end) for _ in range(clients)))
    return found


class no_collection:
    """Turns garbage collection off in the block, so that a pause of this process is not taken for one of the server."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()


@asynccontextmanager
async def lag_measured(into: list[float]) -> AsyncIterator[None]:
    """Append the lag of this process's event loop in seconds, again and again, while the block runs."""
    monitor = asyncio.create_task(LagMonitor().measure(into.append))
    try:
        yield
    finally:
        monitor.cancel()
