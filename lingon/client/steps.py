"""The steps of an exchange, their drivers, and when a failed one is repeated; without sockets, clocks and threads.

An exchange is a generator. It yields steps: `Send` a request, `Sleep`, `Compute`. Its driver sends it the reply of each
step, or throws the ServerError into it. It returns the result of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.errors import ServerError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb

Reply = TypeVar("Reply")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Method(Generic[Reply]):
    """A method of a service. The reply of a streaming method is its first message and the iterator of the others.

    uploads: whether its request is an iterable of messages
    talks: whether both sides send messages at any time. Its request is the first message, and its reply the first one
        of the server and the Talk, or AsyncTalk, of the others; see lingon.client.live
    """

    path: str
    parse: Callable[[bytes], Reply]
    streams: bool = False
    uploads: bool = False
    talks: bool = False


_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}"
TRANSLATE = Method(f"{_SERVICE}/Translate", pb.TranslateResponse.FromString)
STREAM: Method[Any] = Method(f"{_SERVICE}/TranslateStream", pb.TranslateStreamResponse.FromString, streams=True)
LIVE: Method[Any] = Method(f"{_SERVICE}/TranslateLive", pb.TranslateLiveResponse.FromString, talks=True)
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
    """A request to send.

    timeout: seconds from now until the reply; of a method that talks, until the first message of the server
    """

    method: Method[Any]
    request: Message | Iterable[Message]
    timeout: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """A wait before the next try."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Compute:
    """A call of a function that would hold up an event loop. Drivers make it."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Exponential backoff with jitter. The n-th pause is drawn from the upper half of first_pause * 2^(n-1).

    retries: tries after the first one. Only UNAVAILABLE is repeated, which is safe because translating changes nothing.
        5 retries take 1.5 to 3 seconds, about as long as a server of a small model needs to restart
    first_pause, longest_pause: seconds. If the server names a pause (RetryInfo), the pause is at least as long
    wait_when_full: also repeat while the server is full or the quota used up, as often as the deadline allows; meant
        for clients that send in bulk
    wait_when_away: also repeat UNAVAILABLE until the deadline if the server has answered this client before
    """

    retries: int = 5
    first_pause: float = 0.1
    longest_pause: float = 5.0
    wait_when_full: bool = False
    wait_when_away: bool = False

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise SettingsError(f"retries must be at least 0, got {self.retries}")

    def pause(
        self, failures: int, error: ServerError, remaining: float, random: Callable[[], float], answered: bool = False
    ) -> float | None:
        """Return seconds to wait before the next try, or None if the call is not repeated.

        failures: tries that have failed so far; error: the error of the last one
        remaining: seconds to the deadline. No try begins after it
        random: returns a number from 0 to 1
        answered: whether the server has ever answered
        """
        full = self.wait_when_full and error.reason in ("QUEUE_FULL", "TOO_MANY_CALLS", "QUOTA_EXCEEDED")
        away = error.code == code_pb2.UNAVAILABLE and (failures <= self.retries or (self.wait_when_away and answered))
        if not (full or away):
            return None
        drawn = min(self.first_pause * 2.0 ** min(failures - 1, 32), self.longest_pause) * (1 + random()) / 2
        pause = max(drawn, error.retry_after or 0.0)
        return pause if pause < remaining else None
