"""Decoder states for the graphs in our own operators for CUDA.

There is no card: the CPU provider runs the host code of the operators, and Triton's interpreter their kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.bundle import names
from lingon.bundle.store import open_bundle
from lingon.errors import BundleError, EngineFault
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.runtime.card_buffers import CardBeamSearch, CardBuffers, CardGraphs, memory_targets, pack
from lingon.serving.runtime.device import FP16_NATIVE
from lingon.serving.runtime.device_buffers import GraphRecorder
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape, BeamStates, Encoded, GreedySteps
from lingon.serving.runtime.validation import check_bundle
from lingon.text import BOS, PAD
from tests.support.bundles import sign
from tests.support.card_runner import TINY, card_bundle, card_runner, load_card
from tests.support.random_models import encode, random_runner, random_sources
from tests.support.recording_sessions import RecordingSession

pytestmark = [pytest.mark.native, pytest.mark.triton]
BEAM = 3
SOURCES = random_sources(3, longest=5)
NEAR_TIE = 0.02  # of a score in float16


def exact_runner(**settings: Any) -> OnnxRunner:
    """The graphs of the same model as card_runner's, on the CPU in float32."""
    return random_runner(precision="fp32-native", **{**TINY, **settings})


def opened(runner: OnnxRunner, beam_size: int = 1, slots: int = 4, width: int = 32, capacity: int = 24) -> CardBuffers:
    buffers = runner.open(BatchShape(slots, beam_size, width, capacity))
    assert isinstance(buffers, CardBuffers)
    return buffers


def begun(buffers: CardBuffers, encoded: Encoded, indices: Sequence[int]) -> CardBuffers:
    """The buffers with some sentences at their first step."""
    for slot, index in enumerate(indices):
        buffers.place(slot, encoded, index)
    buffers.token_ids[:], buffers.positions[:] = BOS, 0
    return buffers


def greedy(buffers: CardBuffers, sentences: int, *counts: int) -> GreedySteps:
    """The choices of several calls, one after the other."""
    found = GreedySteps([], [])
    for count in counts:
        tokens, log_probs = buffers.greedy_steps(sentences, count)
        found.tokens.extend(tokens)
        found.log_probs.extend(log_probs)
    return found


def single(buffers: CardBuffers, sentences: int, steps: int) -> GreedySteps:
    """The choices of single steps of the decoder, which returns candidates."""
    found = GreedySteps([], [])
    for _ in range(steps):
        step = buffers.step(sentences, logits=False)
        found.tokens.append(step.candidate_ids[:, 0].tolist())
        found.log_probs.append(step.candidate_log_probs[:, 0].tolist())
        buffers.token_ids[:sentences] = step.candidate_ids[:, 0]
        buffers.positions[:sentences] += 1
    return found


def beam_states(slots: int, capacity: int = 24) -> BeamStates:
    """Hypotheses before the first step, of which the first one of each sentence is live."""
    totals = np.full((slots, BEAM), -np.inf, np.float32)
    totals[:, 0] = 0
    tokens = np.zeros((slots, BEAM, capacity), np.int64)
    return BeamStates(np.tile(np.arange(BEAM), (slots, 1)), totals, tokens, tokens.astype(np.float32))


@dataclass
class Searching:
    """Buffers with a search."""

    buffers: CardBuffers
    states: BeamStates
    search: CardBeamSearch

    @classmethod
    def of(cls, runner: OnnxRunner, indices: Sequence[int]) -> Searching:
        buffers, states = begun(opened(runner, BEAM), encode(runner, SOURCES), indices), beam_states(4)
        return cls(buffers, states, buffers.beam_search(states))

    def snapshot(self) -> list[np.ndarray]:
        """What a step changes on the host."""
        states = self.states.rows, self.states.totals, self.states.tokens, self.states.log_probs
        changed = *states, self.buffers.token_ids, self.buffers.positions, self.buffers.bindings.table
        return [array.copy() for array in changed]


