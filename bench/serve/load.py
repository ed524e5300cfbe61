"""The load on a server: arrival times and jobs, the load generator, and the figures of its answers.

`python -m lingon.bench.serve.load` reads jobs and writes answers as JSON lines. The first line contains the texts.
Latencies count from the time at which a request was due. A generator that waits for answers before it sends, or skips
requests when it is late, would omit the requests that a slow server delays most (coordinated omission).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

import grpc

from lingon.bench.results_file import percentile
from lingon.client.connection import proxy_options
from lingon.errors import SettingsError
from lingon.serving.translation.options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

OK = "OK"
MAX_LAG = 20.0  # milliseconds: with more lag, the load generator was measured instead of the server


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one request.

    lag: milliseconds from the time it was due to the time it was sent
    latency: milliseconds from the time it was due to its answer
    code: the name of its status
    """

    lag: float
    latency: float
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The service level objective: this percentile of latencies is at most this number of milliseconds."""

    percentile: float = 99.0
    milliseconds: float = 500.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPoint:
    """One system at one offered load, with rates in sentences a second and times in milliseconds.

    A failed request has an infinite latency.
    """

    offered: float
    requests: int
    achieved: float  # answers without an error
    goodput: float  # answers without an error within the time of the objective
    p50: float
    p95: float
    p99: float
    within: bool  # whether the objective is met
    lag_p99: float
    lag_max: float
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def void(self) -> bool:
        """Whether the load generator was too slow for a valid measurement."""
        return not self.lag_p99 <= MAX_LAG

    def row(self) -> dict[str, Any]:
        """Return the columns of the JSON file. Infinity becomes None."""
        rates = {"offered_per_s": self.offered, "achieved_per_s": self.achieved, "goodput_per_s": self.goodput}
        times = {"p50_ms": self.p50, "p95_ms": self.p95, "p99_ms": self.p99}
        lags = {"lag_p99_ms": self.lag_p99, "lag_max_ms": self.lag_max}
        rounded = {name: _finite(value) for name, value in {**rates, **times, **lags}.items()}
        flags = {"within_objective": self.within, "void": self.void}
        return {"requests": self.requests, **rounded, "errors": self.errors, **flags}


def summarise(answers: Sequence[Answer], offered: float, seconds: float, objective: Objective) -> LoadPoint:
    """Return the figures of requests that were due within `seconds`."""
    latencies = [answer.latency if answer.code == OK else math.inf for answer in answers]
    lags = [answer.lag for answer in answers]
    good = sum(latency <= objective.milliseconds for latency in latencies)
    return LoadPoint(
        offered=offered,
        requests=len(answers),
        achieved=sum(answer.code == OK for answer in answers) / seconds,
        goodput=good / seconds,
        p50=percentile(latencies, 50),
        p95=percentile(latencies, 95),
        p99=percentile(latencies, 99),
        within=percentile(latencies, objective.percentile) <= objective.milliseconds,
        lag_p99=percentile(lags, 99),
        lag_max=max(lags, default=math.nan),
        errors=dict(Counter(answer.code for answer in answers if answer.code != OK)),
    )


def best(points: Iterable[LoadPoint]) -> LoadPoint | None:
    """Return the highest valid load point that meets the objective, without interpolation; None if there is none."""
    valid = (point for point in points if point.within and not point.void)
    return max(valid, key=attrgetter("offered"), default=None)


def saturated(points: Sequence[LoadPoint]) -> bool:
    """Return whether the last two valid points both miss the objective. points: lowest load first."""
    valid = [point for point in points if not point.void]
    return len(valid) >= 2 and not any(point.within for point in valid[-2:])


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


LIGHT = (0.1, 0.25)
"""Loads well below saturation, as shares of the weakest system's capacity."""

FINE_FROM, FINE_TO = 0.5, 4.0
"""Loads have fine steps from this share of the weakest capacity to this share of the strongest. A system is measured
until it is saturated. The last load is only reached if a capacity was measured far too high or too low."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    due: seconds after the start
    text: its index in the texts
    """

    due: float
    text: int


def arrivals(rate: float, seconds: float, texts: int, seed: int) -> list[Arrival]:
    """Return Poisson arrivals: `rate` a second on average, each of one of `texts` sentences, determined by the seed."""
    if rate <= 0 or texts < 1:
        raise SettingsError(f"an offered load needs a rate above 0 and a sentence, got {rate} and {texts} sentences")
    draw = random.Random(seed)
    found: list[Arrival] = []
    due = draw.expovariate(rate)
    while due < seconds:
        found.append(Arrival(due, draw.randrange(texts)))
        due += draw.expovariate(rate)
    return found


def offered_loads(capacities: Mapping[str, float], step: float) -> list[float]:
    """Return the loads to offer, lowest first, in sentences a second: light loads, then each `step` times the last.

    capacities: of every system, sentences a second with many clients that wait for their answers
    """
    if step <= 1:
        raise SettingsError(f"step must be above 1, got {step}")
    weakest, strongest = min(capacities.values()), max(capacities.values())
    loads = [share * weakest for share in LIGHT]
    load = FINE_FROM * weakest
    while load < FINE_TO * strongest:
        loads.append(load)
        load *= step
    return loads


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The server and the options of the requests.

    address: HOST:PORT
    timeout: seconds, the deadline of a request
    """

    address: str
    beam_size: int = 1
    timeout: float = 5.0

    def request(self, text: str) -> pb.TranslateRequest:
        """Return a request for one sentence.

        It has no length penalty, which would change the work and not the speed.
        """
        options = pb.DecodingOptions(beam_size=self.beam_size, num_hypotheses=1, length_penalty=0.0)
        return pb.TranslateRequest(texts=[text], options=options, text=WHOLE)  # the same work for every server


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoad:
    """Open-loop load: requests at the times of `arrivals`, independent of the answers.

    offered: requests a second
    seconds: measured seconds
    warm_up: seconds before the measured ones
    """

    target: Target
    offered: float
    seconds: float
    warm_up: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedLoad:
    """Closed-loop load: each client sends its next request when it has the answer to the last one.

    requests: the maximum of all clients together. Texts are sent in order, repeatedly
    seconds: after which no request is sent
    """

    target: Target
    clients: int
    requests: int
    seconds: float


LoadJob = OpenLoad | ClosedLoad


def to_json(job: LoadJob) -> dict[str, Any]:
    """Return the job as a JSON object for the load generator's process."""
    return {"kind": type(job).__name__, **asdict(job)}


def from_json(message: dict[str, Any]) -> LoadJob:
    """Return the job of a JSON object."""
    kinds: dict[str, type[LoadJob]] = {kind.__name__: kind for kind in (OpenLoad, ClosedLoad)}
    values = {name: value for name, value in message.items() if name not in ("kind", "target")}
    return kinds[message["kind"]](target=Target(**message["target"]), **values)


HEAD_START = 0.05  # seconds before the first arrival


class LoadGenerator:
    """A client that sends requests to servers and measures latencies. It belongs to one event loop."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}

    async def run(self, job: LoadJob) -> list[Answer]:
        """Return the answers to the requests of a job, in the order in which the requests were due."""
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
