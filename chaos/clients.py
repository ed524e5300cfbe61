"""Clients: each request goes into the history when it is sent, and gets its fate there."""

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

from chaos.history import CANCELLED, DEADLINE_EXCEEDED, OK, Fate, History, TextFate
from lingon.bench.serve.load import arrivals
from lingon.serving.system.event_loop import LagMonitor
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

REQUEST_ID = "x-request-id"
PATIENCE = 60.0  # seconds that a request has where nothing else is said: a server that hangs must not hang us
BACK_OFF = 0.02  # seconds that a client waits after an error: without it, it would only measure how fast it can fail
RETRY = {"maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2}
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class Client:
    """One connection. Belongs to one event loop."""

    def __init__(
        self, address: str, history: History, name: str = "client", *, key: str | None = None, retries: bool = False
    ) -> None:
        """key: of the API; retries: whether what was answered UNAVAILABLE is tried again, by gRPC itself."""
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
        """End the connection, and cancel what is under way."""
        self._closed = True
        await self.channel.close()

    async def translate(
        self,
        *texts: str,
        beam_size: int | None = 1,
        deadline: float | None = None,
        cancel_after: float | None = None,
        due: float | None = None,
    ) -> Fate:
        """Send a Translate and wait for its end, whatever it is; cancelled by us after so many seconds.

        beam_size: None is as the model says
        """
        request = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(beam_size=beam_size))
        fate = self._sent("Translate", texts, beam_size or 0, deadline, cancel_after, due)
        call = self.stub.Translate(request, timeout=deadline or PATIENCE, metadata=self._with_id(fate))
        async with self._ending(fate, call):
            reply = await call
            fate.results = [_text_fate(index, result) for index, result in enumerate(reply.results)]
            fate.version, fate.code = reply.version, OK
        return fate

    async def stream(
        self,
        *texts: str,
        beam_size: int = 1,
        deadline: float | None = None,
        cancel_after: float | None = None,
        pause: float = 0.0,
        **options: Any,
    ) -> Fate:
        """The same with TranslateStream; pause: seconds between two messages that are read."""
        request = pb.TranslateStreamRequest(texts=texts, options=pb.DecodingOptions(beam_size=beam_size, **options))
        fate = self._sent("TranslateStream", texts, beam_size, deadline, cancel_after, None)
        call = self.stub.TranslateStream(request, timeout=deadline or PATIENCE, metadata=self._with_id(fate))
        async with self._ending(fate, call):
            async for event in call:
                fate.first = fate.first or time.monotonic()
                if event.HasField("done"):
                    fate.results.append(_text_fate(event.done.text_index, event.done.result))
                elif event.HasField("start"):
                    fate.version = event.start.version
                if pause:
                    await asyncio.sleep(pause)
            fate.code = OK
        return fate

    async def health(self, service: str = "", seconds: float = 5.0) -> str:
        """What the health service says, or the code with which nobody said anything."""
        try:
            reply = await self._health.Check(health_pb2.HealthCheckRequest(service=service), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    async def watch(self, tell: Callable[[str], None]) -> None:
        """Tell every change of health until the connection breaks or we are cancelled."""
        try:
            async for reply in self._health.Watch(health_pb2.HealthCheckRequest()):
                tell(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))
        except grpc.aio.AioRpcError as error:
            tell(error.code().name)

    def _sent(
        self,
        method: str,
        texts: tuple[str, ...],
        beam_size: int,
        deadline: float | None,
        cancel_after: float | None,
        due: float | None,
    ) -> Fate:
        now = time.monotonic()
        return self._history.add(
            Fate(
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

    def _with_id(self, fate: Fate) -> tuple[tuple[str, str], ...]:
        return ((REQUEST_ID, fate.id), *self._metadata)

    @asynccontextmanager
    async def _ending(self, fate: Fate, call: Any) -> AsyncIterator[None]:
        """Write down how a call ends, and cancel it when it is time to."""
        loop = asyncio.get_running_loop()
        timer = None if fate.cancel_after is None else loop.call_later(fate.cancel_after, call.cancel)
        try:
            yield
        except grpc.aio.AioRpcError as error:
            fate.code, fate.reason = error.code().name, _reason(error.trailing_metadata())
            fate.request_id = _value(error.trailing_metadata(), REQUEST_ID)
            if fate.code == CANCELLED and fate.deadline and time.monotonic() >= fate.sent + fate.deadline:
                fate.code = DEADLINE_EXCEEDED  # the server's end of the same deadline came first: a reset has no reason
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not call.cancelled() or (task is not None and task.cancelling()):
                raise  # it is we who are to stop
            fate.code = CANCELLED
            if self._closed and fate.cancel_after is None:
                fate.cancel_after = time.monotonic() - fate.sent
        else:
            fate.request_id = _value(await call.trailing_metadata(), REQUEST_ID)
        finally:
            fate.ended = time.monotonic() if fate.code else None
            if timer is not None:
                timer.cancel()


def _text_fate(index: int, result: pb.TextResult) -> TextFate:
    code = code_pb2.Code.Name(result.status.code)
    return TextFate(index, code, result.hypotheses[0].text if result.hypotheses else "")


def _value(metadata: Any, name: str) -> str:
    return next((str(value) for key, value in metadata or () if key == name), "")


def _reason(metadata: Any) -> str:
    """The reason in the details of an error."""
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


async def open_loop(send: Send, texts: Sequence[str], rate: float, seconds: float, seed: int = 1) -> list[Fate]:
    """Poisson arrivals, `rate` a second, whether or not others have been answered; waits for all ends.

    Latencies count from the moment a request was due: who waits for answers before sending hides the slow ones.
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
    until: Callable[[Fate], bool] = lambda _: False,
    seed: int = 1,
) -> list[Fate]:
    """So many clients that send again when they are answered, until the time is over or a fate is one to stop at."""
    draw, found = random.Random(seed), list[Fate]()
    left = iter(range(requests)) if requests is not None else None

    async def client(end: float) -> None:
        while time.monotonic() < end and (left is None or next(left, None) is not None):
            fate = await send(draw.choice(texts))
            found.append(fate)
            if until(fate):
                return
            if not fate.good:
                await asyncio.sleep(BACK_OFF)

    with no_collection():
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(end) for _ in range(clients)))
    return found


class no_collection:
    """No garbage collection inside: it would be a pause of ours that is taken for one of the server's."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()


@asynccontextmanager
async def lag_measured(into: list[float]) -> AsyncIterator[None]:
    """Write down, in seconds, how late this process's own event loop is, again and again."""
    pulse = asyncio.create_task(LagMonitor().measure(into.append))
    try:
        yield
    finally:
        pulse.cancel()
