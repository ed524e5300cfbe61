"""The graphs compute what their model computes, for every option of the model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from lingon.bundle.names import (
    CROSS_ATTENTION,
    DECODER_ATTENTION,
    ENCODER_ATTENTION,
    LABELS,
    SOURCE_IDS,
    SOURCE_LENGTHS,
    TARGET_IDS,
    WEIGHTS,
    past_name,
    present_name,
)
from lingon.errors import ParityError
from lingon.export.gates_checkpoint import check_attention, check_tensors, draw_grid
from lingon.export.graphs.onnx_writer import IR_VERSION, OPSET, GraphBuilder, WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.export.graphs.transformer import TransformerGraphs, states
from lingon.training.models.transformer import Transformer
from tests.support.random_models import limits_of, random_grid, random_model, random_pairs, random_runner, runner_of

OPTIONS = [
    {},
    {"norm": "pre"},
    {"activation": "gelu"},
    {"activation": "silu", "norm": "pre"},
    {"positions": "learned"},
    {"tie": "decoder"},
    {"tie": "none", "positions": "learned"},
    {"encoder_layers": 3, "decoder_layers": 1},
    {"dim": 128, "heads": 2, "ffn": 96},
    {"activation": "quick-gelu", "norm_epsilon": 1e-2, "output_bias": True, "sinusoids": "halves"},
    {"head_dim": 24, "sinusoids": "inclusive-halves", "first_position": 2, "embedding_norm": True, "norm": "pre"},
    {"norm_kind": "rms", "norm": "pre", "bias": False, "gated": True, "activation": "gelu-tanh"},
    {"norm_kind": "rms", "norm": "pre", "bias": False, "gated": True, "positions": "relative", "head_dim": 24},
    {"positions": "relative", "relative_buckets": 8, "relative_distance": 5},
    {"norm_kind": "rms", "gated": True, "scale_embedding": False, "embedding_norm": True, "positions": "none"},
    {"score": "additive", "head_dim": 24, "bias": False},
    {"encoder_attention": "linear", "head_dim": 24, "positions": "learned", "embedding_norm": True},
    {"norm": "pre", "query_norm": True, "activation": "silu"},
    {"norm": "both", "query_norm": True, "final_norm": True, "norm_kind": "rms", "bias": False, "positions": "rotary"},
    {"norm": "both", "gated": True},
    {"norm": "sandwich", "attention_softcap": 2.0, "output_bias": True, "output_softcap": 3.0},
    {"decoder_window": 2, "attention_softcap": 2.0, "positions": "relative", "relative_distance": 20},
    {
        "norm": "sandwich",
        "norm_kind": "rms",
        "positions": "rotary",
        "encoder_window": 3,
        "decoder_window": 2,
        "full_attention_every": 2,
        "attention_softcap": 2.0,
        "output_softcap": 3.0,
        "gated": True,
        "bias": False,
        "tie": "decoder",
    },
]


def files_of(model: Transformer, *precisions: str) -> dict[str, bytes]:
    weights, graphs = WeightFiles(), {}
    for precision in precisions:
        graphs |= build(model, precision, weights, random_pairs(4), shortlist=True).graphs
    return graphs | {name: bytes(content) for name, content in weight_files(weights).items()}


def bytes_of_weights(files: dict[str, bytes]) -> int:
    return sum(len(content) for name, content in files.items() if name.startswith(WEIGHTS))


def rounded_to_half(model: Transformer) -> Transformer:
    rounded = Transformer(model.settings, 40, 40).eval()
    with torch.no_grad():
        for parameter, exact in zip(rounded.parameters(), model.parameters(), strict=True):
            parameter.copy_(exact.half().float())
    return rounded


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_graphs_compute_the_outputs_of_the_model(options: dict[str, Any]) -> None:
    runner, grid = random_runner(**options), random_grid(**options)
    report = check_tensors(runner, "fp32", grid)
    assert report.shapes == 37
    assert 0 < report.step_difference < 1e-4
    attention = check_attention(runner, "fp32", grid)
    model = random_model(**options).settings
    assert attention.heads == (model.encoder_layers + 2 * model.decoder_layers) * model.heads
    assert 0 < attention.largest < 1e-4


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_fp16_graphs_are_close_to_the_model_on_the_cpu(options: dict[str, Any]) -> None:
    runner, grid = random_runner(precision="fp16", **options), random_grid(**options)
    check_tensors(runner, "fp16", grid)
    check_attention(runner, "fp16", grid)


def test_graphs_of_another_model_fail_the_gate() -> None:
    with pytest.raises(ParityError, match=r"fp32: .*steps.* 1e-03"):
        check_tensors(random_runner(0), "fp32", random_grid(1))
    with pytest.raises(ParityError, match=r"fp32: encoder attention of layer \d, head \d .* 1e-04"):
        check_attention(random_runner(0), "fp32", random_grid(1))


def overflowing(model: Transformer) -> Transformer:
    """Return an equal model whose memory is beyond the range of float16, with weights within it."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer in model.decoder:
            for large in (layer.cross.key_value.weight, layer.cross.key_value.bias):
                large *= 1e5
            for small in (layer.cross.query.weight, layer.cross.query.bias, layer.cross.output.weight):
                small *= 1e-5
    return model


