"""The steps of an exchange, and their drivers.

An exchange is a generator. It yields steps: `Send` a request, `Sleep`, `Compute`. Its driver sends it the reply of each
step, or throws the ServerError into it. It returns the result of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message

from lingon.errors import ServerError
from lingon.translation.v1 import translation_pb2 as pb

Reply = TypeVar("Reply")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Method(Generic[Reply]):
    """A method of a service; the reply of a streaming method is its first message and the iterator of the others."""

    path: str
    parse: Callable[[bytes], Reply]
    streams: bool = False


_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}"
TRANSLATE = Method(f"{_SERVICE}/Translate", pb.TranslateResponse.FromString)
STREAM: Method[Any] = Method(f"{_SERVICE}/TranslateStream", pb.TranslateStreamResponse.FromString, streams=True)
SCORE = Method(f"{_SERVICE}/Score", pb.ScoreResponse.FromString)
LIST_MODELS = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)
DETECT_LANGUAGES = Method(f"{_SERVICE}/DetectLanguages", pb.DetectLanguagesResponse.FromString)

# The package of grpc.health.v1 is not installed with a client. Its messages have one field each, a string and an enum,
# and so have these messages of protobuf itself, which are written as the same bytes.
HealthCheckRequest = wrappers_pb2.StringValue  # its value is the service
HealthCheckResponse = wrappers_pb2.Int32Value  # its value is the index of one of HEALTH_STATES
HEALTH = Method("/grpc.health.v1.Health/Check", HealthCheckResponse.FromString)
HEALTH_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; timeout: seconds from now."""

    method: Method[Any]
    request: Message
    timeout: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before the next try."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function that takes so long that an event loop would stand still; drivers do it."""

    function: Callable[[], Any]


Exchange = Generator[Send | Sleep | Compute, Any, Result]


def drive(exchange: Exchange[Result], perform: Callable[[Send | Sleep], Any]) -> Result:
    """Run an exchange to its end and return its result; perform: carries out a step and returns its reply."""
    try:
        step = next(exchange)
        while True:
            try:
                reply = step.function() if isinstance(step, Compute) else perform(step)
            except ServerError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result


async def drive_async(exchange: Exchange[Result], perform: Callable[[Send | Sleep], Awaitable[Any]]) -> Result:
    """As `drive`, for asyncio."""
    try:
        step = next(exchange)
        while True:
            try:
                reply = await (asyncio.to_thread(step.function) if isinstance(step, Compute) else perform(step))
            except ServerError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result
