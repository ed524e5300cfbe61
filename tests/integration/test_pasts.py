"""Pasts that jobs keep: a translation that continues from one has the bits of one that computes its prefix."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.cost import cost_of
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import SavedPast
from lingon.text import BOS
from tests.support.engine_harness import EngineHarness, Recorder, answers, options_for, running_engine
from tests.support.random_models import (
    KINDS,
    device_runner,
    random_prefix,
    random_runner,
    random_sources,
    recurrent_runner,
)

NATIVES = [pytest.param(name, marks=pytest.mark.native) for name in ("int8-native", "fp32-native")]
precisions = pytest.mark.parametrize("precision", ["fp32", *NATIVES])
SOURCES = random_sources(10, longest=16)


def keeping(runner: OnnxRunner, source: tuple[int, ...]) -> Options:
    return options_for(runner, source, keep_past=True)


def free(harness: EngineHarness, runner: OnnxRunner, sources: list[tuple[int, ...]] = SOURCES) -> list[Any]:
    """Return the greedy translation of each source, with its past."""
    return [found for (found,) in harness.translate(sources, [keeping(runner, source) for source in sources])]


def continued(
    runner: OnnxRunner, translations: list[Any], *, turns: bool = False, beam_size: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield jobs that begin as translations do, each with another length of its past; turns: and then other tokens."""
    draw = random.Random(1)
    for source, found in zip(SOURCES, translations, strict=True):
        length = draw.randint(1, len(found.tokens))
        prefix = found.tokens[:length] if not turns else (*found.tokens[: length - 1], *random_prefix(2, length))
        past = found.past.cut(draw.randint(1, found.past.length))
        options = keeping(runner, source)
        if beam_size > 1:
            options = options_for(runner, source, beam_size=beam_size, num_hypotheses=beam_size)
        yield {"source": source, "options": options, "prefix": prefix, "past": past}


def without_past(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "past": None}


def bytes_of(past: SavedPast) -> list[bytes]:
    return [each[: past.length].tobytes() for each in past.caches]


@precisions
def test_a_translation_from_a_past_has_the_log_probs_of_its_prefix(precision: str) -> None:
    runner = random_runner(precision=precision)
    with running_engine(runner) as harness:
        wanted = [
            {**each, "options": replace(each["options"], prefix_log_probs=True)}
            for each in continued(runner, free(harness, runner), turns=True)
        ]
        expected = answers(harness, [without_past(each) for each in wanted])
        assert answers(harness, wanted) == expected
    assert all(value < 0 for (found,) in expected for value in found.log_probs)


@precisions
@pytest.mark.parametrize("turns", [False, True])
def test_a_translation_from_a_past_has_the_bits_of_one_from_its_prefix(precision: str, turns: bool) -> None:
    runner = random_runner(precision=precision)
    with running_engine(runner) as harness:
        wanted = list(continued(runner, free(harness, runner), turns=turns))
        expected = [answers(harness, [without_past(each)])[0] for each in wanted]
        alone = [answers(harness, [each])[0] for each in wanted]
        together = answers(harness, wanted)
        assert alone == expected
        assert together == expected
    for (mine,), (theirs,) in zip(together, expected, strict=True):
        assert mine.past.length == len(mine.log_probs)
        assert bytes_of(mine.past) == bytes_of(theirs.past)


@precisions
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("beam_size", [2, 4])
def test_beams_continue_from_the_past_of_a_greedy_translation(precision: str, turns: bool, beam_size: int) -> None:
    runner = random_runner(precision=precision)
    with running_engine(runner) as harness:
        wanted = list(continued(runner, free(harness, runner), turns=turns, beam_size=beam_size))
        expected = [answers(harness, [without_past(each)])[0] for each in wanted]
        alone = [answers(harness, [each])[0] for each in wanted]
        assert answers(harness, [*map(without_past, wanted), *wanted[::-1]])[len(wanted) :] == alone[::-1]
    assert_same(alone, expected, exact=precision != "fp32")


