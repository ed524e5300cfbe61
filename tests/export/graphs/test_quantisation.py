"""8-bit products: nothing saturates, smoothing changes no result, and graphs are close to the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from lingon.export.graphs.layers import Int8MatMul
from lingon.export.graphs.onnx_writer import GraphBuilder, WeightFiles
from lingon.export.graphs.quantisation import (
    MAX_WEIGHT,
    TOGETHER,
    Calibration,
    InputRange,
    calibrate,
    quantise_columns,
)
from lingon.text import BOS
from lingon.training.models.transformer import Transformer
from tests.support.random_models import random_model, random_pairs, random_runner

OPTIONS = [
    {},
    {"norm": "pre"},
    {"activation": "gelu", "norm": "pre"},
    {"tie": "none"},
    {"norm": "pre", "query_norm": True},
    {"norm": "both"},
]
OPTIONS += [
    {"norm": "pre", "gated": True, "activation": "gelu-tanh", "norm_kind": "rms", "bias": False},
    {"output_bias": True, "activation": "silu", "head_dim": 24},
]


def product(rows: np.ndarray, weight: np.ndarray, seen: InputRange) -> np.ndarray:
    """Return rows W^T as an 8-bit graph computes it."""
    weights = WeightFiles()
    graph = GraphBuilder("product", weights, np.float32, file="int8.bin")
    read = graph.input("rows", np.float32, ["n", rows.shape[1]])
    named = graph.declare_output("result", np.float32, ["n", len(weight)])
    Int8MatMul(graph, {"it": seen}).linear("it", read, weight, np.zeros(len(weight), np.float32), named=named)
    options = ort.SessionOptions()
    files = weights.contents()
    options.add_external_initializers_from_files_in_memory(
        list(files), list(files.values()), [*map(len, files.values())]
    )
    session = ort.InferenceSession(graph.finish(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"rows": rows})[0])


def logits_of(model: Transformer) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat(
            [
                model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[1, *target]]))[0]
                for source, target in random_pairs(6)
            ]
        )


@pytest.mark.parametrize("depth", [512, 2048])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_are_exact_on_every_processor(depth: int, sign: int) -> None:
    """Activations of 255 and weights at the end of their range are the first to saturate 16 bits."""
    assert np.iinfo(np.int16).max >= 2 * 255 * MAX_WEIGHT
    rows, weight = np.full((5, depth), 255, np.float32), np.full((8, depth), sign * MAX_WEIGHT, np.float32)
    found = product(rows, weight, InputRange(0, 255))
    assert (found == sign * 255 * MAX_WEIGHT * depth).all()


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_weights_stay_within_their_bound_and_near_their_values(size: float) -> None:
    weight = (np.random.default_rng(0).normal(size=(TOGETHER + 20, 64)) * size).astype(np.float32)
    weight[3] = 0
    columns, scale = quantise_columns(weight)
    assert np.abs(columns).max() == MAX_WEIGHT
    assert (np.abs(columns * scale[:, None] - weight) <= scale[:, None] / 2 + 1e-6 * size).all()


@pytest.mark.parametrize(
    "seen", [InputRange(0, 5), InputRange(-1, 3), InputRange(-4, 0), InputRange(-2e-3, 1e-3), InputRange(0, 0)]
)
def test_zero_stays_zero_within_every_range(seen: InputRange) -> None:
    assert 0 <= seen.zero_point <= 255
    assert (product(np.zeros((3, 16), np.float32), np.ones((4, 16), np.float32), seen) == 0).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_smoothing_changes_nothing_that_a_model_computes(options: dict[str, Any]) -> None:
    model = random_model(**options)
    before = logits_of(model)
    smoothed, ranges = Calibration(random_pairs(10)).smoothed(model)
    assert torch.allclose(logits_of(smoothed), before, atol=2e-4)
    assert torch.equal(logits_of(model), before), "the model itself is left as it was"
    changed = zip(smoothed.parameters(), model.parameters(), strict=False)
    assert not all(one.shape == other.shape and torch.equal(one, other) for one, other in changed)
    measured = calibrate(smoothed, random_pairs(10))
    assert ranges.keys() == {*measured, "memory"}
    assert ranges["memory"] == ranges["decoder.0.cross.key_value"]
    for name, seen in measured.items():
        assert ranges[name] == pytest.approx(seen, rel=1e-4, abs=1e-5), "the ranges are those of the smoothed model"


def test_ranges_are_those_of_every_sentence_whatever_the_number_of_threads() -> None:
    """The output layer is not computed for them, but its input has a range."""
    model, threads = random_model(), torch.get_num_threads()
    output = model.output
    try:
        found = []
        for count in (1, 4):
            torch.set_num_threads(count)
            found.append(calibrate(model, random_pairs(20)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]
    assert model.output is output
    assert found[0].keys() == {name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)}
    inputs = []
    hook = output.register_forward_pre_hook(lambda module, given: inputs.append(given[0].detach()))
    for source, target in random_pairs(20):
        model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))
    hook.remove()
    low, high = min(float(each.min()) for each in inputs), max(float(each.max()) for each in inputs)
    assert found[0]["output"] == InputRange(pytest.approx(low), pytest.approx(high))


def test_quantisation_after_a_relu_replaces_the_relu() -> None:
    ranges = Calibration(random_pairs(10)).smoothed(random_model()).ranges
    assert ranges["encoder.0.feed_forward.outer"].zero_point == 0
    graph = GraphBuilder("graph", WeightFiles(), np.float32)
    matmul = Int8MatMul(graph, ranges)
    assert matmul.relu("rows", "encoder.0.feed_forward.outer") == "rows"
    assert matmul.relu("rows", "encoder.0.feed_forward.inner") != "rows"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_int8_graphs_choose_nearly_the_tokens_of_the_model(options: dict[str, Any]) -> None:
    model, runner = random_model(**options), random_runner(precision="int8", **options)
    for source, target in random_pairs(10):
        ids, lengths = np.array([source]), np.array([len(source)])
        scored = runner.score(ids, lengths, np.array([target or [2]]), np.array([len(target)]))[0]
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[1, *target]]))
        labels = np.array([*target, 2])
        expected = model.log_probs(logits)[0].numpy()[np.arange(len(labels)), labels]
        assert np.abs(scored.log_probs - expected).mean() < 0.15
