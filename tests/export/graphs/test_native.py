"""Graphs of our own operators compute what the model computes, for every setting of a Transformer."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from lingon.bundle import names
from lingon.errors import ParityError
from lingon.export import gates_checkpoint
from lingon.export.gates_checkpoint import check_attention, check_tensors, draw_grid
from lingon.export.graphs.native import NativeTransformerGraphs
from lingon.export.graphs.onnx_writer import KERNELS, WeightFiles
from lingon.export.graphs.precisions import build
from lingon.export.graphs.quantisation import disturb
from lingon.serving.runtime.device import FP32_NATIVE, NATIVE, NATIVES
from tests.support.random_models import limits_of, random_grid, random_model, random_pairs, random_runner, runner_of

pytestmark = pytest.mark.native
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "silu"},
    {"norm_kind": "rms", "norm": "pre", "bias": False, "gated": True, "activation": "gelu-tanh"},
    {"positions": "rotary", "norm": "pre"},
    {"positions": "relative", "relative_buckets": 8, "relative_distance": 5},
    {"score": "additive", "head_dim": 24, "bias": False},
    {"encoder_attention": "linear", "head_dim": 24, "positions": "learned", "embedding_norm": True},
    {"encoder_window": 3, "tie": "none"},
    {"decoder_cell": "ssru"},
    {"decoder_cell": "ssru", "dim": 60, "heads": 3, "ffn": 90, "norm": "pre", "activation": "gelu"},
    {"norm": "pre", "query_norm": True},
    {"norm": "both", "query_norm": True, "head_dim": 24, "bias": False},
    {"norm": "both", "query_norm": True, "decoder_cell": "ssru"},
    {"norm": "sandwich", "output_softcap": 3.0, "output_bias": True},
    {"norm": "sandwich", "norm_kind": "rms", "attention_softcap": 2.0, "encoder_window": 3, "full_attention_every": 2},
    {"decoder_window": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("precision", NATIVES)
def test_native_graphs_compute_the_outputs_of_the_model(options: dict[str, Any], precision: str) -> None:
    runner, grid = random_runner(precision=precision, **options), random_grid(**options)
    assert check_tensors(runner, precision, grid).step_difference > 0
    check_attention(runner, precision, grid)


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[2]], ids=str)
def test_native_graphs_compute_what_their_emulation_computes(options: dict[str, Any]) -> None:
    model = random_model(**options)
    emulation = build(model, NATIVE, WeightFiles(), random_pairs(8), shortlist=False).emulation
    assert emulation is not None
    emulated = draw_grid(emulation(), limits_of(model))
    found = check_tensors(random_runner(precision=NATIVE, **options), NATIVE, random_grid(**options), emulated)
    assert found.exact_rows is not None
    assert found.exact_rows > 0.9


def test_graphs_without_exact_rows_may_differ_from_their_emulation_by_what_rounding_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of a deep and wide model do, in which some value of every row is near the middle of two steps."""
    monkeypatch.setattr(gates_checkpoint, "EXACT_ROWS", 1.1)
    model, grid = random_model(), random_grid()
    emulation = build(model, NATIVE, WeightFiles(), random_pairs(8), shortlist=False).emulation
    assert emulation is not None
    emulated, disturbed = (draw_grid(each, limits_of(model)) for each in (emulation(), disturb(emulation())))
    found = check_tensors(random_runner(precision=NATIVE), NATIVE, grid, emulated, disturbed=disturbed.copy)
    assert found.of_disturbance is not None
    assert 0 < found.of_disturbance < 1
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.decoder[0].cross.output.weight *= 1.2
    for runner, other in ((runner_of(wrong, NATIVE), disturbed), (random_runner(precision=NATIVE), emulated)):
        with pytest.raises(ParityError, match=r"more than the 1.1 times .* that errors of rounding make"):
            check_tensors(runner, NATIVE, grid, emulated, cost=math.inf, disturbed=other.copy)


def kinds_of(graph: bytes) -> dict[str, int]:
    """The nodes of a graph, by the name of the operator, with their number."""
    kinds = [node.op_type for node in onnx.load_model_from_string(graph).graph.node]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.parametrize(("quantised", "step"), [(True, "StepAttention"), (False, "StepAttention32")])
def test_norms_and_residuals_of_a_step_are_part_of_its_products(quantised: bool, step: str) -> None:
    graphs = NativeTransformerGraphs(random_model(norm="pre"), np.float32, WeightFiles(), quantised=quantised)
    found = kinds_of(graphs.decoder())
    layers = graphs.model.settings.decoder_layers
    assert found[step] == found["CrossAttention"] == layers
    assert "Add" not in found
    assert "LayerNormalization" not in found
    assert "Relu" not in found
    assert found["Candidates"] == 1


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_recurrent_cell_of_a_step_is_one_node_with_its_residual(quantised: bool, norm: str) -> None:
    model = random_model(norm=norm, decoder_cell="ssru")
    found = kinds_of(NativeTransformerGraphs(model, np.float32, WeightFiles(), quantised=quantised).decoder())
    assert found["StepCell"] == model.settings.decoder_layers
    assert not found.keys() & {"Split", "Sigmoid", "Sub", "Mul", "Relu", "Add"}


def test_native_graphs_of_floats_read_the_weights_of_other_graphs_of_floats() -> None:
    model, weights = random_model(), WeightFiles()
    reads = build(model, "fp32", weights, [], shortlist=True).reads
    size = sum(map(len, map(bytes, weights.contents().values())))
    assert build(model, FP32_NATIVE, weights, [], shortlist=True).reads == reads
    assert sum(map(len, map(bytes, weights.contents().values()))) == size


@pytest.mark.parametrize("size", [60, 64])
@pytest.mark.parametrize("kind", ["GatherColumns", "FloatGatherColumns"])
def test_the_declared_rows_of_the_output_layer_are_those_that_are_gathered(size: int, kind: str) -> None:
    model, quantised = random_model(dim=size, heads=2, head_dim=32), kind == "GatherColumns"
    graphs = NativeTransformerGraphs(model, np.float32, WeightFiles(), quantised=quantised)
    written = onnx.load_model_from_string(graphs.output_rows())
    assert {node.domain for node in written.graph.node if node.op_type == kind} == {KERNELS}
    assert "Gemm" not in kinds_of(graphs.decoder_shortlist())
    read = {each.name: each for each in onnx.load_model_from_string(graphs.decoder_shortlist()).graph.input}
    panels = read["output.0"].type.tensor_type.shape.dim[1].dim_value
    assert panels == (-(-size // 8) * 8 if quantised else size) * 16
    assert {each.name for each in written.graph.input} == {names.PIECE_IDS}
