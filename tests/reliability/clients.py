"""Clients over gRPC and HTTP that record every request when it is sent and its outcome when it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingon.bench.serve.load import arrivals
from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError
from lingon.serving.event_loop import LagMonitor
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.reliability.history import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    KILLED,
    OK,
    UNAVAILABLE,
    History,
    Outcome,
    TextOutcome,
    line,
    read,
)
from tests.reliability.server import ends_with_parent

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
    ("grpc.min_reconnect_backoff_ms", 2000),  # for an attempt to connect, because a busy machine delays it
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
        """Send a Translate, wait for its end and return its outcome, without an error of the call.

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
        """Translate with TranslateStream. pause: seconds between reading two messages."""
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
        """Return the serving status of the health service, or the code of the failed call."""
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
    """Return the reason in the error details of a call's trailing metadata."""
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
    """Send requests at Poisson arrivals, `rate` a second, whether or not earlier ones are answered, and wait for all.

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
    """Run clients that each send their next request after the answer, until the time is over or `until` holds."""
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
    """A block without garbage collection, so that a pause of this process does not count as one of the server."""

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


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient:
    """A client that sends requests to `/v1/translate`, each on a connection that no other request uses at that time."""

    def __init__(self, port: int, history: History, name: str = "http", *, keep_alive: bool = False) -> None:
        """keep_alive: whether a connection is used again after a whole reply; `close` closes these."""
        self._port, self._history, self._name = port, history, name
        self._free: list[Connection] | None = [] if keep_alive else None

    def close(self) -> None:
        """Close the connections that no request uses."""
        for _, writer in self._free or ():
            writer.close()

    async def translate(
        self, *texts: str, beam_size: int = 1, deadline: float | None = None, due: float | None = None
    ) -> Outcome:
        """Send a request, wait for its end and return its outcome, without an error of the request.

        A connection that is refused, or that ends without a whole reply, is UNAVAILABLE, as in gRPC.

        deadline: seconds that the client waits, which it says to the server
        """
        now = time.monotonic()
        outcome = self._history.add(
            Outcome(
                id=self._history.new_id(self._name),
                method="Translate",
                texts=texts,
                beam_size=beam_size,
                deadline=deadline,
                due=now if due is None else due,
                sent=now,
            )
        )
        content = json.dumps({"texts": texts, "options": {"beamSize": beam_size}}).encode()
        try:
            async with asyncio.timeout(deadline or PATIENCE):
                _record(outcome, await self._reply(self._request(outcome, content)))
        except TimeoutError:
            outcome.code = DEADLINE_EXCEEDED
        except (OSError, asyncio.IncompleteReadError):
            outcome.code = UNAVAILABLE
        outcome.ended = time.monotonic()
        return outcome

    def _request(self, outcome: Outcome, content: bytes) -> bytes:
        head = [
            "POST /v1/translate HTTP/1.1",
            "host: localhost",
            f"connection: {'close' if self._free is None else 'keep-alive'}",
            "content-type: application/json",
            f"{REQUEST_ID}: {outcome.id}",
            f"content-length: {len(content)}",
        ]
        if outcome.deadline is not None:
            head.append(f"x-server-timeout: {outcome.deadline:g}")
        return "\r\n".join([*head, "", ""]).encode() + content

    async def _reply(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a whole reply. Raise IncompleteReadError for a part of one."""
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        whole = False
        try:
            writer.write(request)
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            whole = headers.get("connection", "").lower() != "close"
            return int(status.split()[1]), headers, body
        finally:
            if whole and self._free is not None:
                self._free.append((reader, writer))
            else:
                writer.close()


def _record(outcome: Outcome, reply: tuple[int, dict[str, str], bytes]) -> None:
    """Write a reply into the outcome of its request."""
    status, headers, body = reply
    outcome.request_id = headers.get(REQUEST_ID, "")
    if not outcome.request_id:  # the port refused the connection, before any API saw the request
        outcome.code = UNAVAILABLE if status == 503 else f"HTTP {status}"
        return
    found: dict[str, Any] = json.loads(body)
    if status != 200:
        outcome.code = code_pb2.Code.Name(found["code"])
        outcome.reason = next((each["reason"] for each in found.get("details", ()) if "reason" in each), "")
        return
    outcome.results = [_text(index, result) for index, result in enumerate(found["results"])]
    outcome.version, outcome.code = found["version"], OK


def _text(index: int, result: dict[str, Any]) -> TextOutcome:
    code = code_pb2.Code.Name(result.get("status", {}).get("code", 0))
    return TextOutcome(index, code, result["hypotheses"][0].get("text", "") if code == OK else "")


class CrashingClient:
    """A process with open streams to a server."""

    def __init__(self, address: str, texts: Sequence[str], streams: int, folder: Path, cores: Cores) -> None:
        """Start the process, and return when all streams have started."""
        self._file = folder / f"crashing-{time.monotonic_ns()}.jsonl"
        self._file.touch()
        command = [
            "nice",
            sys.executable,
            "-m",
            "tests.reliability.clients",
            address,
            str(self._file),
            str(streams),
        ]
        with on_cores(cores):
            self._process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(list(texts)).encode())
        if self._process.stdout.readline() != b"streaming\n":
            self.kill()
            raise LingonError("the crashing client ended before its streams had started")

    def freeze(self) -> None:
        """Stop the process: its kernel still acknowledges packets, but the process reads nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> list[Outcome]:
        """Kill the process, and return its requests."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        outcomes = read(self._file)
        for outcome in outcomes:
            outcome.code, outcome.ended = KILLED, time.monotonic()
        return outcomes


class _Written(History):
    """A history that writes a request to disk before it is sent, because the process may be killed at any time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, outcome: Outcome) -> Outcome:
        """Record a request on disk at once."""
        self._file.write(line(outcome))
        return super().add(outcome)


async def _stream(address: str, path: Path, streams: int, texts: Sequence[str]) -> None:
    history = _Written(path)
    client = Client(address, history, f"crashing-{os.getpid()}")
    asked = [
        asyncio.create_task(client.stream(texts[number % len(texts)], deadline=3600.0)) for number in range(streams)
    ]
    while not all(outcome.first for outcome in history) or len(history) < streams:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    sys.stdout.write("streaming\n")
    sys.stdout.flush()
    await asyncio.gather(*asked)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_stream(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.load(sys.stdin)))
