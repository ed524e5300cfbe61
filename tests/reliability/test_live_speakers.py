"""Speakers of live translation that vanish, and a server that restarts while they speak.

Speakers say their next word when they have the translation of the last one, so that their translations are those of a
speaker alone.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import grpc

from lingon.bench.live.quality import speak_all
from lingon.bench.live.speaker import END, Languages, Policy, connected, listen, send, words_message
from lingon.bench.live.speaker import Server as Connection
from lingon.bench.live.word_times import Speech, speeches
from lingon.errors import LingonError
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.context import CaseContext
from tests.reliability.server import Server

LANGUAGES = Languages("en", "de")
POLICY = Policy("local_agreement", 2)
DRAIN = 10.0  # seconds of the drain deadline


@case(
    "speakers that vanish: places free <= 2 s; the others' translations as alone; no file descriptor leaks",
    figures=("places free after", "file descriptors leaked", "speakers that stayed"),
)
async def test_live_speakers_vanish(context: CaseContext, checks: Checks) -> None:
    """Half of the speakers end their connections without a word, in the middle of a sentence."""
    spoken = speeches([(text, "") for text in context.texts[: context.choose(200, 24)]], LANGUAGES.source)
    async with context.server() as server:
        async with connected(server.address) as connection:
            alone = [(await listen(connection, speech, POLICY, LANGUAGES)).translation for speech in spoken]
            fds = server.fds()
            staying = asyncio.create_task(speak_all(connection, spoken, POLICY, LANGUAGES, 8))
            vanishing = [Connection(server.address) for _ in range(8)]
            left = [asyncio.create_task(_speak_without_end(each, spoken[0])) for each in vanishing]
            await asyncio.gather(*left)
            checks.at_least("speakers before they vanish", await _speakers(server), len(vanishing))
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(each.close() for each in vanishing))
            beside = [talk.translation for talk in await staying]
            await context.wait_until("no speaker is left", lambda: _none_left(server))
            freed = asyncio.get_running_loop().time() - began
            checks.equal("speakers that stayed", len(beside), len(spoken))
            different = [f"{one!r} and {other!r}" for one, other in zip(alone, beside, strict=True) if one != other]
            checks.clean("translations as alone", different)
            await context.wait_until("its sockets are closed", lambda: server.fds() <= fds)
            checks.at_most("file descriptors leaked", server.fds() - fds, 0)
        await _vanish_alone(context, checks, server, spoken[0])
        checks.measured("all ended after", freed, "s")
        scrape = await context.idle_scrape(server)
        checks.clean("gauges back to 0", checker.gauges_at_zero(scrape))
        checks.clean("as many durations as calls", checker.durations_match_calls(scrape))
        checks.clean("no unhandled error", server.tracebacks())


async def _vanish_alone(context: CaseContext, checks: Checks, server: Server, speech: Speech) -> None:
    connection = Connection(server.address)
    await _speak_without_end(connection, speech)
    began = asyncio.get_running_loop().time()
    await connection.close()
    await context.wait_until("no speaker is left", lambda: _none_left(server))
    checks.at_most("places free after", asyncio.get_running_loop().time() - began, 2.0, "s", timing=True)


async def _speak_without_end(connection: Connection, speech: Speech) -> None:
    """Say all words but the last one, and read the translation of the first."""
    call = connection.stub.TranslateLive()
    await call.write(POLICY.start(LANGUAGES))
    await call.read()
    await call.write(words_message(0, speech.words[:-1]))
    await call.read()


async def _speakers(server: Server) -> float:
    return (await server.scrape()).sum("lingon_live_speakers")


async def _none_left(server: Server) -> bool:
    return await _speakers(server) == 0


def _is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether a call ended with its connection. gRPC has another status if the client was just writing a message."""
    writing = error.code() is grpc.StatusCode.INTERNAL and error.details() == "Internal error from Core"
    return writing or error.code() is grpc.StatusCode.UNAVAILABLE


