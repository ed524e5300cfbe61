"""Running batches with a shortlist, on real tiny models and random shortlists."""

from __future__ import annotations

import dataclasses
import functools
import queue
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import DecodeJob, Hypothesis, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime import host_buffers
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from lingon.serving.runtime.shortlist import Shortlist, unite
from lingon.text import BOS, EOS, UNK
from tests.support.random_models import VOCAB, random_model, random_sources, runner_of

PRECISIONS = ["fp32", "int8", pytest.param("int8-native", marks=pytest.mark.native)]


def random_shortlist() -> Shortlist:
    """A shortlist of two to six candidates for every source piece."""
    draw = np.random.default_rng(5)
    sets = [draw.choice(np.arange(UNK + 1, VOCAB), draw.integers(2, 7), replace=False) for _ in range(VOCAB)]
    offsets = np.append(0, np.cumsum([len(each) for each in sets]))
    always = np.array([EOS, 7, 11, 12, 20, 30, 33])
    return Shortlist(*(array.astype(np.int32) for array in (always, offsets, np.concatenate(sets))))


@functools.cache
def shortlist_runner(precision: str = "fp32") -> OnnxRunner:
    return runner_of(random_model(), precision, shortlist=random_shortlist())


def translate(runner: OnnxRunner, jobs: Sequence[tuple[tuple[int, ...], Options]], **limits: int) -> list[Any]:
    """The hypotheses of each source; all jobs are submitted at once."""
    engine, done = Engine(runner, EngineLimits(**limits)), queue.SimpleQueue[tuple[int, Any]]()
    engine.start()
    try:
        for index, (source, options) in enumerate(jobs):
            job = DecodeJob(source_ids=source, options=options, on_done=lambda found, at=index: done.put((at, found)))
            engine.submit([job])
        found = dict(done.get(timeout=30) for _ in jobs)
    finally:
        engine.stop(timeout=0)
    return [found[index] for index in range(len(jobs))]


def make_options(beam_size: int, *, shortlist: bool = True) -> Options:
    return Options(beam_size=beam_size, num_hypotheses=beam_size, max_output_tokens=30, shortlist=shortlist)


