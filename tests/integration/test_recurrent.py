"""Recurrent systems and variants of the Transformer in the engine: nothing there depends on the kind of a model."""

from __future__ import annotations

import numpy as np
import pytest

from lingon.export.gates_text import check_scores, check_shortlist_steps
from lingon.serving.decoding.job import ScoreJob
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, UNK
from lingon.training.search import SearchSettings, translate
from tests.support.engine_harness import check_arrivals, check_prefixes, options_for, running_engine
from tests.support.random_models import (
    KINDS,
    STEPS,
    VARIANTS,
    VOCAB,
    decode,
    encode,
    limits_of,
    random_sources,
    recurrent_model,
    recurrent_runner,
    runner_of,
    step,
)

kinds = pytest.mark.parametrize("name", [*KINDS, *VARIANTS])
precisions = pytest.mark.parametrize("precision", ["fp32", "int8", "int8-native"])


@pytest.mark.parametrize("name", [*KINDS, *VARIANTS, "rnnsearch lstm", "luong local-monotonic"])
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (4, 1.0)])
def test_the_engine_finds_the_translations_of_the_reference_search(name: str, beam_size: int, penalty: float) -> None:
    runner, model, sources = recurrent_runner(name), recurrent_model(name), random_sources(24, longest=11)
    search = SearchSettings(
        beam_size=beam_size,
        num_hypotheses=beam_size,
        length_penalty=penalty,
        length_factor=limits_of(model).output_factor,
        length_extra=limits_of(model).output_extra,
    )
    wanted = {"beam_size": beam_size, "num_hypotheses": beam_size, "length_penalty": penalty}
    with running_engine(runner, max_rows=7 * beam_size) as harness:
        found = harness.translate(sources, [options_for(runner, source, **wanted) for source in sources])
    expected = translate(model, sources, search)
    assert [[each.tokens for each in row] for row in found] == [[each.tokens for each in row] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=1e-4)
    assert len({row[0].tokens for row in found}) > 2, "the random model says different things"


@pytest.mark.parametrize(
    ("name", "precision", "workers"),
    [
        *((name, *each) for name in [*KINDS, *VARIANTS] for each in (("fp32", 1), ("int8", 2))),
        *((name, "int8-native", 2) for name in [*KINDS, *VARIANTS]),
    ],
)
def test_batches_arrival_times_and_poisoned_slots_change_no_bit(name: str, precision: str, workers: int) -> None:
    runner = recurrent_runner(name, precision)
    poisoned = FaultyRunner(runner, Failpoints.parse("slot=poison"))
    check_arrivals(runner, poisoned, random_sources(40, longest=11), workers, workers)


@kinds
def test_a_row_of_nan_fails_its_own_sentence_alone(name: str) -> None:
    runner, sources = recurrent_runner(name), random_sources(12, longest=11)
    options = [options_for(runner, source) for source in sources]
    with running_engine(runner) as harness:
        expected = harness.translate(sources, options)
    with running_engine(FaultyRunner(runner, Failpoints.parse("step=nan@3"))) as harness:
        found = harness.translate(sources, options)
        assert sum(mine != theirs for mine, theirs in zip(found, expected, strict=True)) == 1
        assert harness.translate(sources, options) == expected


@kinds
def test_a_translation_starts_with_its_prefix_and_continues_from_it(name: str) -> None:
    check_prefixes(recurrent_runner(name), random_sources(12, longest=11))


@kinds
@precisions
def test_score_gives_a_translation_the_log_probabilities_of_its_search(name: str, precision: str) -> None:
    runner, sources = recurrent_runner(name, precision), random_sources(24, longest=11)
    for beam_size, penalty in ((1, 0.0), (4, 1.0)):
        assert check_scores(runner, sources, beam_size, penalty, precision).tokens > 50


@pytest.mark.parametrize(("name", "width"), list(zip(KINDS, (0, 1, 1), strict=True)))
def test_a_pair_has_attention_only_if_the_model_has(name: str, width: int) -> None:
    runner, source = recurrent_runner(name), random_sources(1)[0][-5:]
    with running_engine(runner) as harness:
        job = ScoreJob(source_ids=source, target_ids=(5, 6), on_done=lambda outcome: harness.done.put((0, outcome)))
        harness.engine.submit([job])
        scored = harness.collect(1)[0]
    assert scored.attention.shape == (3, width * len(source))
    assert len(scored.log_probs) == 3


def shortlisted(name: str, precision: str) -> OnnxRunner:
    pieces = np.random.default_rng(0).integers(UNK + 1, VOCAB, 3 * VOCAB).astype(np.int32)
    always = np.array([EOS, *range(UNK + 1, 10)], np.int32)
    offsets = np.arange(0, 3 * VOCAB + 1, 3, dtype=np.int32)
    return runner_of(recurrent_model(name), precision, shortlist=Shortlist(always, offsets, pieces))


@kinds
@precisions
def test_a_step_with_the_shortlist_is_a_step_over_its_pieces(name: str, precision: str) -> None:
    check_shortlist_steps(shortlisted(name, precision), random_sources(16, longest=11), precision)


@kinds
def test_nan_in_free_slots_and_unused_positions_changes_nothing(name: str) -> None:
    runner, sources = recurrent_runner(name), random_sources(3, longest=11)
    encoded = encode(runner, sources)
    expected = decode(runner, encoded, [1], 64)
    buffers = runner.open(BatchShape(4, 1, 64, 16))
    for slot in range(4):
        buffers.invalidate(slot)
    buffers.place(0, encoded, 1)
    for number in range(STEPS):
        found = step(buffers, [BOS if number == 0 else 5 + number], [number])
        assert np.array_equal(found.candidate_log_probs, expected[number])


@pytest.mark.parametrize("name", KINDS)
def test_a_copied_or_moved_row_continues_as_its_original_and_the_bytes_are_counted(name: str) -> None:
    runner, sources = recurrent_runner(name), random_sources(2, longest=11)
    encoded = encode(runner, sources)
    buffers = runner.open(BatchShape(2, 2, 32, 16))
    for slot in range(2):
        buffers.place(slot, encoded, slot)
    for number in range(3):
        step(buffers, [5 + number, 9 + number, 7, 8], [number] * 4)
    of_row = sum(4 * state.shape[0] for state in runner.manifest.states_of("recurrent"))
    assert buffers.copy_rows(np.array([0]), np.array([1]), np.array([3])) == of_row
    expected = step(buffers, [8, 8, 6, 7], [3] * 4).candidate_log_probs.copy()
    assert np.array_equal(expected[0], expected[1])
    assert not np.array_equal(expected[0], expected[2])
    following = step(buffers, [5] * 4, [4] * 4).candidate_log_probs[:2].copy()
    for slot in range(2):
        buffers.place(slot, encoded, 1 - slot)
    for number, tokens in enumerate([[7, 8, 5, 9], [7, 8, 6, 10], [7, 8, 7, 11]]):
        step(buffers, tokens, [number] * 4)
    buffers.copy_rows(np.array([2]), np.array([3]), np.array([3]))
    assert buffers.move(1, 0, 3) == 2 * of_row
    again = step(buffers, [8, 8], [3, 3]).candidate_log_probs
    assert np.array_equal(again, expected[:2])
    assert np.array_equal(step(buffers, [5, 5], [4, 4]).candidate_log_probs, following)