@dataclass(slots=True)
class Resuming:
    """A speaker that goes on after an interruption with the first sentence that was not complete.

    sentences: the complete ones; broken_off: agreed text of those that were not, with what they became
    """

    words: Sequence[pb.LiveWord]
    sentences: list[str] = field(default_factory=list)
    broken_off: list[tuple[str, str]] = field(default_factory=list)
    complete: int = 0  # words of the complete sentences
    interruptions: int = 0
    answers: int = 0
    _open: str = ""  # agreed text of the sentence that is not complete
    _before: str = ""  # the same before the interruption

    async def speak(self, connection: Connection, ready: Callable[[], Awaitable[object]]) -> None:
        """Say everything. ready: waits until the server serves again."""
        while True:
            try:
                await self._call(connection.stub.TranslateLive(wait_for_ready=True))
            except grpc.aio.AioRpcError as error:
                if not _is_lost(error):
                    raise LingonError(f"a speaker ended with {error.code().name}: {error.details()}") from error
                self.interruptions += 1
                self._before, self._open = self._open or self._before, ""
                await ready()
            else:
                return

    async def _call(self, call: Any) -> None:
        first = self.complete
        await send(call, POLICY.start(LANGUAGES))
        await call.read()
        for number, word in enumerate(self.words[first:], start=1):
            await send(call, words_message(number - 1, [word]))
            while await self._answered(call, first) < number:
                pass
        await send(call, END)
        while await self._answered(call, first) < math.inf:
            pass

    async def _answered(self, call: Any, first: int) -> float:
        """Read an answer, and return the number of words of the call that are translated; inf after the last one."""
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise LingonError("the server ended a call without LiveDone")
        if answer.HasField("done"):
            return math.inf
        self.answers += 1
        self._open += answer.update.agreed
        if answer.update.is_complete:
            self._end_sentence(first + answer.update.words)
        return float(answer.update.words)

    def _end_sentence(self, words: int) -> None:
        if self._before:
            self.broken_off.append((self._before.strip(), self._open.strip()))
        self.sentences.append(self._open.strip())
        self._open, self._before, self.complete = "", "", words


@case(
    "8 speakers go on after SIGKILL and a drain: nothing agreed changes, no word is lost, sentences as without it",
    figures=("interruptions by SIGKILL", "interruptions by SIGTERM", "sentences, SIGKILL", "sentences, SIGTERM"),
)
async def test_live_restart(context: CaseContext, checks: Checks) -> None:
    """A speaker goes on with the words of its open sentence after SIGKILL; a drain ends the sentences of all words."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        await _interrupted(context, checks, number)


async def _interrupted(context: CaseContext, checks: Checks, number: signal.Signals) -> None:
    name, lines = number.name, context.choose(40, 6)
    spoken = [" ".join(context.texts[begin * lines : (begin + 1) * lines]) for begin in range(8)]
    speakers = [Resuming(speech.words) for speech in speeches([(text, "") for text in spoken], LANGUAGES.source)]
    words = sum(len(speaker.words) for speaker in speakers)
    undisturbed = [Resuming(speaker.words) for speaker in speakers]
    async with (
        context.server(drain_seconds=DRAIN, name=name.lower()) as server,
        connected(server.address) as connection,
    ):
        serving = asyncio.Event()
        serving.set()
        speaking = [asyncio.create_task(speaker.speak(connection, serving.wait)) for speaker in speakers]
        await context.wait_until("a third is spoken", lambda: _answers(speakers) >= words / 3, seconds=60.0)
        serving.clear()
        server.signal(number)
        await server.exited(DRAIN + 1.0)
        checks.equal(f"exit code, {name}", server.exit_code, -number if number == signal.SIGKILL else 0)
        server.start()
        await server.ready()
        serving.set()
        await asyncio.gather(*speaking)
        for speaker in undisturbed:
            await speaker.speak(connection, serving.wait)
        checks.clean(f"no unhandled error, {name}", server.tracebacks())
    checks.equal(f"interruptions by {name}", sum(each.interruptions for each in speakers), len(speakers))
    checks.equal(f"words that were translated, {name}", sum(each.complete for each in speakers), words)
    kept = [pair for each in speakers for pair in each.broken_off]
    changed = [f"{before!r} became {after!r}" for before, after in kept if not after.startswith(before)]
    checks.clean(f"agreed text that a restart changed, {name}", changed)
    cut = 0 if number == signal.SIGKILL else 1  # a drain ends the sentence of the last word
    different = [
        f"{one.sentences!r} and {other.sentences!r}"
        for one, other in zip(undisturbed, speakers, strict=True)
        if _alike(one.sentences, other.sentences) < len(one.sentences) - cut
    ]
    checks.measured(f"sentences, {name}", sum(len(each.sentences) for each in undisturbed))
    checks.clean(f"sentences as without an interruption, {name}", different)


def _answers(speakers: Sequence[Resuming]) -> int:
    return sum(each.answers for each in speakers)


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many sentences are the same at the begin and at the end."""
    most = min(len(first), len(second))
    begin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    rest = zip(reversed(first), reversed(second), strict=False)
    return min(begin + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest)), most)
