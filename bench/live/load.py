"""Many speakers in real time: the load generator, a process of its own, and the figures of the answers.

`python -m lingon.bench.live.load` reads jobs and writes figures as JSON lines. A word is sent when it is due, whatever
the server does, and its latency counts from that time (coordinated omission). The first update that translates the word
or a later one answers it, because words that wait are translated together.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import grpc

from lingon.bench.live.speaker import END, Languages, Policy, Server, send, words_message
from lingon.bench.live.word_times import Speech, joined
from lingon.bench.results_file import percentile
from lingon.bench.worker_process import answer_messages, cpu_seconds
from lingon.serving.translation.options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb

CONNECTIONS = 4  # of all speakers
HEAD_START = 1.0  # seconds in which the speakers start, so that their words do not come at the same times
LIVE, AGAIN_GREEDY, AGAIN = "live", "again, greedy", "again"
MODES = (LIVE, AGAIN_GREEDY, AGAIN)
"""How words are translated: by TranslateLive; or without it, by a Translate of the whole text so far with each word,
greedily with nothing around it, or with the options that a server has by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveLoad:
    """A load of speakers.

    pid: the process of the server, whose CPU time is read
    mode: one of MODES
    seconds: measured, after warm_up seconds of the same load
    """

    address: str
    pid: int
    speakers: int
    seconds: float
    languages: Languages
    policy: Policy
    mode: str = LIVE
    warm_up: float = 3.0
    seed: int = 1
    patience: float = 10.0  # seconds that an answer has after the last word


@dataclass(slots=True)
class Heard:
    """What came back of the words that were due in the measured seconds. Times are milliseconds.

    answered: from the time a word was due to its translation
    agreed: from the time a word was due to an update whose agreed text covers it
    late: from the time a word was due to the time it was sent
    """

    words: int = 0
    answered: list[float] = field(default_factory=list)
    agreed: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    updates: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class Due(NamedTuple):
    """A word of an endless speech: when it is due, in seconds, itself, and the text so far that it belongs to."""

    seconds: float
    word: pb.LiveWord
    so_far: list[str]


def endless(speeches: Sequence[Speech], first: int) -> Iterator[Due]:
    """Yield the words of all speeches one after the other without pauses, from a first one on, again and again."""
    before, number = 0, first
    while True:
        speech = speeches[number % len(speeches)]
        so_far: list[str] = []
        for word in speech.words:
            so_far = [*so_far, word.text]
            begin, end = before + word.begin_ms, before + word.end_ms
            yield Due(end / 1000, pb.LiveWord(text=word.text, begin_ms=begin, end_ms=end), so_far)
        before, number = before + speech.milliseconds, number + 1


class Speaker:
    """One speaker of a load."""

    def __init__(self, load: LiveLoad, server: Server, words: Iterator[Due], start: float, heard: Heard) -> None:
        """start: seconds of time.perf_counter at which it begins."""
        self._load, self._server, self._words, self._start, self._heard = load, server, words, start, heard
        self._due: list[float] = []
        self._answered = self._agreed = 0  # words

    async def speak(self, begin: float, end: float) -> None:
        """Speak until `end`, and count the words from `begin` on. Errors are counted, and end the speaker."""
        try:
            await (self._live(begin, end) if self._load.mode == LIVE else self._retranslate(begin, end))
        except grpc.aio.AioRpcError as error:
            self._heard.errors[error.code().name] += 1
        except TimeoutError:
            self._heard.errors["no answer"] += 1

    async def _due_words(self, begin: float, end: float) -> Any:
        """Yield words when they are due, with the time at which they were, up to `end`."""
        for word in self._words:
            due = self._start + word.seconds
            if due >= end:
                return
            await asyncio.sleep(due - time.perf_counter())
            if due >= begin:
                self._heard.words += 1
                self._heard.late.append(1000 * (time.perf_counter() - due))
            yield due, word

    async def _live(self, begin: float, end: float) -> None:
        call = self._server.stub.TranslateLive()
        reading = asyncio.create_task(self._read(call, begin))
        try:
            await send(call, self._load.policy.start(self._load.languages))
            async for due, word in self._due_words(begin, end):
                self._due.append(due)
                await send(call, words_message(len(self._due) - 1, [word.word]))
            await send(call, END)
            await asyncio.wait_for(reading, self._load.patience)
        finally:
            reading.cancel()
            call.cancel()

    async def _read(self, call: Any, begin: float) -> None:
        async for answer in call:
            if answer.HasField("update"):
                now, update = time.perf_counter(), answer.update
                self._heard.updates += now >= begin
                self._answered = self._count(self._heard.answered, self._answered, update.words, now, begin)
                self._agreed = self._count(self._heard.agreed, self._agreed, update.agreed_words, now, begin)

    def _count(self, into: list[float], before: int, words: int, now: float, begin: float) -> int:
        """Add the latencies of the words that an update is the first to cover, and return how many are covered now."""
        into += [1000 * (now - due) for due in self._due[before:words] if due >= begin]
        return max(before, words)

    async def _retranslate(self, begin: float, end: float) -> None:
        async with asyncio.TaskGroup() as calls:
            async for due, word in self._due_words(begin, end):
                calls.create_task(self._translate(joined(word.so_far, self._load.languages.source), due, begin))

    async def _translate(self, text: str, due: float, begin: float) -> None:
        request = pb.TranslateRequest(
            texts=[text],
            source_language_code=self._load.languages.source,
            target_language_code=self._load.languages.target,
        )
        if self._load.mode == AGAIN_GREEDY:
            request.options.beam_size = 1
            request.text.CopyFrom(WHOLE)
        try:
            await self._server.stub.Translate(request, timeout=self._load.patience)
        except grpc.aio.AioRpcError as error:
            self._heard.errors[error.code().name] += 1
            return
        if due >= begin:
            self._heard.updates += 1
            self._heard.answered.append(1000 * (time.perf_counter() - due))


