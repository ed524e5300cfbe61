"""Norms of residual connections as one node each, for CUDA, where a decoder step takes the time of its many kernels."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, helper

from lingon.export.graphs.onnx_writer import CONTRIB

FUSED = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
"""The node that also adds, by the norm."""

BIAS = 2  # the place of the bias among the inputs of Gemm


def fuse_norms(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Return nodes in which a product, the addition of its bias and of a residual, and a norm are two nodes, not four.

    outputs: the outputs of the graph, whose names must stay
    """
    writers = {name: node for node in nodes for name in node.output}
    readers: dict[str, list[NodeProto]] = {name: [] for name in writers}
    for node in nodes:
        for name in node.input:
            readers.get(name, []).append(node)
    fused: dict[str, NodeProto] = {}  # by the name of the addition that a node replaces
    removed: set[str] = set()
    for norm in nodes:
        added = writers.get(norm.input[0]) if norm.op_type in FUSED else None
        if added is None or added.op_type != "Add" or added.name in fused or any(map(writers.get, norm.input[1:])):
            continue
        product = next((writers[name] for name in added.input if _is_product(writers.get(name), readers)), None)
        if product is None or product.output[0] in outputs:
            continue
        residual = next(name for name in added.input if name != product.output[0])
        alone = readers[added.output[0]] == [norm] and added.output[0] not in outputs
        fused[added.name] = _fused(norm, product, residual, "" if alone else added.output[0])
        removed.add(norm.name)
    return [fused.get(node.name, node) for node in nodes if node.name not in removed]


def _is_product(node: NodeProto | None, readers: dict[str, list[NodeProto]]) -> bool:
    """Whether a node is a product with a bias that one other node reads."""
    return node is not None and node.op_type == "Gemm" and len(node.input) > BIAS and len(readers[node.output[0]]) == 1


def _fused(norm: NodeProto, product: NodeProto, residual: str, total: str) -> NodeProto:
    """Return the node that adds and norms, and take the bias from the product; total: the name of the sum, or ""."""
    bias = product.input.pop(BIAS)
    inputs = [product.output[0], residual, *norm.input[1:], bias]
    results = [norm.output[0], *(("", "", total) if total else ())]
    made = helper.make_node(FUSED[norm.op_type], inputs, results, name=norm.name, domain=CONTRIB)
    made.attribute.extend(each for each in norm.attribute if each.name == "epsilon")
    return made
