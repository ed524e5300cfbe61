"""Servers with failpoints decode real graphs by the loops that ship."""

from __future__ import annotations

import numpy as np
import pytest

from lingon.serving.decoding.job import Options
from lingon.serving.runtime.failpoints import Failpoint, Failpoints, FaultyRunner
from lingon.serving.runtime.runner import BatchShape, BeamBuffers, BeamStates, GreedyBuffers
from tests.support.engine_harness import running_engine
from tests.support.random_models import random_runner, random_sources


@pytest.mark.parametrize("beam_size", [1, 4])
def test_buffers_with_failpoints_decode_by_the_loop_that_ships(beam_size: int) -> None:
    shape = BatchShape(2, beam_size, 32, 40)
    states = BeamStates(*np.zeros((2, 2, beam_size), np.int64), *np.zeros((2, 2, beam_size, 40), np.float32))
    found = []
    for runner in (random_runner(), FaultyRunner(random_runner(), Failpoints.parse("encode=sleep:0"))):
        buffers = runner.open(shape)
        assert isinstance(buffers, GreedyBuffers)
        steps = buffers.most_steps
        assert isinstance(buffers, BeamBuffers)
        found.append((steps, type(buffers.beam_search(states))))
    assert found[0] == found[1]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_each_step_of_a_real_model_passes_the_failpoint(beam_size: int) -> None:
    sources = random_sources(3, longest=5)
    options = [Options(beam_size=beam_size) for _ in sources]
    with running_engine(random_runner()) as harness:
        expected = harness.translate(sources, options)
    longest = max(len(found[0].tokens) for found in expected)
    point = Failpoint("step", "sleep")
    with running_engine(FaultyRunner(random_runner(), Failpoints([point]))) as harness:
        assert harness.translate(sources, options) == expected
    assert point.passes >= longest