async def run(load: LiveLoad, speeches: Sequence[Speech]) -> dict[str, Any]:
    """Run a load, and return its figures: see `figures`."""
    servers = [Server(load.address) for _ in range(min(CONNECTIONS, load.speakers))]
    draw, heard = random.Random(load.seed), Heard()
    start = time.perf_counter() + 0.1
    begin = start + HEAD_START + load.warm_up
    end = begin + load.seconds
    speakers = [
        Speaker(
            load,
            servers[number % len(servers)],
            endless(speeches, draw.randrange(len(speeches))),
            start + HEAD_START * draw.random(),
            heard,
        )
        for number in range(load.speakers)
    ]
    gc.collect()
    gc.disable()  # A pause of garbage collection here would count as latency of the server.
    try:
        used = asyncio.create_task(_used(load.pid, begin, end))
        await asyncio.gather(*(speaker.speak(begin, end) for speaker in speakers))
        server_cpu, own_cpu = await used
    finally:
        gc.enable()
        for server in servers:
            await server.close()
    return figures(load, heard, server_cpu, own_cpu)


async def _used(pid: int, begin: float, end: float) -> tuple[float, float]:
    """Return the CPU seconds of the server and of this process between two times of time.perf_counter."""
    await asyncio.sleep(begin - time.perf_counter())
    server, own = cpu_seconds(pid), time.process_time()
    await asyncio.sleep(end - time.perf_counter())
    return cpu_seconds(pid) - server, time.process_time() - own


def figures(load: LiveLoad, heard: Heard, server_cpu: float, own_cpu: float) -> dict[str, Any]:
    """Return the columns of a load. A word without an answer has an infinite latency, which is None in the columns."""
    unanswered = heard.words - len(heard.answered)
    answered = [*heard.answered, *[float("inf")] * unanswered]
    shares = {
        "p50_ms": percentile(answered, 50),
        "p95_ms": percentile(answered, 95),
        "p99_ms": percentile(answered, 99),
    }
    agreed = {"agreed_p50_ms": percentile(heard.agreed, 50), "agreed_p99_ms": percentile(heard.agreed, 99)}
    lateness = {"late_p99_ms": percentile(heard.late, 99)}
    return {
        "mode": load.mode,
        "policy": load.policy.label if load.mode == LIVE else "",
        "speakers": load.speakers,
        "words": heard.words,
        "words_per_s": round(heard.words / load.seconds, 1),
        "unanswered": unanswered,
        **{name: _finite(value) for name, value in {**shares, **(agreed if heard.agreed else {}), **lateness}.items()},
        "updates": heard.updates,
        "server_cpu_ms_per_word": round(1000 * server_cpu / max(heard.words, 1), 3),
        "server_cores": round(server_cpu / load.seconds, 3),
        "client_cores": round(own_cpu / load.seconds, 3),
        "errors": dict(heard.errors),
    }


def _finite(value: float) -> float | None:
    return round(value, 1) if value < float("inf") else None


def to_json(load: LiveLoad, speeches: Sequence[Speech]) -> dict[str, Any]:
    """Return a job as a JSON object for the load generator's process."""
    texts = [
        {"reference": speech.reference, "words": [(word.text, word.begin_ms, word.end_ms) for word in speech.words]}
        for speech in speeches
    ]
    return {"load": asdict(load), "speeches": texts}


def answer(load: dict[str, Any], speeches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Run a job of `to_json`."""
    given = {**load, "languages": Languages(**load["languages"]), "policy": Policy(**load["policy"])}
    spoken = [
        Speech(
            tuple(pb.LiveWord(text=text, begin_ms=begin, end_ms=end) for text, begin, end in each["words"]),
            each["reference"],
        )
        for each in speeches
    ]
    return asyncio.run(run(LiveLoad(**given), spoken))


if __name__ == "__main__":
    answer_messages(answer)
