"""A speaker whose next word waits for the translation of the last one, so that the log does not depend on the machine.

Otherwise a slow machine would translate several words in one update, and quality and lags would change with it. The
time in which the server computes is measured beside the log, for the computation-aware lag.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from lingon.bench.live.lagging import Talk
from lingon.bench.live.word_times import Speech, units
from lingon.client.connection import proxy_options
from lingon.errors import LingonError
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

PATIENCE = 60.0  # seconds that a server has for an answer


@dataclass(frozen=True, slots=True)
class Policy:
    """When text is agreed. lag_words: 0 is the default of the policy."""

    name: str
    lag_words: int = 0

    @property
    def kind(self) -> pb.LivePolicy.ValueType:
        """The policy in a message. Raise ValueError for a name that is none of POLICIES."""
        return pb.LivePolicy.Value(f"LIVE_POLICY_{self.name.upper()}")

    @property
    def label(self) -> str:
        """Its name in results, such as "wait-k 5"."""
        name = self.name.replace("_", "-")
        return f"{name} {self.lag_words}" if self.lag_words else name

    def start(self, languages: Languages, *, agreed_only: bool = False) -> pb.TranslateLiveRequest:
        """Return the first message of a speaker."""
        start = pb.LiveStart(
            source_language_code=languages.source,
            target_language_code=languages.target,
            policy=self.kind,
            lag_words=self.lag_words,
            agreed_only=agreed_only,
        )
        return pb.TranslateLiveRequest(start=start)


POLICIES = ("local_agreement", "wait_k", "alignment", "sentences")


@dataclass(frozen=True, slots=True)
class Languages:
    """The codes of a pair of languages."""

    source: str
    target: str


class Server:
    """A connection to a server. It belongs to one event loop."""

    def __init__(self, address: str) -> None:
        """address: HOST:PORT."""
        self.address = address
        self._channel = grpc.aio.insecure_channel(
            address, [*proxy_options(address), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.stub: Any = pb_grpc.TranslationServiceStub(self._channel)

    async def close(self) -> None:
        """Close the connection, and cancel its calls."""
        await self._channel.close()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Server]:
    """Connect to a server for the block."""
    server = Server(address)
    try:
        yield server
    finally:
        await server.close()


def words_message(first: int, words: Sequence[pb.LiveWord]) -> pb.TranslateLiveRequest:
    """Return the message of words, of which the first one has this number."""
    return pb.TranslateLiveRequest(words=pb.LiveWords(**{"from": first}, words=words))


END = pb.TranslateLiveRequest(end=pb.LiveEnd())


async def send(call: Any, message: pb.TranslateLiveRequest) -> None:
    """Write a message. Raise the error of a call that has ended, where gRPC raises InvalidStateError."""
    try:
        await call.write(message)
    except asyncio.InvalidStateError:
        headers, trailers = await call.initial_metadata(), await call.trailing_metadata()
        raise grpc.aio.AioRpcError(await call.code(), headers, trailers, await call.details()) from None


async def listen(server: Server, speech: Speech, policy: Policy, languages: Languages) -> Talk:
    """Speak a speech, and return its translation with all delays. The end is said together with the last word.

    Raises LingonError with the reason if the call fails, and if the server does not answer within PATIENCE seconds.
    """
    call = server.stub.TranslateLive()
    try:
        async with asyncio.timeout(None) as bound:
            log = await _Speaking(call, bound, languages.target).run(speech, policy.start(languages))
    except grpc.aio.AioRpcError as error:
        raise LingonError(f"{server.address}: {policy.label}: {error.code().name}: {error.details()}") from None
    except TimeoutError:
        raise LingonError(f"{server.address}: {policy.label}: no answer within {PATIENCE:g} s") from None
    finally:
        call.cancel()
    return log.talk(speech, languages)


class _Speaking:
    """One call."""

    def __init__(self, call: Any, bound: asyncio.Timeout, language: str) -> None:
        self._call, self._bound, self._log = call, bound, _Log(language)

    async def run(self, speech: Speech, start: pb.TranslateLiveRequest) -> _Log:
        await send(self._call, start)
        await self._read()
        last = len(speech.words)
        for number, word in enumerate(speech.words, start=1):
            sent = time.perf_counter()
            await send(self._call, words_message(number - 1, [word]))
            if number == last:
                await send(self._call, END)
            while True:
                answer = await self._read()
                computed_ms = 1000 * (time.perf_counter() - sent)
                if answer.HasField("update"):
                    self._log.add(answer.update, number, computed_ms)
                if answer.HasField("done") or (number < last and answer.update.words >= number):
                    break
        return self._log

    async def _read(self) -> pb.TranslateLiveResponse:
        self._bound.reschedule(asyncio.get_running_loop().time() + PATIENCE)
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise LingonError("the server ended a call without LiveDone")
        found: pb.TranslateLiveResponse = answer
        return found


@dataclass(slots=True)
class _Log:
    """The answers to one speech."""

    language: str
    agreed: str = ""
    shown: list[list[str]] = field(default_factory=list)
    characters: list[int] = field(default_factory=list)  # agreed after each update, without white space
    delays: list[tuple[int, float]] = field(default_factory=list)  # of each update: words read, and ms of computing

    def add(self, update: pb.LiveUpdate, read: int, computed_ms: float) -> None:
        self.agreed += update.agreed
        self.shown.append(units(self.agreed + update.tentative, self.language))
        self.characters.append(sum(map(len, self.agreed.split())))
        self.delays.append((read, computed_ms))

    def talk(self, speech: Speech, languages: Languages) -> Talk:
        words = units(self.agreed, self.language)
        ends = itertools.accumulate(map(len, words))
        # A word is complete with its last character, such as a full stop that came later than its letters.
        delays = [self.delays[bisect_left(self.characters, end)] for end in ends]
        read_ms = [speech.words[read - 1].end_ms for read, _ in delays]
        return Talk(
            source=speech.text(languages.source),
            source_words=len(speech.words),
            source_ms=speech.milliseconds,
            reference=speech.reference,
            reference_words=len(units(speech.reference, self.language)),
            translation=self.agreed.strip(),
            words=words,
            read=[read for read, _ in delays],
            read_ms=read_ms,
            elapsed_ms=[ms + computed for ms, (_, computed) in zip(read_ms, delays, strict=True)],
            shown=self.shown,
        )
