"""The gates refuse every mutant of the exporter, in every precision, and accept the exporter itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lingon.export.pipeline
from lingon.bundle.manifest import Manifest, Precision
from lingon.bundle.names import SHORTLIST
from lingon.bundle.store import write_bundle
from lingon.errors import ParityError
from lingon.export.differences import LOG_PROBS, Tolerance
from lingon.export.gates_checkpoint import (
    CaseReference,
    check_attention,
    check_tensors,
    cost_of_emulation,
    draw_grid,
)
from lingon.export.gates_text import check_scores, check_shortlist_steps
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import BuiltGraphs, build, weight_files
from lingon.export.graphs.transformer import states
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, UNK
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from tests.support.mutants import ALL, MUTANTS, Mutant
from tests.support.random_models import accept_any_quality, manifest_of

DIM = VOCAB = 64  # equal, so that the transposed output layer has the same shape
CASES = [
    pytest.param(mutant, precision, id=f"{precision}: {mutant.name}")
    for mutant in MUTANTS
    for precision in mutant.precisions
]


@cache
def model() -> Transformer:
    """A model whose heads attend to few tokens, each to others, as those of trained models do."""
    torch.manual_seed(2)
    sizes = {"dim": DIM, "heads": 4, "ffn": 96, "encoder_layers": 2, "decoder_layers": 3}
    made = Transformer(
        TransformerSettings.model_validate({"preset": "tiny", "norm": "pre", "max_positions": 40, **sizes}),
        VOCAB,
        VOCAB,
    ).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for layer in (*made.encoder, *made.decoder):
            layer.attention.qkv.weight[: 2 * DIM] *= 2
        for decoder_layer in made.decoder:
            decoder_layer.cross.query.weight *= 4
        made.output.weight[EOS] *= 1.5
    return made


@cache
def sources(count: int = 24) -> list[tuple[int, ...]]:
    random = np.random.default_rng(0)
    return [(*random.integers(UNK + 1, VOCAB, length).tolist(), EOS) for length in random.integers(1, 19, count)]


@cache
def grid() -> list[CaseReference]:
    return draw_grid(model(), manifest().limits)


@cache
def calibration() -> list[tuple[list[int], list[int]]]:
    return [(list(source), list(source[:-1])) for source in sources()]


@cache
def emulated_grid() -> list[CaseReference]:
    emulation = build(model(), "int8", WeightFiles(), calibration(), shortlist=False).emulation
    assert emulation is not None
    return draw_grid(emulation(), manifest().limits)


@cache
def cost() -> float:
    return cost_of_emulation(grid(), emulated_grid())


@cache
def manifest() -> Manifest:
    return replace(manifest_of(model()), source_vocab=VOCAB, target_vocab=VOCAB, states=states(model()))


@cache
def built(precision: str) -> tuple[dict[str, bytes], dict[str, bytes], tuple[str, ...]]:
    """The graph files of a precision by name, its weight files, and their names."""
    weights = WeightFiles()
    found = build(model(), precision, weights, calibration(), shortlist=True, alignment=manifest().alignment)
    graphs = {path.removeprefix(f"{precision}/"): content for path, content in found.graphs.items()}
    return graphs, weight_files(weights), found.reads


def runner_of(precision: str, folder: Path, mutant: Mutant | None = None) -> OnnxRunner:
    graphs, weights, reads = built(precision)
    graphs = mutant.apply(graphs) if mutant else graphs
    files = {f"{precision}/{name}": content for name, content in graphs.items()}
    made = replace(manifest(), precisions={precision: Precision(CPU, "being run", reads)})
    always = np.arange(UNK + 1, 10, dtype=np.int32)
    offsets = np.arange(0, 3 * VOCAB + 1, 3, dtype=np.int32)
    pieces = np.random.default_rng(0).integers(UNK + 1, VOCAB, 3 * VOCAB).astype(np.int32)
    shortlist = Shortlist(np.append(EOS, always).astype(np.int32), offsets, pieces).to_bytes()
    return load_runner(
        write_bundle(folder / "1", made, {**files, **weights, SHORTLIST: shortlist}), precision, threads=1
    )


def run_gate(gate: str, runner: OnnxRunner, precision: str) -> None:
    gates: dict[str, Callable[[], object]] = {
        "tensors": lambda: check_tensors(runner, precision, grid(), cost=cost() if precision == "int8" else 0.0),
        "emulation": lambda: check_tensors(runner, precision, grid(), emulated_grid(), cost=math.inf),
        "attention": lambda: check_attention(runner, precision, grid()),
        "scores": lambda: [check_scores(runner, sources(), *search, precision) for search in ((1, 0.0), (4, 1.0))],
        "shortlist": lambda: check_shortlist_steps(runner, sources(), precision),
    }
    gates[gate]()


@pytest.mark.parametrize("precision", ALL)
def test_the_gates_accept_the_exporter(precision: str, tmp_path: Path) -> None:
    runner = runner_of(precision, tmp_path)
    more = {"fp32": ["shortlist"], "fp32-cuda": [], "fp16": [], "int8": ["shortlist", "emulation"]}[precision]
    for gate in ("tensors", "attention", "scores", *more):
        run_gate(gate, runner, precision)


def test_8_bit_graphs_may_differ_by_what_their_arithmetic_costs_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do where a model is so sure that small changes of its logits exceed any bound for all models."""
    runner = runner_of("int8", tmp_path)
    monkeypatch.setitem(LOG_PROBS, "int8", Tolerance(mean=cost() / 100))
    with pytest.raises(ParityError, match="log-probabilities of steps differ"):
        check_tensors(runner, "int8", grid())
    with pytest.raises(ParityError, match="log-probabilities of steps differ"):
        check_tensors(runner, "int8", grid(), cost=cost() / 2)
    assert check_tensors(runner, "int8", grid(), emulated_grid()).step_mean > cost() / 2


@pytest.mark.parametrize(("mutant", "precision"), CASES)
def test_the_gates_refuse_a_mutant(mutant: Mutant, precision: str, tmp_path: Path) -> None:
    runner = runner_of(precision, tmp_path, mutant)
    for gate in mutant.gates:
        with pytest.raises(ParityError):
            run_gate(gate, runner, precision)


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [
        ("cross-attention layers reversed", "fp32", r"fp32: cross attention of layer \d, head \d differs by"),
        ("causal mask turned round", "int8", "int8: log-probabilities of the scorer differ by"),
        ("cache of another layer", "int8", "int8: beam size 1: Score and search differ by"),
    ],
)
def test_an_export_with_a_mistake_in_one_precision_publishes_nothing(
    checkpoint: Checkpoint,
    pairs: list[Pair],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    precision: str,
    message: str,
) -> None:
    """The first two passed every gate as long as no gate looked at attention or at the scorer of int8."""
    (mutant,) = (each for each in MUTANTS if each.name == name)

    def build_mutant(model: Transformer, kind: str, *rest: Any, **options: Any) -> BuiltGraphs:
        made = build(model, kind, *rest, **options)
        graphs = {path.removeprefix(f"{kind}/"): content for path, content in made.graphs.items()}
        mutated = mutant.apply(graphs) if kind == precision else graphs
        return replace(made, graphs={f"{kind}/{file}": content for file, content in mutated.items()})

    monkeypatch.setattr(lingon.export.pipeline, "build", build_mutant)
    accept_any_quality(monkeypatch)
    settings = ExportSettings(precisions=("fp32", "int8"), shortlist=None, parity_sentences=10)
    with pytest.raises(ParityError, match=message):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:10], pairs[:50]), settings)
    assert not (tmp_path / "digits").exists()
