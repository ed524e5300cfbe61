"""The load generator: `python -m lingon.bench.serve.load.generator` reads jobs and writes answers as JSON lines.

The first line contains the texts. Latencies count from the time at which a request was due. A generator that waits for
answers before it sends, or skips requests when it is late, would omit the requests that a slow server delays most
(coordinated omission).
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

from lingon.bench.serve.load.jobs import ClosedLoad, LoadJob, OpenLoad, Target, arrivals, from_json
from lingon.bench.serve.load.latency import OK, Answer
from lingon.client.proxies import proxy_options
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

HEAD_START = 0.05  # seconds before the first arrival


class LoadGenerator:
    """Sends requests to servers and measures latencies. Belongs to one event loop."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}

    async def run(self, job: LoadJob) -> list[Answer]:
        """The answers to the requests of a job, in the order in which the requests were due."""
        gc.collect()
        gc.disable()  # A pause of garbage collection here would count as latency of the server.
        try:
            return await (self._open(job) if isinstance(job, OpenLoad) else self._closed(job))
        finally:
            gc.enable()

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _open(self, job: OpenLoad) -> list[Answer]:
        planned = arrivals(job.offered, job.warm_up + job.seconds, len(self._texts), job.seed)
        start = time.perf_counter() + HEAD_START
        tasks = []
        for arrival in planned:
            due = start + arrival.due
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(self._send(job.target, arrival.text, due)))
        answers = await asyncio.gather(*tasks)
        return [answer for arrival, answer in zip(planned, answers, strict=True) if arrival.due >= job.warm_up]

    async def _closed(self, job: ClosedLoad) -> list[Answer]:
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
            self._channels[address] = grpc.aio.insecure_channel(address, proxy_options(address))
            self._stubs[address] = pb_grpc.TranslationServiceStub(self._channels[address])
        return self._stubs[address]


async def main() -> None:
    """Run jobs until standard input ends."""
    generator = LoadGenerator(json.loads(sys.stdin.readline())["texts"])
    print(json.dumps({"texts": "loaded"}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        start = time.perf_counter()
        answers = await generator.run(from_json(json.loads(line)))
        seconds = time.perf_counter() - start
        found = [(answer.lag, answer.latency, answer.code) for answer in answers]
        print(json.dumps({"answers": found, "seconds": seconds}), flush=True)
    await generator.close()


if __name__ == "__main__":
    asyncio.run(main())
