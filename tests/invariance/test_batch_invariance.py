"""A sentence translates the same alone and in any batch, to the last bit of its scores.

The test uses the shipped model in every precision that runs on the CPU, and 500 real sentences, each greedy and with
beam 4, with and without a shortlist (with one, tokens are equal, and scores to the fifth digit). The sentences come in
bursts and in random order, among jobs of other lengths, beam sizes and options, of which some are cancelled, on one and
two workers and on one and two threads.
"""

from __future__ import annotations

import queue
import random
from typing import Any

import pytest

from lingon.serving.decoding.job import Hypothesis, Sampling, ScoreJob
from lingon.serving.runtime.runner import Scored
from tests.support import shipped_model

precisions = pytest.mark.parametrize("precision", shipped_model.PRECISIONS)


@precisions
def test_alone_every_sentence_is_translated(precision: str) -> None:
    answers = shipped_model.translated_alone(precision, 0)
    assert len(answers) == 500
    assert all(isinstance(answer[0], Hypothesis) for answer in answers)
    assert len({answer[0].tokens for answer in answers}) > 400


@precisions
@pytest.mark.parametrize("seed", shipped_model.seeds())
def test_a_sentence_translates_the_same_alone_and_in_batches(precision: str, seed: int) -> None:
    assert shipped_model.differences(seed, precision, shipped_model.translated_in_batches(seed, precision)) == []


@precisions
def test_a_pair_scores_the_same_alone_and_in_a_batch(precision: str) -> None:
    draw = random.Random(7)
    pairs = [
        (source, target[:-1])
        for source, target in zip(shipped_model.sources(), shipped_model.sources()[1:], strict=False)
    ]
    pairs = draw.sample(pairs, 150) + [(source, source[:-1]) for source in shipped_model.long_sources()[:10]]
    with shipped_model.started_engine(shipped_model.runner(precision)) as engine:
        apart = [bits(engine, [pair])[0] for pair in pairs]
        assert bits(engine, pairs) == apart


@precisions
def test_a_restricted_sentence_translates_the_same_alone_and_in_a_batch(precision: str) -> None:
    draw = random.Random(3)
    jobs = []
    for source in shipped_model.sources()[:30]:
        beam_size = draw.choice([1, 4])
        sampling = Sampling(seed=5, top_p=0.9) if beam_size == 1 and draw.random() < 0.5 else None
        wanted = {"beam_size": beam_size, "sampling": sampling, "rules": shipped_model.drawn_rules(draw)}
        jobs.append((source, shipped_model.options(source, **wanted)))
    model = shipped_model.runner(precision)
    with shipped_model.started_engine(model) as engine:
        alone = [shipped_model.answer(engine, job) for job in jobs]
    with shipped_model.started_engine(model, 2, max_rows=24) as engine:
        assert shipped_model.MixedTraffic.drawn(1).answers(engine, jobs) == alone


def bits(engine: Any, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[tuple[bytes, bytes]]:
    """Log-probabilities and attention of pairs that are scored together."""
    done: queue.SimpleQueue[tuple[int, Scored]] = queue.SimpleQueue()
    jobs = [
        ScoreJob(source_ids=source, target_ids=target, on_done=lambda found, at=index: done.put((at, found)))
        for index, (source, target) in enumerate(pairs)
    ]
    engine.submit(jobs)
    found = dict(done.get(timeout=shipped_model.PATIENCE) for _ in jobs)
    return [(found[index].log_probs.tobytes(), found[index].attention.tobytes()) for index in range(len(jobs))]
