"""The model that ships, real sentences, and what each of them is translated to alone and in company."""

from __future__ import annotations

import functools
import itertools
import queue
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lingon.bundle import Bundle, open_bundle
from lingon.errors import RequestError
from lingon.serving.decoding.job import DecodeJob, Options, Sampling, ScoreJob
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import Runner
from lingon.text import EOS, Tokenizer, normalise
from tests.support.repository import ROOT
from tests.support.scale import scaled

MODEL = ROOT / "models" / "en-de"
LINES = (ROOT / "tests" / "data" / "tatoeba.en").read_text(encoding="utf-8").splitlines()
PRECISIONS = ["fp32", "int8"]
PATIENCE = 60  # seconds for one more answer
WAYS = {
    "greedy": {"beam_size": 1},
    "beam 4": {"beam_size": 4},
    "greedy, shortlist": {"beam_size": 1, "shortlist": True},
    "beam 4, shortlist": {"beam_size": 4, "shortlist": True},
}
"""How a sentence is asked for."""

CLOSE = 1e-5
"""A probability among a shortlist is a sum over the union of a batch, whose order depends on who is in the batch."""

Ask = tuple[tuple[int, ...], Options]


@functools.cache
def bundle() -> Bundle:
    return open_bundle(MODEL)


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer(*bundle().tokenizer_files())


@functools.cache
def sources() -> list[tuple[int, ...]]:
    return [tuple(tokenizer().encode_source(normalise(line))) for line in LINES]


@functools.cache
def long_sources() -> list[tuple[int, ...]]:
    """Sentences put together until the model reads no more of them."""
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
    """All hypotheses that there are, to be looked at to the last bit."""
    bound, hypotheses = bundle().manifest.limits.max_output(len(source)), wanted.get("beam_size", 1)
    return Options(**{"num_hypotheses": hypotheses, "length_penalty": 1.0, "max_output_tokens": bound, **wanted})


def asks(seed: int = 0) -> list[tuple[int, str]]:
    """Every sentence, in one of the ways; four seeds have all ways."""
    ways = list(WAYS)
    return [(place, ways[(place + seed) % len(ways)]) for place in range(len(sources()))]


def ask(place: int, way: str) -> Ask:
    return sources()[place], options(sources()[place], **WAYS[way])


@functools.cache
def alone(precision: str, seed: int = 0) -> list[Any]:
    """The answer to each of `asks` where nobody else is there."""
    with at_work(runner(precision)) as engine:
        found = []
        for place, way in asks(seed % len(WAYS)):
            done: queue.SimpleQueue[Any] = queue.SimpleQueue()
            engine.submit([_job(ask(place, way), done.put)])
            found.append(done.get(timeout=PATIENCE))
    return found


@contextmanager
def at_work(runner: Runner, workers: int = 1, **limits: int) -> Iterator[Engine]:
    engine = Engine(runner, EngineLimits(**limits), workers=workers)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(timeout=0)


@dataclass(frozen=True, slots=True)
class ActiveThreads:
    """What surrounds sentences: drawn from a seed, so that what fails can be had again."""

    seed: int
    workers: int
    threads: int
    limits: dict[str, int]

    @classmethod
    def drawn(cls, seed: int) -> ActiveThreads:
        draw = random.Random(seed)
        limits = {"max_rows": draw.choice([8, 24, 64]), "max_batch_tokens": draw.choice([200, 1024])}
        return cls(seed, 1 + seed % 2, 1 + seed // 2 % 2, {**limits, "spread": draw.choice([1, 16])})

    def answers(self, engine: Engine, wanted: Sequence[Ask]) -> list[Any]:
        """The answer to each, asked in disorder, in bursts, among strangers, some of whom leave early."""
        draw, done = random.Random(self.seed), queue.SimpleQueue[tuple[int, Any]]()
        order = draw.sample(range(len(wanted)), len(wanted))
        found: dict[int, Any] = {}
        sent = 0
        while len(found) < len(wanted):
            burst = [order[place] for place in range(sent, min(sent + draw.randint(1, 60), len(order)))]
            sent += len(burst)
            jobs = [_job(wanted[index], functools.partial(_note, done, index)) for index in burst]
            guests = [_stranger(draw) for _ in range(len(burst) // 16 + 1)] if burst else []
            everybody: list[Any] = [*jobs, *guests]
            draw.shuffle(everybody)
            engine.submit(everybody)
            leaving = draw.sample(guests, len(guests) // 2)
            rest = draw.randint(0, 90) if sent < len(order) else 0  # who are still there as the next burst comes
            while sent - len(found) > rest:
                index, answer = done.get(timeout=PATIENCE)
                found[index] = answer
                engine.cancel(leaving)
                leaving = []
        return [found[index] for index in range(len(wanted))]


def in_company(seed: int, precision: str, faults: Failpoints | None = None) -> list[Any]:
    """The answer to each of `asks` in the company of this seed."""
    company = ActiveThreads.drawn(seed)
    model: Runner = runner(precision, company.threads)
    with at_work(FaultyRunner(model, faults) if faults else model, company.workers, **company.limits) as engine:
        return company.answers(engine, [ask(place, way) for place, way in asks(seed)])


def differences(seed: int, precision: str, found: Sequence[Any]) -> list[str]:
    """The first few answers that are not as alone: the same tokens with the same bits of scores.

    Among a shortlist, scores may differ by CLOSE.
    """
    named = zip(asks(seed), alone(precision, seed % len(WAYS)), found, strict=True)
    wrong = (
        f"{place}, {way}: {mine} not {right}" for (place, way), right, mine in named if not alike(way, mine, right)
    )
    return list(itertools.islice(wrong, 3))


def alike(way: str, mine: Any, right: Any) -> bool:
    """Whether two answers to one ask are the same."""
    if "shortlist" not in way or isinstance(mine, RequestError):
        return bool(mine == right)
    near = all(
        abs(one - other) <= CLOSE
        for some, others in zip(mine, right, strict=True)
        for one, other in zip((some.score, *some.log_probs), (others.score, *others.log_probs), strict=True)
    )
    return near and [each.tokens for each in mine] == [each.tokens for each in right]


def seeds() -> range:
    return range(scaled(5, 50))


def _note(done: queue.SimpleQueue[tuple[int, Any]], index: int, answer: Any) -> None:
    done.put((index, answer))


def _job(ask: Ask, on_done: Any) -> DecodeJob:
    return DecodeJob(source_ids=ask[0], options=ask[1], on_done=on_done)


def _stranger(draw: random.Random) -> DecodeJob | ScoreJob:
    """Somebody whose answer nobody looks at: long, of another width, drawn, with a prefix, or to be scored."""
    source = draw.choice([*sources(), *long_sources() * 2])
    if draw.random() < 0.2:
        return ScoreJob(source_ids=source, target_ids=draw.choice(sources())[:-1], on_done=_ignore)
    wanted: dict[str, Any] = draw.choice(
        [{"sampling": Sampling(seed=draw.randrange(9))}, *({"beam_size": size} for size in (1, 2, 3, 4, 8))]
    )
    if "sampling" not in wanted:
        wanted["shortlist"] = draw.random() < 0.5
    prefix = draw.choice(sources())[:3] if draw.random() < 0.3 else ()
    wanted |= {"max_output_tokens": draw.randint(1, 40)}
    return DecodeJob(source_ids=source, options=options(source, **wanted), on_done=_ignore, prefix=prefix)


def _ignore(answer: Any) -> None:
    pass
