"""The results of the engine, on tiny models with random weights or with a fake runner."""

from __future__ import annotations

import queue
import time
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import Options, ScoreJob
from lingon.serving.engine.worker import SPARE_BATCHES
from lingon.serving.runtime.runner import Scored
from lingon.text import EOS
from lingon.training.search import SearchSettings, translate
from tests.support.echo_engine import EchoRunner
from tests.support.engine_harness import (
    Recorder,
    check_arrivals,
    check_prefixes,
    options_for,
    running_engine,
)
from tests.support.random_models import limits_of, random_model, random_runner, random_sources


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "pre"}, {"activation": "gelu", "tie": "none"}, {"positions": "learned", "tie": "decoder"}]
)
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (2, 0.0), (4, 1.0), (5, 0.6)])
def test_the_engine_finds_the_translations_of_the_reference_search(
    settings: dict[str, Any], beam_size: int, penalty: float
) -> None:
    runner, model, sources = random_runner(**settings), random_model(**settings), random_sources(24)
    limits = limits_of(model)
    search = SearchSettings(
        beam_size=beam_size,
        num_hypotheses=beam_size,
        length_penalty=penalty,
        length_factor=limits.output_factor,
        length_extra=limits.output_extra,
    )
    expected = translate(model, sources, search)
    options = [
        options_for(runner, source, beam_size=beam_size, num_hypotheses=beam_size, length_penalty=penalty)
        for source in sources
    ]
    with running_engine(runner, max_rows=7 * beam_size) as harness:
        found = harness.translate(sources, options)
    assert [[each.tokens for each in row] for row in found] == [[each.tokens for each in row] for row in expected]
    assert [[each.finished for each in row] for row in found] == [[each.finished for each in row] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=1e-4)
    assert len({row[0].tokens for row in found}) > 2, "the random model says different things"
    if beam_size == 1 and settings.get("positions") != "learned":
        assert {row[0].finished for row in found} == {True, False}


def test_log_probs_sum_to_the_score() -> None:
    runner, sources = random_runner(), random_sources(10)
    with running_engine(runner) as harness:
        found = harness.translate(
            sources, [options_for(runner, source, beam_size=3, length_penalty=0.7) for source in sources]
        )
    for best, *_ in found:
        assert len(best.log_probs) == len(best.tokens) + best.finished
        assert best.score == pytest.approx(sum(best.log_probs) / len(best.log_probs) ** 0.7, abs=1e-4)


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_batches_and_arrival_times_change_no_token_and_no_bit_of_a_score(seed: int, workers: int) -> None:
    runner = random_runner()
    check_arrivals(runner, runner, random_sources(40, longest=40), seed, workers)


def test_a_translation_starts_with_its_prefix_and_continues_from_it() -> None:
    check_prefixes(random_runner(), random_sources(12))


def test_every_hypothesis_of_a_beam_starts_with_the_prefix() -> None:
    runner, sources = random_runner(), random_sources(8)
    options = [options_for(runner, source, beam_size=4, num_hypotheses=4) for source in sources]
    with running_engine(runner) as harness:
        harness.engine.submit(
            [harness.job(source, at, options=options[at], prefix=(9, 7, 9)) for at, source in enumerate(sources)]
        )
        found = harness.collect(len(sources))
    assert all(
        each.tokens[:3] == (9, 7, 9) and each.log_probs[:3] == (0.0,) * 3 for row in found.values() for each in row
    )
    assert all(len({each.tokens for each in row}) == 4 for row in found.values())


def test_greedy_tokens_are_reported_when_they_are_decoded() -> None:
    runner, sources = random_runner(), random_sources(6)
    reported: dict[int, list[int]] = {index: [] for index in range(6)}
    with running_engine(runner) as harness:
        jobs = [
            harness.job(source, index, options=options_for(runner, source), on_tokens=reported[index].append)
            for index, source in enumerate(sources)
        ]
        harness.engine.submit(jobs)
        done = harness.collect(6)
    assert {index: tuple(tokens) for index, tokens in reported.items()} == {
        index: row[0].tokens for index, row in done.items()
    }


