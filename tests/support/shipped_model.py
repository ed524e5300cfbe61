"""The shipped model and real sentences, each translated alone and in a batch, and a server with this model."""

from __future__ import annotations

import asyncio
import functools
import itertools
import queue
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import RequestError
from lingon.serving.decoding.job import DecodeJob, Options, Sampling, ScoreJob
from lingon.serving.decoding.rules import Rules, Vocabulary
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import Runner
from lingon.serving.server import Server
from lingon.serving.settings import Settings
from lingon.text import EOS, Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.repository import ROOT, scaled

MODEL = ROOT / "models" / "en-de"
LINES = (ROOT / "tests" / "data" / "tatoeba.en").read_text(encoding="utf-8").splitlines()
PRECISIONS = ["fp32", "int8"]
PATIENCE = 60  # seconds that a test waits for an answer
MODES = {
    "greedy": {"beam_size": 1},
    "beam 4": {"beam_size": 4},
    "greedy, shortlist": {"beam_size": 1, "shortlist": True},
    "beam 4, shortlist": {"beam_size": 4, "shortlist": True},
}
"""The ways to decode a sentence."""

SHIFTS = scaled(1, len(MODES))
"""Ways to give every sentence a mode: with one, all seeds share the translations alone. With all, it gets each mode."""

TOLERANCE = 1e-5
"""With a shortlist, a probability is a sum over the union of a batch, whose order depends on the other sentences."""

SearchRequest = tuple[tuple[int, ...], Options]


@functools.cache
def bundle() -> Bundle:
    return open_bundle(MODEL)


@functools.cache
def tokenizer() -> Tokenizer:
    return bundle().tokenizer()


@functools.cache
def sources() -> list[tuple[int, ...]]:
    return [tuple(tokenizer().encode_source(normalise(line))) for line in LINES]


@functools.cache
def long_sources() -> list[tuple[int, ...]]:
    """Return sentences joined up to the source limit of the model."""
    most, found = bundle().manifest.limits.max_source_tokens, []
    held: tuple[int, ...] = ()
    for source in sources():
        if len(held) + len(source) > most:
            found.append((*held, EOS))
            held = ()
        held += source[:-1]
    return found


@functools.cache
def runner(precision: str, threads: int = 1) -> OnnxRunner:
    return load_runner(bundle(), precision, threads)


def options(source: Sequence[int], **wanted: Any) -> Options:
    """Return options that give all hypotheses of the beam, so that every bit of them can be compared."""
    bound, hypotheses = bundle().manifest.limits.max_output(len(source)), wanted.get("beam_size", 1)
    return Options(**{"num_hypotheses": hypotheses, "length_penalty": 1.0, "max_output_tokens": bound, **wanted})


def sentence_modes(seed: int = 0) -> list[tuple[int, str]]:
    """Return the index of every sentence with one of the modes: each mode has a quarter of the sentences."""
    modes, shift = list(MODES), seed % SHIFTS
    return [(position, modes[(position + shift) % len(modes)]) for position in range(len(sources()))]


def request_of(position: int, mode: str) -> SearchRequest:
    return sources()[position], options(sources()[position], **MODES[mode])


@functools.cache
def translated_alone(precision: str, seed: int) -> list[Any]:
    """Return the result of each of `sentence_modes`, alone in its batch."""
    with started_engine(runner(precision)) as engine:
        return [answer(engine, request_of(position, mode)) for position, mode in sentence_modes(seed)]