def equal(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


def batch_of(
    runner: OnnxRunner,
    sources: Sequence[tuple[int, ...]],
    tokens: Sequence[int],
    beam_size: int = 1,
    capacity: int = 24,
) -> GreedyBatch | BeamBatch:
    """A running batch of sources, each with the most tokens of its translation."""
    shape = BatchShape(4, beam_size, 32, capacity)
    batch = (GreedyBatch if beam_size == 1 else BeamBatch)(runner.open(shape), shape)
    admit(batch, runner, sources, tokens)
    return batch


def admit(
    batch: GreedyBatch | BeamBatch, runner: OnnxRunner, sources: Sequence[tuple[int, ...]], tokens: Sequence[int]
) -> None:
    """Let sources of one encoder run join a batch."""
    encoded = encode(runner, list(sources))
    for index, (source, most) in enumerate(zip(sources, tokens, strict=True)):
        options = Options(max_output_tokens=most, beam_size=batch.beam_size)
        batch.admit(DecodeJob(source_ids=source, options=options, on_done=lambda outcome: None), encoded, index)


def finished(batch: GreedyBatch | BeamBatch) -> dict[tuple[int, ...], Any]:
    """The outcomes of a batch by source."""
    found: dict[tuple[int, ...], Any] = {}
    while len(batch):
        batch.compact()
        found |= {job.source_ids: outcome for job, outcome in batch.step()}
    return found


# What the host computes of an encoder run.


def test_packed_sources_have_no_padding_and_tiles_of_sixteen_queries() -> None:
    lengths = np.array([5, 33, 16, 1])
    ids = np.full((4, 40), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = 100 * row + np.arange(length)
    found = pack(ids, lengths)
    rows = [(row, position) for row, length in enumerate(lengths) for position in range(length)]
    assert found[names.SOURCE_IDS].tolist() == [100 * row + position for row, position in rows]
    assert found[names.SOURCE_POSITIONS].tolist() == [position for _, position in rows]
    tiles = [[0, 5, 0, 5], [5, 16, 5, 33], [21, 16, 5, 33], [37, 1, 5, 33], [38, 16, 38, 16], [54, 1, 54, 1]]
    assert found[names.SOURCE_TILES].tolist() == tiles
    assert {name: array.dtype.name for name, array in found.items()} == {
        names.SOURCE_IDS: "int64",
        names.SOURCE_POSITIONS: "int64",
        names.SOURCE_TILES: "int32",
    }


def test_memory_goes_to_the_slots_of_its_sentences() -> None:
    found = memory_targets(np.array([2, 3, 1]), slots=[7, 4], indices=[1, 0])
    assert found.tolist() == [[2, 7, 0, 0], [3, 7, 1, 0], [4, 7, 2, 0], [0, 4, 0, 0], [1, 4, 1, 0]]
    assert found.dtype == np.int32


# Translations, and the bits of a sentence.


@pytest.mark.parametrize(
    ("beam_size", "layers", "norm"), [(1, 2, "pre"), (4, 1, "pre"), (1, 2, "post"), (4, 1, "post")]
)
def test_translations_are_those_of_exact_arithmetic_but_for_near_ties(beam_size: int, layers: int, norm: str) -> None:
    settings = dict(decoder_layers=layers, norm=norm)
    runners = card_runner(**settings), exact_runner(**settings)
    found, exact = (finished(batch_of(runner, SOURCES[:2], [8, 8], beam_size)) for runner in runners)
    for source in SOURCES[:2]:
        mine, theirs = found[source][0], exact[source][0]
        assert mine.tokens == theirs.tokens or abs(mine.score - theirs.score) < NEAR_TIE
        assert mine.score == pytest.approx(theirs.score, abs=NEAR_TIE)


def test_a_sentence_has_the_same_bits_alone_in_company_and_in_a_wider_memory() -> None:
    runner = card_runner()
    together = greedy(begun(opened(runner), encode(runner, SOURCES, padding=7), [0, 1, 2]), 3, 5)
    for index, width in ((0, 32), (2, 64)):
        alone = begun(opened(runner, slots=1, width=width), encode(runner, [SOURCES[index]]), [0])
        tokens, log_probs = greedy(alone, 1, 5)
        assert [row[0] for row in tokens] == [row[index] for row in together.tokens]
        assert [row[0] for row in log_probs] == [row[index] for row in together.log_probs]


def test_nan_in_cells_that_no_step_may_read_changes_nothing() -> None:
    runner = card_runner()
    encoded = encode(runner, SOURCES)
    expected = greedy(begun(opened(runner), encoded, [0, 1, 2]), 3, 3)
    buffers = opened(runner)
    for slot in range(4):
        buffers.invalidate(slot)
    assert greedy(begun(buffers, encoded, [0, 1, 2]), 3, 3) == expected


def test_nan_and_tables_of_sentences_that_are_gone_change_no_beam() -> None:
    one, other = Searching.of(card_runner(), [0]), Searching.of(card_runner(), [0])
    for slot in range(4):
        other.buffers.invalidate(slot)
    other.buffers.place(0, encode(card_runner(), SOURCES), 0)
    for each in (one, other):
        list(each.search.several(1))
    mine, theirs = one.snapshot(), other.snapshot()
    assert equal(mine[:-1], theirs[:-1])
    assert np.array_equal(mine[-1][:BEAM], theirs[-1][:BEAM])


# Several steps in one run.


def test_several_greedy_steps_are_as_many_single_ones() -> None:
    runner = card_runner()
    encoded = encode(runner, SOURCES)
    expected = single(begun(opened(runner), encoded, [0, 1]), 2, 11)
    buffers = begun(opened(runner), encoded, [0, 1])
    assert greedy(buffers, 2, 8, 2, 1) == expected
    assert buffers.token_ids[:2].tolist() == expected.tokens[-1]
    assert buffers.positions[:2].tolist() == [11] * 2


def test_several_steps_of_beams_are_as_many_single_ones_on_the_host_and_on_the_device() -> None:
    runner = card_runner()
    one, other = Searching.of(runner, [0, 1]), Searching.of(runner, [0, 1])
    for _ in range(2):
        snapshots = []
        for _ in range(4):
            one.buffers.step(2, logits=False)
            one.search.advance(2)
            snapshots.append(one.snapshot())
        ended = []
        for expected, _ in zip(snapshots, other.search.several(2), strict=True):
            ended.append(equal(expected, other.snapshot()))
        assert ended == [True] * 4
        on_device = other.buffers.bindings._tokens.read()
        assert np.array_equal(on_device[names.BEAM_ROWS][:2], other.states.rows[:2])
        assert np.array_equal(on_device[names.BEAM_TOTALS][:2], other.states.totals[:2])
        assert np.array_equal(on_device[names.BEAM_TABLE][: 2 * BEAM], other.buffers.bindings.table[: 2 * BEAM])
    assert len(np.unique(other.states.rows[:2], axis=0)) > 1  # ranks have changed
    assert other.buffers.bindings.table.any()


def test_a_change_of_rank_copies_nothing_of_a_past() -> None:
    runner = card_runner()
    graphs = runner.state_graphs
    assert isinstance(graphs, CardGraphs)
    shape = BatchShape(3, BEAM, 32, 24)
    forbidden: Any = None  # a run of it fails
    buffers = replace(graphs, copy_rows_session=forbidden, copy_memory_session=forbidden).open(
        graphs.allocate(runner.decoder.all_cores, shape, runner.device, GraphRecorder())
    )
    batch = BeamBatch(buffers, shape)
    admit(batch, runner, SOURCES[:1], [8])
    before = runner.device.copied_bytes
    batch.step()
    assert batch.steps == 4
    assert batch.copied_bytes == 0
    rows = 3 * BEAM
    up = rows * (8 + 8) + 8 + rows * (8 + 4) + rows * 24 * 4  # tokens, positions, an index; rows, totals; the table
    down = 4 * BEAM * 2 * BEAM * (8 + 4)  # of each step and row two candidates for each beam
    targets, lengths = len(SOURCES[0]) * 16, 3 * 8
    expected = up + down + targets + lengths
    assert expected <= runner.device.copied_bytes - before < expected + 5 * 64  # padding between arrays


def test_a_row_that_continues_the_past_of_another_one_reads_it_by_the_table() -> None:
    """As the host does for sentences with rules or a prefix."""
    runner = card_runner()
    buffers = begun(opened(runner, 2, slots=1), encode(runner, SOURCES), [0])
    for position, tokens in enumerate(([5, 6], [7, 8], [9, 9])):
        buffers.token_ids[:], buffers.positions[:] = tokens, position
        found = buffers.step(1, logits=False)
        if position == 0:
            assert not np.array_equal(found.candidate_log_probs[0], found.candidate_log_probs[1])
        if position == 1:
            assert buffers.copy_rows(np.array([0]), np.array([1]), np.array([2])) == 2 * 4
    assert np.array_equal(found.candidate_log_probs[0], found.candidate_log_probs[1])


def test_no_steps_of_beams_go_beyond_the_capacity_of_the_caches() -> None:
    runner, source = card_runner(), random_sources(5, longest=4)[1]
    batch, steps = batch_of(runner, [source], [6], 2, capacity=6), []
    while len(batch):
        batch.step()
        steps.append(batch.steps)
    assert steps == [4, 1, 1]


# Batches that change.


@pytest.mark.parametrize("beam_size", [1, 2])
def test_sentences_that_join_leave_and_move_are_translated_as_alone(beam_size: int) -> None:
    runner, drawn = card_runner(), random_sources(5, longest=4)
    sources, tokens = [drawn[0], drawn[1], drawn[3]], [8, 10, 8]  # the second translation alone is a long one
    batch = batch_of(runner, sources[:2], tokens[:2], beam_size)
    found: dict[tuple[int, ...], Any] = {}
    while not found:
        found |= {job.source_ids: outcome for job, outcome in batch.step()}
    assert list(found) == sources[:1]  # the other one moves to its slot, and the third one joins
    batch.compact()
    admit(batch, runner, sources[2:], tokens[2:])
    found |= finished(batch)
    for source, most in zip(sources[1:], tokens[1:], strict=True):
        assert finished(batch_of(runner, [source], [most], beam_size)) == {source: found[source]}


def test_moved_sentences_continue_in_their_new_slots() -> None:
    runner = card_runner()
    searching, whole = Searching.of(runner, [0, 1]), Searching.of(runner, [1])
    buffers, states = searching.buffers, searching.states
    list(searching.search.several(2))
    buffers.move(1, 0, 4)
    for array in (states.rows, states.totals, states.tokens, states.log_probs):
        array[0] = array[1]
    for per_row in (buffers.token_ids, buffers.positions):
        per_row[:BEAM] = per_row[BEAM : 2 * BEAM]
    list(searching.search.several(1))
    for _ in range(2):
        list(whole.search.several(1))
    for mine, theirs in zip(searching.snapshot(), whole.snapshot(), strict=True):
        count = BEAM if len(mine) == 4 * BEAM else 1  # of rows, or of slots
        assert np.array_equal(mine[:count], theirs[:count])


@pytest.mark.parametrize("beam_size", [1, 2])
def test_nan_ends_its_own_sentence_and_no_other_one(beam_size: int) -> None:
    runner, outcomes = card_runner(), []
    for poisoned in (False, True):
        batch = batch_of(runner, SOURCES, [4] * 3, beam_size)
        if poisoned:
            buffers: Any = batch._buffers
            buffers.invalidate(1)
            buffers.bindings.table[:] = 0  # its NaN are read
        found = finished(batch)
        outcomes.append([found[source] for source in SOURCES])
    clean, with_nan = outcomes
    assert isinstance(with_nan[1], EngineFault)
    assert [with_nan[0], with_nan[2]] == [clean[0], clean[2]]


# The check of a bundle when it is loaded.


def test_graphs_that_agree_with_the_manifest_pass_the_check_of_a_server(tmp_path: Path) -> None:
    bundle = card_bundle(tmp_path, max_positions=24)
    check_bundle(bundle, FP16_NATIVE, load_card(bundle))


@pytest.mark.parametrize(
    ("graph", "name", "other"),
    [(names.BEAM_STEPS, b"beam_totals", b"beam_tot_ls"), (names.PLACE, b"memory_targets", b"memory_t_rgets")],
)
def test_a_graph_with_another_input_is_refused_by_name(tmp_path: Path, graph: str, name: bytes, other: bytes) -> None:
    bundle = card_bundle(tmp_path)
    path = bundle.folder / FP16_NATIVE / graph
    path.write_bytes(path.read_bytes().replace(name, other))
    sign(bundle.folder)
    changed = open_bundle(bundle.folder)
    with pytest.raises(BundleError, match=f"{graph}: has (an|no) input {other.decode()}|has no input {name.decode()}"):
        check_bundle(changed, FP16_NATIVE, load_card(changed))


# Recorded runs.


@pytest.fixture
def recording() -> OnnxRunner:
    """A runner whose runs are recorded, by sessions that compute a graph as often as a recording does."""
    plain = card_runner()
    graphs = plain.state_graphs
    assert isinstance(graphs, CardGraphs)
    recorded: dict[str, Any] = {
        name: RecordingSession(getattr(graphs, name))
        for name in ("greedy", "several_greedy", "several_beams", "copy_rows_session")
    }
    pair: Any = plain.decoder.around(RecordingSession(plain.decoder.all_cores))
    return replace(
        plain, decoder=pair, state_graphs=replace(graphs, **recorded), recorder=GraphRecorder(enabled=True), unused=[]
    )


def test_recorded_steps_give_the_choices_of_others(recording: OnnxRunner) -> None:
    plain = card_runner()
    encoded = encode(plain, SOURCES)
    expected = greedy(begun(opened(plain, capacity=18), encoded, [0]), 1, 8, 8, 2)
    assert greedy(begun(opened(recording, capacity=18), encoded, [0]), 1, 8, 8, 2) == expected
    graphs: Any = recording.state_graphs
    assert [replays for *_, replays in graphs.several_greedy.graphs.values()] == [1]
    assert [replays for *_, replays in graphs.greedy.graphs.values()] == [2]


def test_recorded_steps_of_beams_give_the_hypotheses_of_others(recording: OnnxRunner) -> None:
    one, other = Searching.of(card_runner(), [0]), Searching.of(recording, [0])
    for _ in range(2):
        list(one.search.several(1))
        list(other.search.several(1))
        assert equal(one.snapshot(), other.snapshot())
    graphs: Any = recording.state_graphs
    assert [replays for *_, replays in graphs.several_beams.graphs.values()] == [2]
