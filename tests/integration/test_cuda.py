"""The graphs and the engine on CUDA; skipped without a GPU."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lingon.bundle.manifest import Precision
from lingon.bundle.store import write_bundle
from lingon.export.gates_checkpoint import check_attention, check_tensors
from lingon.export.gates_text import ExactSearch, check_agreement, check_scores, engine_search
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.export.verification import verify_bundle
from lingon.serving.runtime.device import CUDA, FP32_ON_CUDA, choose_device
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape
from lingon.text import BOS
from tests.support import shipped_model
from tests.support.random_models import (
    STEPS,
    decode,
    encode,
    manifest_of,
    random_grid,
    random_model,
    random_runner,
    random_sources,
)

pytestmark = pytest.mark.gpu


KINDS = pytest.mark.parametrize("precision", ["fp16", FP32_ON_CUDA])
SEARCHES = ((1, 0.0), (4, 1.0))


@cache
def on_cuda(precision: str, *, cuda_graphs: bool = False) -> OnnxRunner:
    import onnxruntime

    onnxruntime.preload_dlls()
    weights = WeightFiles()
    built = build(random_model(), precision, weights, [], shortlist=False)
    manifest = replace(manifest_of(random_model()), precisions={precision: Precision(CUDA, "random", built.reads)})
    files = {**built.graphs, **weight_files(weights)}
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder) / "1", manifest, files)
        return load_runner(bundle, precision, threads=1, cuda_graphs=cuda_graphs)


@KINDS
def test_the_graphs_run_on_the_gpu(precision: str) -> None:
    runner = on_cuda(precision)
    for session in (runner.encoder.all_cores, runner.decoder.all_cores, runner.scorer):
        assert session.get_providers()[0] == CUDA


@KINDS
def test_graphs_compute_nearly_the_values_of_the_model(precision: str) -> None:
    """In fp32 within 1e-4, which products in TF32 would not reach."""
    runner = on_cuda(precision)
    check_tensors(runner, precision, random_grid())
    check_attention(runner, precision, random_grid())
    for search in SEARCHES:
        check_scores(runner, random_sources(50), *search, precision)


@pytest.mark.parametrize("search", SEARCHES)
def test_most_translations_in_half_precision_equal_those_on_the_cpu(search: tuple[int, float]) -> None:
    sources = random_sources(100)
    here, there = (engine_search(runner, sources, *search) for runner in (on_cuda("fp16"), random_runner()))
    alike = sum(mine[0].tokens == theirs[0].tokens for mine, theirs in zip(here, there, strict=True))
    assert alike >= 80


@pytest.mark.parametrize("search", SEARCHES)
def test_translations_in_fp32_equal_those_on_the_cpu(search: tuple[int, float]) -> None:
    sources, exact = random_sources(100), random_runner()
    found, there = (
        [best for best, *_ in engine_search(runner, sources, *search)] for runner in (on_cuda(FP32_ON_CUDA), exact)
    )
    check_agreement(FP32_ON_CUDA, found, ExactSearch(exact, sources, there, *search), exact=True)


@KINDS
def test_nan_in_caches_that_are_not_filled_yet_changes_nothing(precision: str) -> None:
    runner, sources = on_cuda(precision), random_sources(3)
    encoded = encode(runner, sources)
    expected = decode(runner, encoded, [0, 1, 2], 64)
    buffers = runner.open(BatchShape(3, 1, 64, 16))
    for slot in range(3):
        buffers.invalidate(slot)
        buffers.place(slot, encoded, slot)
    found = []
    for number in range(STEPS):
        buffers.token_ids[:], buffers.positions[:] = BOS if number == 0 else 5 + number, number
        found.append(buffers.step(3, logits=False).candidate_log_probs.copy())
    assert np.array_equal(np.stack(found), np.stack(expected))


def test_the_shipped_model_passes_its_verification_on_the_gpu() -> None:
    bundle = shipped_model.bundle()
    found = verify_bundle(bundle, choose_device(bundle, "cuda"), None, 100)
    assert found.failed == []


@KINDS
@pytest.mark.parametrize("search", SEARCHES)
def test_recorded_steps_give_the_translations_of_others(precision: str, search: tuple[int, float]) -> None:
    """In fp16 to the bit. The products in fp32 are not repeatable to the bit on the card, recorded or not."""
    recording, sources = on_cuda(precision, cuda_graphs=True), random_sources(100)
    found, expected = (engine_search(runner, sources, *search) for runner in (recording, on_cuda(precision)))
    assert recording.recorder.recorded > 2
    if precision == "fp16":
        assert found == expected
    for (mine, *_), (theirs, *_) in zip(found, expected, strict=True):
        assert mine.tokens == theirs.tokens
        assert mine.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)


def test_a_lack_of_memory_on_the_card_is_a_memory_error_and_leaves_the_model_usable() -> None:
    runner = on_cuda("fp16")
    with pytest.raises(MemoryError):
        runner.open(BatchShape(50_000_000, 4, 128, 128))
    assert engine_search(runner, random_sources(3), 1, 0.0)