@pytest.mark.parametrize("name", KINDS)
def test_beams_continue_from_recurrent_states(name: str) -> None:
    runner = recurrent_runner(name)
    with running_engine(runner) as harness:
        for source, found in zip(SOURCES, free(harness, runner), strict=True):
            job = {"source": source, "options": keeping(runner, source), "prefix": found.tokens[:2]}
            ((begun,),) = answers(harness, [job])
            options = options_for(runner, source, beam_size=3, num_hypotheses=3)
            longer = {"source": source, "options": options, "prefix": (*job["prefix"], 9)}
            resumed = answers(harness, [{**longer, "past": begun.past}])
            assert_same(resumed, answers(harness, [longer]), exact=False)


def assert_same(found: list[Any], expected: list[Any], *, exact: bool) -> None:
    """Compare the hypotheses of several jobs.

    exact: whether all bits are equal. Products of standard graphs with the memory of a sentence add in another order
    for several rows, so that the states of greedy search differ from those of beams in their last bits.
    """
    if exact:
        assert found == expected
    for mine, theirs in zip(found, expected, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


@precisions
def test_a_past_of_another_source_gives_the_same_bits_with_any_neighbours(precision: str) -> None:
    runner = random_runner(precision=precision)
    with running_engine(runner) as harness:
        grown = [
            {**each, "source": (*each["source"][:-1], 9, 12, each["source"][-1])}
            for each in continued(runner, free(harness, runner))
        ]
        alone = [answers(harness, [each])[0] for each in grown]
        assert answers(harness, [*grown, *map(without_past, grown)])[: len(grown)] == alone
        assert answers(harness, grown[::-1])[::-1] == alone
        computed = answers(harness, [without_past(each) for each in grown])
        assert [mine.log_probs for (mine,) in alone] != [own.log_probs for (own,) in computed]  # an approximation


@precisions
def test_tokens_of_a_past_are_not_decoded(precision: str) -> None:
    runner, recorder = random_runner(precision=precision), Recorder()
    source, options = SOURCES[0], Options(max_output_tokens=3, keep_past=True)
    with running_engine(runner, recorder) as harness:
        ((first,),) = answers(harness, [{"source": source, "options": options, "prefix": random_prefix(9)}])
        begun, streamed = len(recorder.live), list[int]()
        job = {"source": source, "options": options, "prefix": first.tokens, "past": first.past}
        ((last,),) = answers(harness, [{**job, "on_tokens": streamed.append, "hidden": 4}])
        assert len(recorder.live) - begun < len(first.tokens)
    assert last.tokens[: len(first.tokens) - 4] == first.tokens[4:]
    assert tuple(streamed) == last.tokens


def test_a_past_spares_its_part_of_the_cost() -> None:
    past = SavedPast(None, (BOS, *random_prefix(9)), ())
    jobs = [
        DecodeJob(source_ids=(5, 2), options=Options(), on_done=print, prefix=(*random_prefix(9), 5), past=each)
        for each in (None, past)
    ]
    assert cost_of(jobs[0]) - cost_of(jobs[1]) == 6


@pytest.mark.parametrize("name", KINDS)
def test_a_past_of_recurrent_states_is_that_of_the_prefix(name: str) -> None:
    runner = recurrent_runner(name)
    with running_engine(runner) as harness:
        for source, found in zip(SOURCES, free(harness, runner), strict=True):
            assert found.past is None  # there was no prefix
            prefix = found.tokens[:3]
            job = {"source": source, "options": keeping(runner, source), "prefix": prefix}
            ((begun,),) = answers(harness, [job])
            if len(prefix) == 0:
                continue
            assert begun.past.length == len(prefix)
            assert not begun.past.can_cut
            longer = {**job, "prefix": begun.tokens[: len(prefix) + 2]}
            ((expected,),) = answers(harness, [longer])
            for given in (job, longer):
                ((last,),) = answers(harness, [{**given, "past": begun.past}])
                assert last == (expected if given is longer else begun)
                assert last.past.length == len(given["prefix"])


def test_a_past_of_another_load_of_a_model_is_not_used() -> None:
    """A reload may bring other weights. The prefix is then computed, as after a restart that lost the pasts."""
    old, new = random_runner(seed=1), random_runner(seed=2)
    with running_engine(old) as harness:
        wanted = list(continued(old, free(harness, old)))
    with running_engine(new) as harness:
        assert answers(harness, wanted) == answers(harness, [without_past(each) for each in wanted])


def test_states_on_a_device_keep_no_past() -> None:
    runner = device_runner()
    with running_engine(runner) as harness:
        ((found,),) = answers(harness, [{"source": SOURCES[0], "options": keeping(runner, SOURCES[0])}])
    assert found.past is None


@precisions
def test_a_past_in_a_slot_of_nan_hides_nothing_of_it(precision: str) -> None:
    runner = random_runner(precision=precision)
    with running_engine(runner) as harness:
        wanted = list(continued(runner, free(harness, runner)))
        expected = answers(harness, wanted)
    with running_engine(FaultyRunner(runner, Failpoints.parse("slot=poison"))) as harness:
        assert answers(harness, wanted) == expected
        assert answers(harness, wanted[::-1]) == expected[::-1]


def test_cancelled_jobs_with_pasts_change_nothing_for_others() -> None:
    runner, draw = random_runner(), random.Random(3)
    with running_engine(runner, max_rows=8) as harness:
        wanted = list(continued(runner, free(harness, runner)))
        expected = answers(harness, wanted)
        for _ in range(10):
            gone = [harness.job(index=-1, **draw.choice(wanted)) for _ in range(4)]
            harness.engine.submit(gone)
            harness.engine.cancel(gone[::2])
            kept = [harness.job(index=at, **each) for at, each in enumerate(wanted)]
            harness.engine.submit(kept)
            harness.engine.cancel(gone[1::2])
            found: dict[int, Any] = {}
            while len(found) < len(wanted):
                index, outcome = harness.done.get(timeout=30)
                if index >= 0:
                    found[index] = outcome
            assert [found[at] for at in range(len(wanted))] == expected


def test_a_cut_keeps_the_memory_and_names_what_it_cannot_do() -> None:
    past = SavedPast(None, (BOS, 5, 6, 7, 8), (np.zeros((5, 2, 4), np.float32),))
    assert past.nbytes == past.cut(2).nbytes == 160
    assert (past.cut(2).length, past.cut(5).length) == (2, 5)
    assert past.cut(3).caches[0] is past.caches[0]
    for length in (0, 6):
        with pytest.raises(ValueError, match=f"length must be 1 to 5, got {length}"):
            past.cut(length)
    recurrent = SavedPast(None, (BOS, 5, 6, 7, 8), (), (np.zeros(3, np.float32),))
    assert recurrent.cut(5).nbytes == 12
    with pytest.raises(ValueError, match="length must be 5 to 5, got 4"):
        recurrent.cut(4)


@pytest.mark.parametrize(
    ("prefix", "used"), [((), 0), ((7,), 1), ((7, 8), 2), ((7, 9), 2), ((9, 8), 1), ((7, 8, 9), 3), ((7, 8, 9, 9), 3)]
)
def test_a_past_is_used_as_far_as_its_tokens_are_those_before_the_last_of_a_prefix(
    prefix: tuple[int, ...], used: int
) -> None:
    for recurrent in ((), (np.zeros(3, np.float32),)):
        past = SavedPast(None, (BOS, 7, 8), (), recurrent)
        given = DecodeJob(source_ids=(5, 2), options=Options(), on_done=print, prefix=prefix, past=past).past
        assert (0 if given is None else given.length) == (used if used == 3 or not recurrent else 0)
