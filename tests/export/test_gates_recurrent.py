"""The gates refuse graphs of recurrent systems and of variants of the Transformer whose exporter has one mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from lingon.bundle.manifest import Precision
from lingon.bundle.store import write_bundle
from lingon.errors import ParityError
from lingon.export.gates_checkpoint import check_attention, check_tensors
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from tests.support.mutants import RECURRENT_MUTANTS, Mutant
from tests.support.random_models import manifest_of, recurrent_grid, recurrent_model

CASES = [
    pytest.param(name, mutant, id=f"{name}: {mutant.name}")
    for name, mutants in RECURRENT_MUTANTS.items()
    for mutant in mutants
]


@cache
def built(name: str) -> tuple[dict[str, bytes], dict[str, bytes], tuple[str, ...]]:
    """The graph files of a system by name, its weight files, and their names."""
    weights = WeightFiles()
    found = build(recurrent_model(name), "fp32", weights, [], shortlist=False)
    graphs = {path.removeprefix("fp32/"): content for path, content in found.graphs.items()}
    return graphs, weight_files(weights), found.reads


def mutated_runner(name: str, mutant: Mutant, folder: Path) -> OnnxRunner:
    graphs, weights, reads = built(name)
    files = {f"fp32/{file}": content for file, content in mutant.apply(graphs).items()}
    manifest = replace(manifest_of(recurrent_model(name)), precisions={"fp32": Precision(CPU, "being run", reads)})
    return load_runner(write_bundle(folder / "1", manifest, {**files, **weights}), "fp32", threads=1)


@pytest.mark.parametrize(("name", "mutant"), CASES)
def test_the_gates_refuse_a_mutant(name: str, mutant: Mutant, tmp_path: Path) -> None:
    runner, grid = mutated_runner(name, mutant, tmp_path), recurrent_grid(name)
    gates: dict[str, Callable[..., object]] = {"tensors": check_tensors, "attention": check_attention}
    for gate in mutant.gates:
        with pytest.raises(ParityError):
            gates[gate](runner, "fp32", grid)
