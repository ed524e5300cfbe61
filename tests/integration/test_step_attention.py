"""Hypotheses with the attention of the steps that found them: it is that of the scorer for the same translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.bundle.manifest import Alignment
from lingon.serving.decoding.job import Hypothesis, Options, Sampling
from lingon.serving.decoding.rules import Rules
from lingon.serving.decoding.spelling import Pieces, Spelling
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import Runner, SavedPast
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, PAD
from tests.support.engine_harness import options_for, running_engine
from tests.support.random_models import (
    VOCAB,
    random_model,
    random_runner,
    random_sources,
    recurrent_runner,
    runner_of,
    written_bundle,
)

NATIVE = pytest.mark.native
CPU_PRECISIONS = [
    "fp32",
    "int8",
    pytest.param("fp32-native", marks=NATIVE),
    pytest.param("int8-native", marks=NATIVE),
]
SOURCES = random_sources(9, longest=30)  # of several widths of a batch
KINDS: list[dict[str, Any]] = [
    {},
    {"decoder_cell": "ssru"},
    {"score": "additive", "head_dim": 24, "bias": False},
    {"positions": "rotary", "norm": "pre"},
]
BEAMS = Options(beam_size=4, num_hypotheses=4, length_penalty=1.0, max_output_tokens=20, attention=True)
TOLERANCE = 1e-5
TOLERANCES = {"int8": 5e-3}  # where a last bit can change what a product rounds
precisions = pytest.mark.parametrize("precision", CPU_PRECISIONS)


def translated(
    runner: Runner, options: Options, sources: Sequence[tuple[int, ...]] = SOURCES, **limits: int
) -> list[tuple[Hypothesis, ...]]:
    with running_engine(runner, **limits) as harness:
        return harness.translate(sources, [options] * len(sources))


def scored(runner: OnnxRunner, source: Sequence[int], found: Hypothesis) -> np.ndarray:
    """The attention of the scorer, a row for each log-probability of a hypothesis."""
    target = found.tokens if found.finished else found.tokens[:-1]
    padded = np.array([[*target, PAD, PAD]])[:, : max(len(target), 2)]
    (pair,) = runner.score(np.array([source]), np.array([len(source)]), padded, np.array([len(target)]))
    return pair.attention


def check_attention(runner: OnnxRunner, answers: Sequence[Sequence[Hypothesis]]) -> None:
    """Assert that every hypothesis has the attention of the scorer, with the same best source token."""
    for source, found in zip(SOURCES, answers, strict=True):
        for each in found:
            assert each.attention is not None
            expected = scored(runner, source, each)
            assert each.attention.shape == (len(each.log_probs), len(source)) == expected.shape
            assert each.attention.dtype == np.float32
            error = TOLERANCES.get(next(iter(runner.manifest.precisions)), TOLERANCE)
            np.testing.assert_allclose(each.attention, expected, atol=error)
            best = np.take_along_axis(expected, each.attention.argmax(axis=1)[:, None], axis=1)[:, 0]
            assert (best >= expected.max(axis=1) - error).all()


@precisions
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("options", [Options(max_output_tokens=20, attention=True), BEAMS], ids=["greedy", "beams"])
def test_a_hypothesis_has_the_attention_of_the_scorer(precision: str, kind: dict[str, Any], options: Options) -> None:
    runner = random_runner(precision=precision, **kind)
    assert runner.steps_attend
    answers = translated(runner, options)
    assert {len(each) for each in answers} == {options.num_hypotheses}
    check_attention(runner, answers)


@precisions
@pytest.mark.parametrize("name", ["rnnsearch gru", "luong local-predictive"])
def test_a_recurrent_model_says_where_it_looks(precision: str, name: str) -> None:
    runner = recurrent_runner(name, precision)
    assert runner.steps_attend
    check_attention(runner, translated(runner, BEAMS))
    check_attention(runner, translated(runner, replace(BEAMS, beam_size=1, num_hypotheses=1)))


@precisions
@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_that_are_chosen_on_the_host_have_attention_too(precision: str, beam_size: int) -> None:
    runner = random_runner(precision=precision)
    pieces = Pieces([b""] * 4 + [b" w%d" % number for number in range(4, VOCAB)], {})
    rules = Rules(spelling=Spelling(pieces), vocab=VOCAB)
    options = replace(BEAMS, beam_size=beam_size, num_hypotheses=beam_size, rules=rules)
    check_attention(runner, translated(runner, options))
    if beam_size == 1:
        check_attention(runner, translated(runner, replace(options, sampling=Sampling(seed=3), rules=None)))


@precisions
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_shortlist_changes_nothing_about_it(precision: str, beam_size: int) -> None:
    always, offsets = np.array([EOS, *range(4, 12)], np.int32), 3 * np.arange(VOCAB + 1, dtype=np.int32)
    likely = np.random.default_rng(0).integers(4, VOCAB, 3 * VOCAB).astype(np.int32)
    runner = runner_of(random_model(), precision, shortlist=Shortlist(always, offsets, likely))
    assert runner.steps_attend
    options = replace(BEAMS, beam_size=beam_size, num_hypotheses=beam_size, shortlist=True)
    check_attention(runner, translated(runner, options))


@precisions
@pytest.mark.parametrize("beam_size", [1, 4])
def test_rows_of_the_prefix_are_there_and_those_of_hidden_tokens_are_not(precision: str, beam_size: int) -> None:
    runner, prefix = random_runner(precision=precision), (7, 8, 9, 10)
    options = replace(BEAMS, beam_size=beam_size, num_hypotheses=1)
    with running_engine(runner) as harness:
        jobs = [harness.job(SOURCES[0], hidden, options=options, prefix=prefix, hidden=hidden) for hidden in (0, 1)]
        harness.engine.submit(jobs)
        answers = harness.collect(2)
    (whole,), (shown,) = answers[0], answers[1]
    assert whole.tokens[1:] == shown.tokens
    assert whole.attention is not None
    assert shown.attention is not None
    np.testing.assert_allclose(whole.attention, scored(runner, SOURCES[0], whole), atol=TOLERANCE)
    assert whole.attention[1:].tobytes() == shown.attention.tobytes()


@precisions
@pytest.mark.parametrize("beam_size", [1, 4])
def test_neighbours_and_freed_slots_do_not_change_a_bit_of_it(precision: str, beam_size: int) -> None:
    runner = random_runner(precision=precision)
    options = replace(BEAMS, beam_size=beam_size, num_hypotheses=1)
    alone = [translated(runner, options, [source])[0] for source in SOURCES]
    wanted = [options if index % 2 else replace(options, attention=False) for index in range(len(SOURCES))]
    poisoned = FaultyRunner(runner, Failpoints.parse("slot=poison"))
    with running_engine(poisoned, max_rows=3 * beam_size) as harness:
        together = harness.translate(SOURCES, wanted)
    assert together == alone
    for (found,), (expected,), asked in zip(together, alone, wanted, strict=True):
        assert expected.attention is not None
        assert (found.attention is None) == (not asked.attention)
        assert found.attention is None or found.attention.tobytes() == expected.attention.tobytes()


def test_a_translation_that_does_not_ask_has_none() -> None:
    runner = random_runner()
    ((found,), *_) = translated(runner, options_for(runner, SOURCES[0]))
    assert found.attention is None


@precisions
def test_graphs_that_do_not_say_it_translate_without(precision: str, tmp_path: Path) -> None:
    model = random_model()
    bundle = written_bundle(model, tmp_path, [precision], alignment=Alignment(0, ()))
    runner, saying = load_runner(bundle, precision, 1), random_runner(precision=precision)
    assert not runner.steps_attend
    for options in (BEAMS, replace(BEAMS, beam_size=1, num_hypotheses=1)):
        answers = translated(runner, options)
        assert {each.attention for found in answers for each in found} == {None}
        assert answers == translated(saying, options), "the output changes no translation"


@precisions
@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_past_restores_the_attention_that_was_kept_with_it(
    precision: str, kind: dict[str, Any], beam_size: int
) -> None:
    runner, source, longer = random_runner(precision=precision, **kind), SOURCES[0], (*SOURCES[0] * 9, EOS)
    greedy = replace(BEAMS, beam_size=1, num_hypotheses=1, keep_past=True)
    wanted = replace(BEAMS, beam_size=beam_size, num_hypotheses=1)
    prefix = (7, 8, 9, 10)
    with running_engine(runner) as harness:

        def answer(source: tuple[int, ...], options: Options, past: SavedPast | None) -> Hypothesis:
            harness.engine.submit([harness.job(source, options=options, prefix=prefix, past=past)])
            ((found,),) = harness.collect(1).values()
            return found

        past = answer(source, greedy, None).past
        assert past is not None
        assert past.attention is not None
        assert past.attention.shape[1] == len(source)
        restored, plain = answer(source, wanted, past), answer(source, wanted, None)
        silent = answer(source, replace(greedy, attention=False), None).past
        assert silent is not None
        assert silent.attention is None
        grown, unknown = answer(longer, wanted, past), answer(longer, wanted, silent)
    assert restored.attention is not None
    assert plain.attention is not None
    np.testing.assert_allclose(restored.attention, plain.attention, atol=TOLERANCES.get(precision, TOLERANCE))
    known = min(past.length, len(prefix))
    assert grown.attention is not None
    assert unknown.attention is not None
    assert (grown.attention[:known, : len(source)] == past.attention[:known]).all()
    assert not grown.attention[:known, len(source) :].any(), "the source of the past had no such tokens"
    assert not unknown.attention[:known].any()
    assert grown.attention[known:].tobytes() == unknown.attention[known:].tobytes()
