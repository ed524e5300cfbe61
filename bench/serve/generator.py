"""The load generator, a process of its own: `python -m lingon.bench.serve.generator` reads jobs and writes answers,
as JSON lines. The first line holds the texts.

Latencies count from the moment a request was due. A generator that waits for answers before it sends, or forgets what
it was late with, leaves out just the requests that a slow server would have kept waiting (coordinated omission).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import time
from typing import Any

import grpc

from lingon.bench.serve.latency import OK, Answer
from lingon.bench.serve.load import Closed, Job, Load, Target, arrivals, from_json
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

HEAD_START = 0.05  # seconds before the first arrival


class Generator:
    """Sends sentences to servers and keeps time. Belongs to one event loop."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}

    async def run(self, job: Job) -> list[Answer]:
        """The answers to a job's requests, in the order in which these were due."""
        gc.collect()
        gc.disable()  # a collection would be a pause of our own that is taken for one of the server's
        try:
            return await (self._load(job) if isinstance(job, Load) else self._closed(job))
        finally:
            gc.enable()

    async def close(self) -> None:
        """End the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _load(self, job: Load) -> list[Answer]:
        planned = arrivals(job.offered, job.warm_up + job.seconds, len(self._texts), job.seed)
        start = time.perf_counter() + HEAD_START
        tasks = []
        for arrival in planned:
            due = start + arrival.due
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(self._send(job.target, arrival.text, due)))
        answers = await asyncio.gather(*tasks)
        return [answer for arrival, answer in zip(planned, answers, strict=True) if arrival.due >= job.warm_up]

    async def _closed(self, job: Closed) -> list[Answer]:
        numbers = iter(range(job.requests))
        end = time.perf_counter() + job.seconds
        answers: dict[int, Answer] = {}

        async def client() -> None:
            for number in itertools.takewhile(lambda _: time.perf_counter() < end, numbers):
                answers[number] = await self._send(job.target, number % len(self._texts), time.perf_counter())

        await asyncio.gather(*(client() for _ in range(job.clients)))
        return [answers[number] for number in sorted(answers)]

    async def _send(self, target: Target, text: int, due: float) -> Answer:
        request = target.request(self._texts[text])
        sent = time.perf_counter()
        try:
            reply = await self._stub(target.address).Translate(request, timeout=target.timeout)
            status = reply.results[0].status.code
            code = OK if status == 0 else f"TEXT_{status}"
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        return Answer(1000 * (sent - due), 1000 * (time.perf_counter() - due), code)

    def _stub(self, address: str) -> Any:
        if address not in self._stubs:
            self._channels[address] = grpc.aio.insecure_channel(address)
            self._stubs[address] = pb_grpc.TranslationServiceStub(self._channels[address])
        return self._stubs[address]


async def main() -> None:
    """Read jobs until there are no more."""
    generator = Generator(json.loads(sys.stdin.readline())["texts"])
    print(json.dumps({"texts": "taken"}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        start = time.perf_counter()
        answers = await generator.run(from_json(json.loads(line)))
        seconds = time.perf_counter() - start
        found = [(answer.lag, answer.latency, answer.code) for answer in answers]
        print(json.dumps({"answers": found, "seconds": seconds}), flush=True)
    await generator.close()


if __name__ == "__main__":
    asyncio.run(main())
