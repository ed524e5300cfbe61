"""Norms of residual connections as one node: a graph computes the same, in fewer nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from lingon.bundle import names
from lingon.bundle.store import write_bundle
from lingon.export.graphs.fusion import fuse_norms
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import load_runner
from tests.support.random_models import manifest_of, random_model, random_pairs

SETTINGS: list[dict[str, Any]] = [{}, {"norm": "pre"}, {"norm": "pre", "norm_kind": "rms"}, {"decoder_cell": "ssru"}]


def node(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def residual(*more: NodeProto, first: str = "product", second: str = "rows") -> list[NodeProto]:
    """A product, a residual connection and a norm, then more nodes."""
    return [
        node("Gemm", "read weight bias", "product", transB=1),
        node("Add", f"{first} {second}", "sum"),
        node("LayerNormalization", "sum gain shift", "normed", axis=-1, epsilon=1e-5),
        *more,
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_product_residual_and_norm_are_two_nodes(swapped: bool) -> None:
    nodes = residual(first="rows", second="product") if swapped else residual()
    product, norm = fuse_norms(nodes, ["normed"])
    assert (product.op_type, list(product.input)) == ("Gemm", ["read", "weight"])
    assert list(norm.input) == ["product", "rows", "gain", "shift", "bias"]
    assert list(norm.output) == ["normed"]
    assert [(each.name, each.f) for each in norm.attribute] == [("epsilon", pytest.approx(1e-5))]


def test_a_sum_that_others_read_is_kept() -> None:
    _, norm, reader = fuse_norms(residual(node("Add", "sum later", "next")), ["next"])
    assert list(norm.output) == ["normed", "", "", "sum"]
    assert list(reader.input) == ["sum", "later"]


BODY = helper.make_graph([node("Identity", "product", "read")], "body", [], [])


@pytest.mark.parametrize(
    "nodes",
    [
        residual(node("Relu", "product", "again")),
        residual(node("Loop", "count", "again", body=BODY)),
        [node("MatMul", "read weight", "product"), *residual()[1:]],
        [node("Cast", "half", "gain", to=1), *residual()],
    ],
    ids=["product read twice", "product read in a loop", "no bias", "computed gain"],
)
def test_other_nodes_stay_as_they_are(nodes: list[NodeProto]) -> None:
    before = [each.SerializeToString() for each in nodes]
    assert [each.SerializeToString() for each in fuse_norms(nodes, ["normed"])] == before


@pytest.mark.parametrize("outputs", [["product"], ["sum"]])
def test_outputs_of_the_graph_keep_their_values(outputs: list[str]) -> None:
    found = fuse_norms(residual(), outputs)
    assert set(outputs) <= {name for each in found for name in each.output}
    if outputs == ["product"]:
        assert found[0].input[2] == "bias"


@pytest.mark.parametrize("settings", SETTINGS[:3])
def test_graphs_for_cuda_have_no_norm_after_an_addition(settings: dict[str, Any]) -> None:
    built = build(random_model(**settings), "fp16", WeightFiles(), [], shortlist=False).graphs
    for name in (names.ENCODER, names.DECODER, names.GREEDY, names.SCORER):
        graph = onnx.load_model_from_string(built[f"fp16/{name}"]).graph
        writers = {output: each for each in graph.node for output in each.output}
        kinds = Counter(each.op_type for each in graph.node)
        read = [writers[each.input[0]].op_type for each in graph.node if each.op_type.endswith("LayerNormalization")]
        assert kinds["SkipLayerNormalization"] + kinds["SkipSimplifiedLayerNormalization"] >= 2
        assert "Add" not in read[1:]  # the first one may read the sum of pieces and positions


@pytest.mark.parametrize("settings", SETTINGS)
def test_scores_in_half_precision_stay_close_to_those_in_fp32(settings: dict[str, Any], tmp_path: Any) -> None:
    model, scores = random_model(**settings), []
    for number, precision in enumerate(("fp32", "fp16"), 1):
        weights = WeightFiles()
        built = build(model, precision, weights, [], shortlist=False)
        manifest = replace(manifest_of(model, precision, built.reads), version=number)
        bundle = write_bundle(tmp_path / str(number), manifest, {**built.graphs, **weight_files(weights)})
        assert bundle.manifest.precisions[precision].provider == CPU
        runner = load_runner(bundle, precision, threads=1)
        pairs = ((np.array([source]), np.array([target])) for source, target in random_pairs(6))
        found = [
            runner.score(source, np.array([source.size]), target, np.array([target.size]))[0].log_probs
            for source, target in pairs
        ]
        scores.append(np.concatenate(found))
    assert np.abs(scores[1] - scores[0]).max() < 0.05