def alike(one: Sequence[Hypothesis], other: Sequence[Hypothesis]) -> bool:
    """Whether the tokens are equal and the scores differ by no more than sums in another order do."""
    same = [mine.tokens for mine in one] == [theirs.tokens for theirs in other]
    return same and [mine.score for mine in one] == pytest.approx([theirs.score for theirs in other], abs=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_uses_only_the_pieces_of_its_own_set(precision: str, beam_size: int) -> None:
    runner, sources = shortlist_runner(precision), random_sources(20)
    found = translate(runner, [(source, make_options(beam_size)) for source in sources])
    free = translate(runner, [(source, make_options(beam_size, shortlist=False)) for source in sources])
    for source, hypotheses in zip(sources, found, strict=True):
        assert {token for each in hypotheses for token in each.tokens} <= set(
            random_shortlist().select(source).tolist()
        )
    assert [row[0].tokens for row in found] != [row[0].tokens for row in free]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_joining_sentence_does_not_change_the_results_of_the_others(precision: str, beam_size: int) -> None:
    runner, sources = shortlist_runner(precision), random_sources(24)
    jobs = [(source, make_options(beam_size)) for source in sources]
    alone = [translate(runner, [job])[0] for job in jobs]
    random.Random(3).shuffle(order := list(range(len(jobs))))
    together = translate(runner, [jobs[index] for index in order], max_rows=7 * beam_size)
    assert all(alike(together[place], alone[index]) for place, index in enumerate(order))


@pytest.mark.native
@pytest.mark.parametrize("beam_size", [1, 4])
def test_many_sentences_of_a_small_vocabulary_need_no_union(beam_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, sources = shortlist_runner("int8-native"), random_sources(24)
    jobs = [(source, make_options(beam_size)) for source in sources]
    monkeypatch.setattr(host_buffers, "SMALL_VOCABULARY", 0)
    expected = translate(runner, jobs, max_rows=7 * beam_size)
    monkeypatch.setattr(host_buffers, "SMALL_VOCABULARY", VOCAB)
    monkeypatch.setattr(host_buffers, "MANY", 1)
    monkeypatch.setattr(host_buffers, "FEW", 0)
    monkeypatch.setattr(host_buffers, "unite", None)
    found = translate(runner, jobs, max_rows=7 * beam_size)
    assert all(map(alike, found, expected))


@pytest.mark.native
def test_a_batch_goes_to_all_pieces_and_back_with_its_number_of_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, sources = shortlist_runner("int8-native"), random_sources(6)
    united: list[int] = []
    monkeypatch.setattr(host_buffers, "unite", lambda sets: united.append(len(sets)) or unite(sets))
    buffers = runner.open(BatchShape(6, 1, 32, 16), shortlist=True)
    buffers.token_ids[:] = BOS
    for slot, source in enumerate(sources):
        encoded = runner.encode(np.array([source]), np.array([len(source)]))
        buffers.place(slot, encoded, 0, random_shortlist().select(source))
        buffers.step(slot + 1, logits=False)
    assert united == [1, 2], "three sentences and more compute all pieces"
    for sentences in (4, 3, 2, 1, 1):
        buffers.step(sentences, logits=False)
    assert united == [1, 2, 1], "one computes the union again"


def test_sentences_with_a_shortlist_do_not_change_those_without_one() -> None:
    runner, sources = shortlist_runner(), random_sources(16)
    jobs = [(source, make_options(beam_size, shortlist=False)) for source in sources for beam_size in (1, 4)]
    expected = translate(runner, jobs)
    mixed = [(source, dataclasses.replace(options, shortlist=on)) for source, options in jobs for on in (True, False)]
    assert translate(runner, mixed)[1::2] == expected


@pytest.mark.parametrize("precision", PRECISIONS)
def test_log_probabilities_are_normalised_over_the_set_of_the_sentence(precision: str) -> None:
    runner, sources = shortlist_runner(precision), random_sources(5)
    buffers, full = runner.open(BatchShape(5, 2, 32, 16), shortlist=True), runner.open(BatchShape(5, 2, 32, 16))
    for slot, source in enumerate(sources):
        encoded = runner.encode(np.array([source]), np.array([len(source)]))
        buffers.place(slot, encoded, 0, random_shortlist().select(source))
        full.place(slot, encoded, 0)
    buffers.token_ids[:], full.token_ids[:] = BOS, BOS
    found, logits = buffers.step(5, logits=False), full.step(5, logits=True).logits
    assert logits is not None
    for slot, source in enumerate(sources):
        chosen = logits[2 * slot].astype(np.float64)[random_shortlist().select(source)]
        expected = np.sort(chosen - np.log(np.exp(chosen).sum()))[::-1][:4]
        assert found.candidate_log_probs[2 * slot] == pytest.approx(expected, abs=1e-5)


def test_output_rows_are_gathered_once_for_sentences_that_join_together() -> None:
    runner = shortlist_runner()
    assert runner.shortlist_graphs is not None
    gathered = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(runner.shortlist_graphs.output_rows, name)  # type: ignore[union-attr]

        def run(self, *arguments: Any) -> Any:
            gathered.append(arguments)
            return runner.shortlist_graphs.output_rows.run(*arguments)  # type: ignore[union-attr]

    counted = dataclasses.replace(
        runner, shortlist_graphs=dataclasses.replace(runner.shortlist_graphs, output_rows=Counting())
    )
    buffers = counted.open(BatchShape(8, 1, 32, 16), shortlist=True)
    sources = random_sources(8)
    encoded = runner.encode(np.full((8, 8), 5), np.full(8, 8))
    for joining in (range(5), range(5, 8)):
        for slot in joining:
            buffers.place(slot, encoded, slot, random_shortlist().select(sources[slot]))
        for _ in range(3):
            buffers.step(joining.stop, logits=False)
    buffers.move(7, 0, 3)
    buffers.step(7, logits=False)
    assert len(gathered) == 2


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_step_is_said_to_read_the_output_layer_only_without_a_shortlist(precision: str) -> None:
    model = random_model()
    every, listed = (runner_of(model, precision, shortlist=given).step_bytes for given in (None, random_shortlist()))
    output = VOCAB * model.settings.dim * (4 if precision == "fp32" else 1)
    assert 0 < listed < every
    assert output <= every - listed < 2 * output, "of the table of embeddings few rows are read"
