"""Decoding of many sentences by an engine, from one thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence

from lingon.errors import ParityError, QueueFull, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.runner import Runner

Outcome = tuple[Hypothesis, ...] | RequestError


def decode_all(engine: Engine, sources: Iterable[tuple[int, ...]], options: list[Options]) -> list[Outcome]:
    """Decode every source (token ids, the last one EOS) and return the outcomes in order; options has one for each.

    Jobs are submitted until the queue is full, then one more after each outcome.
    """
    done: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()
    outcomes: dict[int, Outcome] = {}
    for index, (source, each) in enumerate(zip(sources, options, strict=True)):
        job = DecodeJob(source_ids=source, options=each, on_done=_put_outcome(done, index))
        while not _try_submit(engine, job):
            finished, outcome = done.get()
            outcomes[finished] = outcome
    while len(outcomes) < len(options):
        finished, outcome = done.get()
        outcomes[finished] = outcome
    return [outcomes[index] for index in range(len(options))]


def _put_outcome(done: queue.SimpleQueue[tuple[int, Outcome]], index: int) -> Callable[[Outcome], None]:
    return lambda outcome: done.put((index, outcome))


def _try_submit(engine: Engine, job: DecodeJob) -> bool:
    try:
        engine.submit([job])
    except QueueFull:
        return False
    return True


def engine_search(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    *,
    shortlist: bool = False,
) -> list[tuple[Hypothesis, ...]]:
    """Return the hypotheses that the engine finds for each source; raise ParityError if it fails on one."""
    engine = Engine(runner, EngineLimits(max_rows=64 * beam_size))
    engine.start()
    try:
        options = [
            Options(
                beam_size=beam_size,
                length_penalty=length_penalty,
                max_output_tokens=runner.limits.max_output(len(source)),
                shortlist=shortlist,
            )
            for source in sources
        ]
        outcomes = decode_all(engine, sources, options)
    finally:
        engine.stop(timeout=0)
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise ParityError(f"the engine failed on a sentence: {outcome}")
    return [outcome for outcome in outcomes if not isinstance(outcome, RequestError)]