def answer(engine: Engine, request: SearchRequest) -> Any:
    """Return the result of one request."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.submit([_job(request, done.put)])
    return done.get(timeout=PATIENCE)


@contextmanager
def started_engine(runner: Runner, workers: int = 1, **limits: int) -> Iterator[Engine]:
    engine = Engine(runner, EngineLimits(**limits), workers=workers)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(timeout=0)


@functools.cache
def vocabulary() -> Vocabulary:
    return Vocabulary(tokenizer())


def drawn_rules(draw: random.Random) -> Rules:
    """Return rules of a request, of every kind."""
    words = draw.sample(["Hund", "ich", "Tom", "schön", "日本", "Gebäude", "das ist"], 4)
    return (
        vocabulary()
        .rules(
            forbidden=words[: draw.randint(0, 2)],
            forced=words[3:] if draw.random() < 0.5 else [],
            min_tokens=draw.choice([0, 12]),
            no_repeat_ngram=draw.choice([0, 0, 1, 3]),
            repetition_penalty=draw.choice([1.0, 1.0, 1.4]),
        )
        .of_part(0)
    )


@dataclass(frozen=True, slots=True)
class MixedTraffic:
    """The other requests and the limits around sentences, drawn from a seed so that a failure can be repeated."""

    seed: int
    workers: int
    threads: int
    limits: dict[str, int]

    @classmethod
    def drawn(cls, seed: int) -> MixedTraffic:
        draw = random.Random(seed)
        limits = {"max_rows": draw.choice([8, 24, 64]), "max_batch_tokens": draw.choice([200, 1024])}
        return cls(seed, 1 + seed % 2, 1 + seed // 2 % 2, {**limits, "spread": draw.choice([1, 16])})

    def answers(self, engine: Engine, wanted: Sequence[SearchRequest]) -> list[Any]:
        """Return the result of each request, sent in random order and bursts among other jobs, of which some are
        cancelled.
        """
        draw, done = random.Random(self.seed), queue.SimpleQueue[tuple[int, Any]]()
        order = draw.sample(range(len(wanted)), len(wanted))
        found: dict[int, Any] = {}
        sent = 0
        while len(found) < len(wanted):
            burst = [order[position] for position in range(sent, min(sent + draw.randint(1, 60), len(order)))]
            sent += len(burst)
            jobs = [_job(wanted[index], functools.partial(_note, done, index)) for index in burst]
            others = [_other_job(draw) for _ in range(len(burst) // 16 + 1)] if burst else []
            all_jobs: list[Any] = [*jobs, *others]
            draw.shuffle(all_jobs)
            engine.submit(all_jobs)
            cancelled = draw.sample(others, len(others) // 2)
            remaining = draw.randint(0, 90) if sent < len(order) else 0  # sentences still running at the next burst
            while sent - len(found) > remaining:
                index, answer = done.get(timeout=PATIENCE)
                found[index] = answer
                engine.cancel(cancelled)
                cancelled = []
        return [found[index] for index in range(len(wanted))]


def translated_in_batches(seed: int, precision: str, faults: Failpoints | None = None) -> list[Any]:
    """Return the result of each of `sentence_modes` in the mixed traffic of this seed."""
    traffic = MixedTraffic.drawn(seed)
    model: Runner = runner(precision, traffic.threads)
    with started_engine(FaultyRunner(model, faults) if faults else model, traffic.workers, **traffic.limits) as engine:
        return traffic.answers(engine, [request_of(position, mode) for position, mode in sentence_modes(seed)])


def differences(seed: int, precision: str, found: Sequence[Any]) -> list[str]:
    """Return the first few results that differ from those alone, in their tokens or in a bit of their scores.

    With a shortlist, scores may differ by TOLERANCE.
    """
    named = zip(sentence_modes(seed), translated_alone(precision, seed % SHIFTS), found, strict=True)
    wrong = (
        f"{position}, {mode}: {mine} not {right}"
        for (position, mode), right, mine in named
        if not alike(mode, mine, right)
    )
    return list(itertools.islice(wrong, 3))


def alike(mode: str, mine: Any, right: Any) -> bool:
    """Return whether two results of one request are the same."""
    if "shortlist" not in mode or isinstance(mine, RequestError):
        return bool(mine == right)
    near = all(
        abs(one - other) <= TOLERANCE
        for some, others in zip(mine, right, strict=True)
        for one, other in zip((some.score, *some.log_probs), (others.score, *others.log_probs), strict=True)
    )
    return near and [each.tokens for each in mine] == [each.tokens for each in right]


def seeds() -> range:
    """Return the seeds of mixed traffic. The first four have every number of workers with every number of threads."""
    return range(scaled(4, 50))


def _note(done: queue.SimpleQueue[tuple[int, Any]], index: int, answer: Any) -> None:
    done.put((index, answer))


def _job(request: SearchRequest, on_done: Any) -> DecodeJob:
    return DecodeJob(source_ids=request[0], options=request[1], on_done=on_done)


def _other_job(draw: random.Random) -> DecodeJob | ScoreJob:
    """Return a job whose result is not checked: long, of another beam size, sampled, restricted, with a prefix, or
    scored.
    """
    source = draw.choice([*sources(), *long_sources() * 2])
    if draw.random() < 0.2:
        return ScoreJob(source_ids=source, target_ids=draw.choice(sources())[:-1], on_done=_ignore)
    wanted: dict[str, Any] = draw.choice(
        [{"sampling": Sampling(seed=draw.randrange(9))}, *({"beam_size": size} for size in (1, 2, 3, 4, 8))]
    )
    if "sampling" not in wanted:
        wanted["shortlist"] = draw.random() < 0.5
    if not wanted.get("shortlist") and draw.random() < 0.5:
        wanted["rules"] = drawn_rules(draw)
    prefix = draw.choice(sources())[:3] if draw.random() < 0.3 else ()
    wanted |= {"max_output_tokens": draw.randint(1, 40)}
    return DecodeJob(source_ids=source, options=options(source, **wanted), on_done=_ignore, prefix=prefix)


def _ignore(answer: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RealServer:
    """A ready server and a stub for it."""

    server: Server
    stub: Any

    async def translate(
        self, texts: list[str], text: pb.TextOptions | None = None, **options: Any
    ) -> pb.TranslateResponse:
        asked = pb.DecodingOptions(return_tokens=True, **options)
        request = pb.TranslateRequest(texts=texts, options=asked, text=text)
        reply: pb.TranslateResponse = await self.stub.Translate(request, timeout=60)
        return reply

    def counted(self, name: str, **labels: str) -> float:
        """Return the value of a counter; 0 if nothing was counted yet."""
        return self.server.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[RealServer]:
    """Run a server with the shipped model. settings: of lingon.serving.settings."""
    values = {"models": (MODEL,), "port": 0, "metrics_port": 0, "engines": 1, "threads": 1, **settings}
    announced = asyncio.Event()
    server = Server(Settings.model_validate(values), lambda _: announced.set())
    task = asyncio.create_task(server.run())
    waiting = asyncio.create_task(announced.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub: Any = pb_grpc.TranslationServiceStub(channel)
            yield RealServer(server, stub)
    finally:
        server.stop()
        await task
