"""Decoding and scoring of many sentences by an engine, from one thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from lingon.errors import ParityError, QueueFull, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Job, Options, ScoreJob
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.runner import Runner, Scored
from lingon.text import LanguageTokens

Answer = TypeVar("Answer")
Outcome = tuple[Hypothesis, ...] | RequestError
TokenPair = tuple[tuple[int, ...], tuple[int, ...]]
"""Source ids as the tokenizer frames them, target ids without BOS and EOS."""


def decode_all(
    engine: Engine, sources: Iterable[tuple[int, ...]], options: list[Options], forced: tuple[int, ...] = ()
) -> list[Outcome]:
    """Decode every source (framed token ids) and return the outcomes in order; options has one for each.

    forced: target tokens that every translation begins with, and that are not part of it
    """
    job = partial(DecodeJob, prefix=forced, hidden=len(forced))
    return _run_all(
        engine, [partial(job, source_ids=source, options=each) for source, each in zip(sources, options, strict=True)]
    )


def engine_search(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    *,
    shortlist: bool = False,
    num_hypotheses: int = 1,
    forced: tuple[int, ...] = (),
) -> list[tuple[Hypothesis, ...]]:
    """Return the hypotheses that the engine finds for each source; raise ParityError if it fails on one.

    forced: see `decode_all`
    """
    options = [
        Options(
            beam_size=beam_size,
            num_hypotheses=num_hypotheses,
            length_penalty=length_penalty,
            max_output_tokens=runner.limits.max_output(len(source)),
            shortlist=shortlist,
        )
        for source in sources
    ]
    with _started(runner, 64 * beam_size) as engine:
        return _successful(decode_all(engine, sources, options, forced))


def engine_search_alone(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    forced: tuple[int, ...] = (),
) -> list[tuple[Hypothesis, ...]]:
    """Return what engine_search returns, but decode each source before the next one is submitted."""
    return [engine_search(runner, [source], beam_size, length_penalty, forced=forced)[0] for source in sources]


def engine_scores(runner: Runner, pairs: Sequence[TokenPair], forced: tuple[int, ...] = ()) -> list[Scored]:
    """Return the scores that the engine gives to each pair, without `forced`; raise ParityError if it fails on one."""
    tokens = LanguageTokens(forced=forced)
    with _started(runner, 64) as engine:
        jobs = [partial(ScoreJob, source_ids=source, target_ids=(*forced, *target)) for source, target in pairs]
        return [each.without(tokens) for each in _successful(_run_all(engine, jobs))]


def _run_all(engine: Engine, jobs: Sequence[Callable[..., Job]]) -> list[Any]:
    """Run every job and return the outcomes in order; a job is made with on_done.

    Jobs are submitted until the queue is full, then one more after each outcome.
    """
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    outcomes: dict[int, Any] = {}
    for index, make in enumerate(jobs):
        job = make(on_done=_put_outcome(done, index))
        while not _try_submit(engine, job):
            finished, outcome = done.get()
            outcomes[finished] = outcome
    while len(outcomes) < len(jobs):
        finished, outcome = done.get()
        outcomes[finished] = outcome
    return [outcomes[index] for index in range(len(jobs))]


def _put_outcome(done: queue.SimpleQueue[tuple[int, Any]], index: int) -> Callable[[Any], None]:
    return lambda outcome: done.put((index, outcome))


def _try_submit(engine: Engine, job: Job) -> bool:
    try:
        engine.submit([job])
    except QueueFull:
        return False
    return True


@contextmanager
def _started(runner: Runner, max_rows: int) -> Iterator[Engine]:
    engine = Engine(runner, EngineLimits(max_rows=max_rows))
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(timeout=0)


def _successful(outcomes: Sequence[Answer | RequestError]) -> list[Answer]:
    """Return the outcomes; raise ParityError if one is an error."""
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise ParityError(f"the engine failed on a sentence: {outcome}")
    return [outcome for outcome in outcomes if not isinstance(outcome, RequestError)]
