"""The width of the buffers of a batch, and what batches have in common."""

from __future__ import annotations

import onnxruntime as ort
import pytest

from lingon.bundle import Manifest
from lingon.serving.runtime.on_host.buffers import Layout
from lingon.serving.runtime.runner import BatchShape, width_for
from tests.support.random_models import random_runner


@pytest.mark.parametrize(("length", "width"), [(1, 32), (32, 32), (33, 64), (64, 64), (65, 128)])
def test_the_width_is_the_next_power_of_two(length: int, width: int) -> None:
    assert width_for(length) == width


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_graph_is_looked_at_once_for_all_batches(beam_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, read = random_runner(seed=beam_size), list[object]()
    of = Layout.of

    def counted(manifest: Manifest, graph: ort.InferenceSession) -> Layout:
        read.append(graph)
        return of(manifest, graph)

    monkeypatch.setattr(Layout, "of", counted)
    for sentences in (1, 4, 1):
        assert runner.open(BatchShape(sentences, beam_size, 32, 10)).nbytes > 0
    assert read == [runner.decoder.all_cores]
