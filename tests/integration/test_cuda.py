"""The graphs and the engine on CUDA; skipped without a GPU."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle import Precision, write_bundle
from lingon.export.gates.attention import check_attention
from lingon.export.gates.decode import engine_search
from lingon.export.gates.scores import check_scores
from lingon.export.gates.tensors import check_tensors
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.serving.runtime.device import CUDA
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape
from tests.support.random_models import manifest_of, random_grid, random_model, random_runner, random_sources

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runner() -> OnnxRunner:
    return half_precision_runner()


def half_precision_runner(*, cuda_graphs: bool = False) -> OnnxRunner:
    """The graphs of random_model in half precision, on the card."""
    import onnxruntime

    onnxruntime.preload_dlls()
    weights = WeightFiles()
    built = build(random_model(), "fp16", weights, [], shortlist=False)
    manifest = replace(manifest_of(random_model()), precisions={"fp16": Precision(CUDA, "random", built.reads)})
    files = {**built.graphs, **weight_files(weights)}
    with tempfile.TemporaryDirectory() as folder:
        return load_runner(
            write_bundle(Path(folder) / "1", manifest, files), "fp16", threads=1, cuda_graphs=cuda_graphs
        )


def test_the_graphs_run_on_the_gpu(runner: OnnxRunner) -> None:
    for session in (runner.encoder.all_cores, runner.decoder.all_cores, runner.scorer):
        assert session.get_providers()[0] == CUDA


def test_half_precision_graphs_compute_nearly_the_values_of_the_model(runner: OnnxRunner) -> None:
    check_tensors(runner, "fp16", random_grid())
    check_attention(runner, "fp16", random_grid())
    for search in ((1, 0.0), (4, 1.0)):
        check_scores(runner, random_sources(50), *search, "fp16")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_most_translations_on_the_gpu_equal_those_on_the_cpu(runner: OnnxRunner, beam_size: int) -> None:
    sources = random_sources(100)
    here = engine_search(runner, sources, beam_size, 0.0)
    there = engine_search(random_runner(), sources, beam_size, 0.0)
    alike = sum(mine[0].tokens == theirs[0].tokens for mine, theirs in zip(here, there, strict=True))
    assert alike >= 80


@pytest.mark.parametrize("beam_size", [1, 4])
def test_recorded_steps_give_the_translations_of_others(runner: OnnxRunner, beam_size: int) -> None:
    recording, sources = half_precision_runner(cuda_graphs=True), random_sources(100)
    assert engine_search(recording, sources, beam_size, 0.0) == engine_search(runner, sources, beam_size, 0.0)
    assert recording.recorder.recorded > 2


def test_a_lack_of_memory_on_the_card_is_a_memory_error_and_leaves_the_model_usable(runner: OnnxRunner) -> None:
    with pytest.raises(MemoryError):
        runner.open(BatchShape(50_000_000, 4, 128, 128))
    assert engine_search(runner, random_sources(3), 1, 0.0)