def test_a_greedy_batch_in_which_no_sentence_ends_early_copies_no_past() -> None:
    runner, recorder = random_runner(), Recorder()
    sources = random_sources(8)
    with running_engine(runner, recorder) as harness:
        harness.translate(sources[:1], [options_for(runner, sources[0])])
        assert recorder.copied == 0
        harness.translate(sources, [options_for(runner, source, beam_size=4) for source in sources])
        assert recorder.copied > 0


def test_finished_sentences_free_their_rows_at_once() -> None:
    recorder = Recorder()
    with running_engine(EchoRunner(), recorder, max_rows=64) as harness:
        sources = [(*range(5, 5 + length), EOS) for length in (2, 9, 4, 30)]
        outcomes = harness.translate(sources, [Options(max_output_tokens=60)] * 4)
    assert [best.tokens for (best,) in outcomes] == [source[:-1] for source in sources]
    assert all(live == rows for live, rows in recorder.live), "no unused row is computed"


def test_a_job_joins_a_running_batch() -> None:
    runner = EchoRunner()
    with running_engine(runner) as harness:
        runner.gate.clear()
        harness.engine.submit([harness.job((*range(4, 60), EOS), 0, options=Options(max_output_tokens=100))])
        time.sleep(0.05)
        harness.engine.submit([harness.job((5, EOS), 1)])
        runner.gate.set()
        assert harness.done.get(timeout=10)[0] == 1


def test_memory_of_batch_shapes_that_are_no_longer_used_is_freed() -> None:
    recorder = Recorder()
    with running_engine(EchoRunner(), recorder) as harness:
        for beam_size in (1, 2, 3, 4):
            for length in (3, 40, 80):
                harness.translate([(5,) * length], [Options(beam_size=beam_size, max_output_tokens=3)])
        assert 1 <= recorder.state_bytes <= SPARE_BATCHES + 1, "the fake's batches have a byte each"
    assert recorder.state_bytes == 0, "an engine frees all its memory when it ends"


def test_scoring_a_translation_gives_its_log_probabilities() -> None:
    runner, sources = random_runner(), random_sources(6)
    scored: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    with running_engine(runner) as harness:
        found = harness.translate(sources, [options_for(runner, source) for source in sources])
        for index, (source, (best,)) in enumerate(zip(sources, found, strict=True)):
            job = ScoreJob(
                source_ids=source,
                target_ids=best.tokens,
                on_done=lambda answer, index=index: scored.put((index, answer)),
            )
            harness.engine.submit([job])
        answers = dict(scored.get(timeout=30) for _ in sources)
    for index, (best,) in enumerate(found):
        answer = answers[index]
        assert isinstance(answer, Scored)
        assert answer.log_probs[: len(best.log_probs)] == pytest.approx(best.log_probs, abs=1e-4)
        assert answer.attention.shape == (len(best.tokens) + 1, len(sources[index]))
        assert answer.attention.sum(axis=1) == pytest.approx(1, abs=1e-4)


def test_a_batch_of_the_scorer_keeps_to_the_token_limit_of_the_encoder() -> None:
    shapes: list[tuple[int, ...]] = []

    class Noting(EchoRunner):
        def score(self, source_ids: np.ndarray, source_lengths: np.ndarray, *targets: np.ndarray) -> list[Scored]:
            shapes.append(targets[0].shape)
            return super().score(source_ids, source_lengths, *targets)

    scored: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with running_engine(Noting(), max_batch_tokens=400) as harness:
        shapes.clear()  # the shapes of the warm-up
        harness.engine.submit(
            [ScoreJob(source_ids=(5, EOS), target_ids=(7,) * 99, on_done=scored.put) for _ in range(20)]
        )
        assert all(isinstance(scored.get(timeout=30), Scored) for _ in range(20))
    assert sum(rows for rows, _ in shapes) == 20
    assert max(rows * (width + 1) for rows, width in shapes) <= 400
