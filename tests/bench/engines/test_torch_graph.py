"""The bare PyTorch loop computes what the model computes, and finds the tokens that Lingon finds."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import pytest
import torch

import lingon.bench.engines.torch_graph.engine as torch_graph
from lingon.bench.engines import lingon as lingon_engine
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.workloads.output_statistics import outputs
from lingon.bench.workloads.random_weights import Shape
from lingon.bench.workloads.synthetic import forced_workloads
from lingon.bench.workloads.workload import Workload
from lingon.errors import SettingsError
from lingon.serving.runtime.device import CPU
from lingon.text import EOS
from lingon.training.models.interface import FORBIDDEN_LOGIT
from lingon.training.models.transformer import Transformer
from tests.support.random_models import random_model, random_sources, written_bundle

LOOP_SHAPES = {
    "as in the paper": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "nothing tied, learned positions, silu": {"tie": "none", "positions": "learned", "activation": "silu"},
}
STEPS = 9


@functools.cache
def endless_model(shape: str) -> Transformer:
    """A model that never prefers the end token."""
    model = copy.deepcopy(random_model(**LOOP_SHAPES[shape]))
    model.forbidden[EOS] = FORBIDDEN_LOGIT
    return model


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> list[Workload]:
    """A tiny model whose outputs vary, with 16 sources of one length and 32 of mixed lengths."""
    shape = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)
    return forced_workloads(tmp_path_factory.mktemp("cache"), "tiny", shape, CPU, sentences=16)


def cell_of(workload: Workload, beam_size: int) -> Cell:
    return Cell(
        workload=workload.name,
        batch=8,
        beam_size=beam_size,
        exact_length=workload.exact_length,
        target_ratio=workload.target_ratio,
    )


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("shape", LOOP_SHAPES)
def test_the_loop_finds_the_tokens_of_a_search_with_the_model(tmp_path: Path, shape: str, beam_size: int):
    model, sources = endless_model(shape), random_sources(16)
    expected = outputs(model, sources, beam_size, STEPS).tokens.tolist()
    engine = torch_graph.load(written_bundle(model, tmp_path).folder, Setting(threads=1))
    cell = Cell(workload="base", batch=4, beam_size=beam_size, exact_length=STEPS)
    assert engine.translate(sources, cell) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("mixed", [False, True], ids=["one length", "mixed lengths"])
def test_the_loop_finds_the_tokens_of_lingon(workloads: list[Workload], mixed: bool, beam_size: int):
    workload = workloads[mixed]
    theirs, ours = (
        module.load(workload.bundle, Setting(threads=1)).translate(workload.sources, cell_of(workload, beam_size))
        for module in (torch_graph, lingon_engine)
    )
    assert theirs == ours
    assert len({tuple(tokens) for tokens in ours}) == len(ours)


def test_a_second_search_of_the_same_shape_begins_afresh(workloads: list[Workload]):
    engine = torch_graph.load(workloads[0].bundle, Setting(threads=1))
    cell, sources = cell_of(workloads[0], 4), workloads[0].sources
    first, second = sources[:8], sources[8:]
    engine.translate(second, cell)
    assert engine.translate(first, cell) == engine.translate(sources, cell)[:8]


def test_outputs_without_a_given_length_are_refused(workloads: list[Workload]):
    engine = torch_graph.load(workloads[0].bundle, Setting(threads=1))
    with pytest.raises(SettingsError, match="torch-graph decodes only outputs whose lengths are given"):
        engine.translate(workloads[0].sources, Cell(workload="base", batch=8))


@pytest.mark.gpu
@pytest.mark.parametrize("beam_size", [1, 4])
def test_captured_steps_on_the_gpu_find_nearly_the_tokens_of_the_cpu(workloads: list[Workload], beam_size: int):
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    cell, sources = cell_of(workloads[1], beam_size), workloads[1].sources
    here, there = (
        torch_graph.load(workloads[1].bundle, setting).translate(sources, cell)
        for setting in (Setting(threads=1), Setting(precision="fp16", threads=1, device="cuda"))
    )
    assert sum(mine == theirs for mine, theirs in zip(here, there, strict=True)) >= 0.8 * len(sources)
