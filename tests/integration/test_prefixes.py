"""Prefixes of translations in a batch: several tokens of a prefix are computed at once, and no result changes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import RequestError
from lingon.serving.decoding.job import Options, Sampling
from lingon.serving.runtime.failpoints import Failpoints, FaultyBuffers, FaultyRunner
from lingon.serving.runtime.host_buffers import OnnxBuffers
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import FREE, BatchShape, Buffers, GreedyBuffers, padded
from lingon.text import BOS
from tests.support.card_runner import card_runner
from tests.support.engine_harness import Recorder, answers, options_for, running_engine
from tests.support.random_models import device_runner, encode, random_prefix, random_runner, random_sources
from tests.support.rule_cases import CASES, rules_of

NATIVES = [pytest.param(name, marks=pytest.mark.native) for name in ("int8-native", "fp32-native")]
precisions = pytest.mark.parametrize("precision", ["fp32", *NATIVES])


class OneStep(FaultyRunner):
    """A runner whose buffers can run one step alone and do not search, so that the engine forces each token itself."""

    def __init__(self, runner: OnnxRunner) -> None:
        super().__init__(runner, Failpoints([]))

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Buffers:
        return FaultyBuffers(self._runner.open(shape, shortlist=shortlist), Failpoints([]))


def requests(beam_size: int, *, mixed: bool) -> list[dict[str, Any]]:
    """Return jobs with prefixes of many lengths and without any; mixed: some of them sampled or with rules."""
    draw, found = random.Random(beam_size), list[dict[str, Any]]()
    for at, source in enumerate(random_sources(14, longest=16)):
        wanted: dict[str, Any] = {"beam_size": beam_size, "num_hypotheses": beam_size, "length_penalty": 0.6}
        if mixed and at % 3 == 0:
            wanted["rules"] = rules_of(draw.choice(CASES))
        elif mixed and at % 3 == 1 and beam_size == 1:
            wanted["sampling"] = Sampling(seed=at)
        options = options_for(random_runner(), source, **wanted)
        found.append(
            {"source": source, "options": options, "prefix": random_prefix(draw.choice([0, 1, 2, 5, 9, 12]), at)}
        )
    return found


@precisions
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("beam_size", [1, 2, 4, 5])
def test_several_tokens_of_prefixes_at_once_give_the_results_of_one_at_a_time(
    precision: str, beam_size: int, mixed: bool
) -> None:
    runner, wanted = random_runner(precision=precision), requests(beam_size, mixed=mixed)
    with running_engine(OneStep(runner), max_rows=beam_size) as harness:
        expected = [answers(harness, [each])[0] for each in wanted]
    with running_engine(runner, max_rows=10 * beam_size) as harness:
        assert answers(harness, wanted) == expected
        assert answers(harness, wanted[::-1]) == expected[::-1]
    for each, hypotheses in zip(wanted, expected, strict=True):
        assert all(found.tokens[: len(each["prefix"])] == each["prefix"] for found in hypotheses)


@pytest.mark.native
@pytest.mark.parametrize(("beam_size", "steps"), [(2, 6), (4, 3), (5, 3)])
def test_the_rows_of_a_beam_share_the_positions_of_its_prefix(beam_size: int, steps: int) -> None:
    runner, source = random_runner(precision="int8-native"), random_sources(1)[0]
    options, counted = Options(beam_size=beam_size, max_output_tokens=4), []
    for prefix in ((), random_prefix(12)):
        recorder = Recorder()
        with running_engine(runner, recorder) as harness:
            answers(harness, [{"source": source, "options": options, "prefix": prefix}])
        counted.append(len(recorder.live))
    assert counted == [4, 4 + steps]


@pytest.mark.parametrize(
    "make", [device_runner, pytest.param(card_runner, marks=[pytest.mark.native, pytest.mark.triton])]
)
@pytest.mark.parametrize("beam_size", [1, 2])
def test_states_on_a_device_take_prefixes_too(make: Any, beam_size: int) -> None:
    runner = make()
    options = Options(beam_size=beam_size, num_hypotheses=beam_size, max_output_tokens=4)
    sources, prefixes = random_sources(3, longest=6), [(), random_prefix(3), random_prefix(2, 1)]
    wanted = [
        {"source": source, "options": options, "prefix": prefix}
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    with running_engine(OneStep(runner), max_rows=8) as harness:
        expected = [answers(harness, [each])[0] for each in wanted]
    with running_engine(runner, max_rows=8) as harness:
        assert answers(harness, wanted) == expected


@precisions
def test_a_forced_token_replaces_the_likeliest_one_alone(precision: str) -> None:
    runner, sources = random_runner(precision=precision), random_sources(2)
    buffers = runner.open(BatchShape(2, 1, 32, 16))
    assert isinstance(buffers, GreedyBuffers)
    for slot in range(2):
        buffers.place(slot, encode(runner, sources), slot)
    buffers.token_ids[:], buffers.positions[:] = BOS, 0
    forced = np.array([[FREE, 9], [7, FREE], [FREE, FREE]])
    found: list[list[int]] = []
    while len(found) < 3:  # a call may end before its last step
        found += buffers.greedy_steps(2, 3 - len(found), forced[len(found) :]).tokens
        assert buffers.token_ids.tolist() == found[-1]
    assert [found[0][1], found[1][0]] == [9, 7]
    single = runner.open(BatchShape(2, 1, 32, 16))
    for slot in range(2):
        single.place(slot, encode(runner, sources), slot)
    for number, tokens in enumerate([[BOS, BOS], *found[:-1]]):
        single.token_ids[:], single.positions[:] = tokens, number
        likeliest = single.step(2, logits=False).candidate_ids[:, 0]
        assert np.where(forced[number] == FREE, likeliest, forced[number]).tolist() == found[number]


@pytest.mark.native
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_row_of_nan_in_a_prefix_fails_its_sentence_alone(beam_size: int, tmp_path: Path) -> None:
    runner, source = random_runner(precision="int8-native"), random_sources(1)[0]
    options = Options(beam_size=beam_size, max_output_tokens=4)
    wanted = [{"source": source, "options": options, "prefix": random_prefix(9, at)} for at in range(3)]
    with running_engine(runner) as harness:
        expected = answers(harness, wanted)
    switch = tmp_path / "switch"
    with running_engine(FaultyRunner(runner, Failpoints.parse(f"step=nan@2?{switch}")), max_rows=32) as harness:
        switch.touch()  # the steps of the engine's start are not counted
        found = answers(harness, wanted)
    failed = [at for at in range(3) if isinstance(found[at], RequestError)]
    assert len(failed) == 1
    assert [found[at] for at in range(3) if at not in failed] == [expected[at] for at in range(3) if at not in failed]


@pytest.mark.native
def test_a_beam_of_a_prefix_leaves_surplus_rows_within_the_capacity() -> None:
    runner, source = random_runner(precision="fp32-native"), random_sources(1)[0][:1]
    capacity = runner.capacity(32)
    assert isinstance(runner.open(BatchShape(1, 4, 32, capacity)), OnnxBuffers)
    for length in (capacity - 3, capacity - 1, capacity, capacity + 3):
        wanted = [
            {
                "source": source,
                "options": Options(beam_size=beam_size, max_output_tokens=9),
                "prefix": random_prefix(length),
            }
            for beam_size in (4, 5)
        ]
        with running_engine(OneStep(runner)) as harness:
            expected = [answers(harness, [each]) for each in wanted]
        with running_engine(runner) as harness:
            assert [answers(harness, [each]) for each in wanted] == expected


@precisions
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_log_probs_of_any_prefix_are_those_of_the_scorer(precision: str, beam_size: int) -> None:
    runner, sources = random_runner(precision=precision), random_sources(6, longest=16)
    prefixes = [random_prefix(1 + 2 * number, number) for number in range(len(sources))]
    wanted = [
        {
            "source": source,
            "prefix": prefix,
            "options": replace(options_for(runner, source, beam_size=beam_size), prefix_log_probs=True),
        }
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    with running_engine(runner, max_rows=6 * beam_size) as harness:
        together = [best for best, *_ in answers(harness, [*wanted])]
        alone = [answers(harness, [each])[0][0] for each in wanted]
    assert [each.log_probs for each in alone] == [each.log_probs for each in together]
    for found, source, prefix in zip(together, sources, prefixes, strict=True):
        (scored,) = runner.score(*padded([source]), *padded([found.tokens]))
        length = len(prefix)
        assert found.log_probs[:length] == pytest.approx(scored.log_probs[:length].tolist(), abs=2e-3)
        assert found.score == pytest.approx(sum(found.log_probs[length:]) / 1)


@precisions
def test_the_log_probs_of_a_prefix_are_those_of_the_translation_that_it_is_from(precision: str) -> None:
    runner, sources = random_runner(precision=precision), random_sources(8, longest=16)
    free = [{"source": each, "options": options_for(runner, each)} for each in sources]
    with running_engine(runner, max_rows=10) as harness:
        expected = [found for (found,) in answers(harness, free)]
        options = [replace(each["options"], prefix_log_probs=True) for each in free]
        begun = [
            {"source": source, "options": chosen, "prefix": found.tokens[:4]}
            for source, chosen, found in zip(sources, options, expected, strict=True)
        ]
        for found, (again,) in zip(expected, answers(harness, [*begun, *free]), strict=False):
            shared = len(found.log_probs)
            assert again.log_probs[:shared] == found.log_probs
            assert again.score == pytest.approx(sum(again.log_probs[len(found.tokens[:4]) :]))
    assert all(value < 0 for found in expected for value in found.log_probs)