def with_nan(model: Transformer) -> Transformer:
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.decoder[0].feed_forward.inner.bias[0] = math.nan
    return model


@pytest.mark.parametrize("change", [overflowing, with_nan])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_values_that_are_not_finite_fail_the_gate(change: Callable[[Transformer], Transformer], precision: str) -> None:
    model = change(random_model())
    runner = runner_of(model, precision)
    if change is overflowing and precision == "fp32":
        assert check_tensors(runner, precision, draw_grid(model, limits_of(model))).step_difference < 1e-4
    else:
        with pytest.raises(ParityError, match=r"log-probabilities.* are not all finite: one is nan"):
            check_tensors(runner, precision, draw_grid(model, limits_of(model)))


def test_the_scorer_outputs_every_attention_matrix() -> None:
    model, runner = random_model(), random_runner()
    feed = {
        SOURCE_IDS: np.array([[5, 6, 7, 2], [8, 2, 0, 0]]),
        SOURCE_LENGTHS: np.array([4, 2]),
        TARGET_IDS: np.array([[1, 9, 10], [1, 11, 0]]),
        LABELS: np.array([[9, 10, 2], [11, 2, 0]]),
    }
    names = [ENCODER_ATTENTION, DECODER_ATTENTION, CROSS_ATTENTION]
    encoder, decoder, cross = runner.scorer.run(names, feed)
    layers, heads = model.settings.decoder_layers, model.settings.heads
    assert encoder.shape == (2, model.settings.encoder_layers, heads, 4, 4)
    assert decoder.shape == (2, layers, heads, 3, 3)
    assert cross.shape == (2, layers, heads, 3, 4)
    for weights in (encoder, decoder, cross):
        assert weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    assert (np.triu(decoder, 1) == 0).all(), "no token looks ahead"
    assert (cross[1, :, :, :, 2:] == 0).all(), "nobody looks at padding"


@pytest.mark.parametrize("score", ["scaled-dot", "additive"])
def test_declared_states_are_the_decoders_inputs_and_outputs(score: str) -> None:
    runner, model = random_runner(score=score), random_model(score=score)
    inputs = {each.name: each.shape[1:] for each in runner.decoder.all_cores.get_inputs()}
    outputs = {each.name for each in runner.decoder.all_cores.get_outputs()}
    for state in states(model):
        if state.kind == "memory":
            assert inputs[state.name] == list(state.shape)
        else:
            assert inputs[past_name(state.name)] == list(state.shape)
            assert present_name(state.name) in outputs
    assert {each.name for each in runner.encoder.all_cores.get_outputs()} == {
        state.name for state in states(model) if state.kind == "memory"
    }


