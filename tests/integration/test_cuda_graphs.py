"""Recorded decoder steps: which runs are recorded and replayed, with the rules of ONNX Runtime's CUDA graphs.

The sessions here run on the CPU, compute a graph as often as a recording does, and check what ONNX Runtime does not: a
replay has the binding and the thread of its recording.
"""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lingon.export.gates_text import engine_search
from lingon.serving.runtime import device_buffers
from lingon.serving.runtime.device_buffers import GraphRecorder
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from lingon.text import BOS
from tests.support.engine_harness import options_for, running_engine
from tests.support.random_models import device_runner, encode, random_runner, random_sources
from tests.support.recording_sessions import RecordingSession


@pytest.fixture
def recording() -> OnnxRunner:
    """The runner of random_model whose decoder steps are recorded."""
    plain = device_runner()
    assert plain.state_graphs is not None
    decoder = RecordingSession(plain.decoder.all_cores)
    graphs = replace(
        plain.state_graphs,
        greedy=RecordingSession(plain.state_graphs.greedy),
        copy_rows_session=RecordingSession(plain.state_graphs.copy_rows_session),
    )
    pair: Any = plain.decoder.around(decoder)
    return replace(plain, decoder=pair, state_graphs=graphs, recorder=GraphRecorder(enabled=True), unused=[])


def sessions(runner: OnnxRunner) -> list[Any]:
    assert runner.state_graphs is not None
    return [runner.decoder.all_cores, runner.state_graphs.greedy, runner.state_graphs.copy_rows_session]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_recorded_steps_give_the_translations_of_others(recording: OnnxRunner, beam_size: int) -> None:
    sources = random_sources(60)
    found = engine_search(recording, sources, beam_size, 0.6)
    assert found == engine_search(random_runner(), sources, beam_size, 0.6)
    assert sum(replays for each in sessions(recording) for _, _, replays in each.graphs.values()) > 30


def test_every_number_of_rows_is_recorded_once(recording: OnnxRunner) -> None:
    buffers, sources = recording.open(BatchShape(8, 2, 32, 32)), random_sources(8)
    encoded = encode(recording, sources)
    for slot in range(8):
        buffers.place(slot, encoded, slot)
    for position, sentences in enumerate((1, 5, 6, 7, 8, 3, 1, 8)):  # buckets of 1, 8, 4 sentences
        buffers.token_ids[:], buffers.positions[:] = BOS, position
        buffers.step(sentences, logits=False)
    decoder = sessions(recording)[0]
    assert [replays for _, _, replays in decoder.graphs.values()] == [1, 4, 0]
    assert decoder.eager == 0


def test_the_host_waits_for_the_last_of_several_greedy_steps_alone(recording: OnnxRunner) -> None:
    buffers = recording.open(BatchShape(2, 1, 32, 32))
    buffers.place(0, encode(recording, random_sources(1)), 0)
    buffers.greedy_steps(1, 4)
    greedy = sessions(recording)[1]
    assert greedy.waited == [True, False, False, False, True]  # the first one is the recording
    thread = threading.Thread(target=lambda: buffers.greedy_steps(1, 3))
    thread.start()
    thread.join()
    assert greedy.waited[5:] == [True] * 3  # eager runs may have streams of their own


def test_a_run_on_another_thread_is_eager(recording: OnnxRunner) -> None:
    buffers = recording.open(BatchShape(1, 1, 32, 32))
    buffers.place(0, encode(recording, random_sources(1)), 0)
    first = buffers.step(1, logits=False).candidate_ids.copy()
    found: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: found.append(buffers.step(1, logits=False).candidate_ids.copy()))
    thread.start()
    thread.join()
    decoder = sessions(recording)[0]
    assert (len(decoder.graphs), decoder.eager) == (1, 1)
    assert np.array_equal(found[0], first)


def test_the_states_of_a_batch_that_is_gone_serve_the_next_one_of_its_shape(recording: OnnxRunner) -> None:
    shape, sources = BatchShape(2, 1, 32, 32), random_sources(3)
    encoded, found = encode(recording, sources), []
    for slot_contents in ((0, 1), (2, 0), (2, 0)):
        buffers = recording.open(shape)
        for slot, index in enumerate(slot_contents):
            buffers.place(slot, encoded, index)
        buffers.token_ids[:], buffers.positions[:] = BOS, 0
        found.append(buffers.step(2, logits=False).candidate_log_probs.copy())
        del buffers
        gc.collect()
    assert np.array_equal(found[1], found[2])
    assert np.array_equal(found[0][0], found[1][1])
    assert len(sessions(recording)[0].graphs) == 1
    assert len(recording.unused) == 1


def test_batches_at_the_same_time_have_states_of_their_own(recording: OnnxRunner) -> None:
    one, other = recording.open(BatchShape(2, 1, 32, 32)), recording.open(BatchShape(2, 1, 32, 32))
    one.token_ids[:] = 7
    assert not (other.token_ids == 7).any()


def test_steps_beyond_the_last_position_are_not_recorded(recording: OnnxRunner) -> None:
    """A recording of greedy search computes several steps, which have no place at the end of the caches."""
    buffers: Any = recording.open(BatchShape(1, 1, 32, 16))
    buffers.place(0, encode(recording, random_sources(1)), 0)
    buffers.token_ids[:], buffers.positions[:] = BOS, 15
    buffers.greedy_steps(1, 1)
    greedy = sessions(recording)[1]
    assert (len(greedy.graphs), greedy.eager) == (0, 1)


def test_only_so_many_graphs_are_recorded(recording: OnnxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_buffers, "MOST_GRAPHS", 2)
    for width in (32, 64, 128):
        buffers = recording.open(BatchShape(1, 1, width, 32))
        buffers.place(0, encode(recording, random_sources(1)), 0)
        buffers.step(1, logits=False)
    decoder = sessions(recording)[0]
    assert (len(decoder.graphs), decoder.eager) == (2, 1)


def test_an_engine_records_on_the_thread_of_its_worker_and_after_a_restart_again(recording: OnnxRunner) -> None:
    sources = random_sources(12)
    options = [options_for(recording, source, beam_size=1 + 3 * (index % 2)) for index, source in enumerate(sources)]
    with running_engine(random_runner(), max_rows=16) as harness:
        expected = harness.translate(sources, options)
    recorded = []
    for _ in range(2):
        with running_engine(recording, max_rows=16) as harness:
            assert harness.translate(sources, options) == expected
        recorded.append(recording.recorder.recorded)
    assert recorded[0] < recorded[1]