@pytest.mark.parametrize(("attention", "matrices"), [("softmax", True), ("linear", False)])
def test_an_encoder_of_linear_attention_makes_no_matrix_of_all_pairs_of_tokens(attention: str, matrices: bool) -> None:
    files = files_of(random_model(encoder_attention=attention), "fp32")
    model = onnx.load_model_from_string(files["fp32/encoder.onnx"])
    values = [value for node in model.graph.node for value in node.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=value) for value in values)
    for each in model.graph.initializer:
        if each.data_location == onnx.TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in each.external_data}
            first, size = int(place["offset"]), int(place["length"])
            each.raw_data = files[f"{WEIGHTS}/{place['location']}"][first : first + size]
            each.ClearField("external_data")
            each.data_location = onnx.TensorProto.DEFAULT
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {SOURCE_IDS: np.full((1, 37), 5), SOURCE_LENGTHS: np.array([37])}
    shapes = [value.shape for value in session.run(values, feed)]
    assert any(shape.count(37) > 1 for shape in shapes) is matrices


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_graphs_pass_the_checks_of_the_serving_runtime(precision: str) -> None:
    for name, content in files_of(random_model(), precision).items():
        if not name.endswith(".onnx"):
            continue
        model = onnx.load_model_from_string(content)
        assert model.ir_version == IR_VERSION
        assert {each.domain: each.version for each in model.opset_import}[""] == OPSET
        for each in (*model.graph.input, *model.graph.output):
            assert all(dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim), each.name


def test_building_twice_gives_the_same_bytes() -> None:
    assert files_of(random_model(), "fp32", "int8") == files_of(random_model(), "fp32", "int8")


def test_weights_that_are_exact_in_fp16_are_stored_in_fp16_without_a_change() -> None:
    rounded = files_of(rounded_to_half(random_model()), "fp32")
    assert bytes_of_weights(rounded) < 0.6 * bytes_of_weights(files_of(random_model(), "fp32"))
    values = np.array([1.0, 0.5, 3.0], np.float32)
    graph = GraphBuilder("g", WeightFiles(), np.float32)
    assert graph.weight("exact", values) == "exact.wide"
    assert graph.weight("fine", values + np.float32(1e-6)) == "fine"
    assert graph.reads == {"fp16.bin", "fp32.bin"}


def test_precisions_share_the_weights_that_are_exact_in_fp16() -> None:
    model = rounded_to_half(random_model())
    alone, both = (bytes_of_weights(files_of(model, *names)) for names in (("fp16",), ("fp32", "fp16")))
    assert both < 1.4 * alone, "positions and scaled queries stand twice, all else once"


def test_rows_of_the_output_layer_are_of_the_type_of_the_arithmetic() -> None:
    graphs = TransformerGraphs(random_model(), np.float16, WeightFiles())
    rows = onnx.load_model_from_string(graphs.output_rows()).graph.output
    read = onnx.load_model_from_string(graphs.decoder_shortlist()).graph.input
    found = {each.name: each.type.tensor_type.elem_type for each in (*rows, *read) if each.name.startswith("output.")}
    assert found == dict.fromkeys(("output.0", "output.1"), onnx.TensorProto.FLOAT16)


def test_two_tensors_with_the_same_name_in_a_file_fail_an_assertion() -> None:
    weights = WeightFiles()
    weights.add("fp32.bin", "bias", np.zeros(4, np.float32))
    with pytest.raises(AssertionError, match=r"fp32\.bin: two tensors named bias"):
        weights.add("fp32.bin", "bias", np.ones(4, np.float32))


def test_a_weight_file_has_each_tensor_once() -> None:
    model = random_model()
    numbers = sum(parameter.numel() for parameter in model.parameters()) + model.settings.max_positions * 32 + 64
    padding = 24 * model.settings.dim  # the vocabulary of 40 is padded to 64
    assert bytes_of_weights(files_of(model, "fp32")) < 4 * (numbers + padding) + 64 * 100
