"""The nodes of a finished graph with their readers, and norms of residual connections as one node each, for CUDA, where
a decoder step takes the time of its many kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import NodeProto, helper

from lingon.export.graphs.onnx_writer import CONTRIB

FUSED = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
"""The node that also adds, by the norm."""

BIAS = 2  # the place of the bias among the inputs of Gemm


class Nodes:
    """The nodes of a graph, in order, and who writes and reads their results.

    outputs: the outputs of the graph, whose values must stay
    writers: by the name of a value, the node that writes it
    readers: by the name of a value, the nodes that read it, also in the body of a loop
    """

    def __init__(self, nodes: Sequence[NodeProto], outputs: Iterable[str]) -> None:
        self.outputs = set(outputs)
        self.writers = {name: node for node in nodes for name in node.output}
        self.readers: dict[str, list[NodeProto]] = {}
        self._nodes, self._removed = nodes, set[str]()
        for node in nodes:
            for name in _read(node):
                self.readers.setdefault(name, []).append(node)

    @property
    def kept(self) -> list[NodeProto]:
        """The nodes that are left."""
        return [node for node in self._nodes if node.name not in self._removed]

    def only_reader(self, node: NodeProto) -> NodeProto | None:
        """Return the node that alone reads the first result of a node; None if there is none, or it is an output."""
        readers = self.readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and node.output[0] not in self.outputs else None

    def remove(self, node: NodeProto) -> None:
        """Leave a node out."""
        self._removed.add(node.name)
        for name in _read(node):
            self.readers[name] = [each for each in self.readers[name] if each.name != node.name]


def fuse_norms(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Return nodes in which a product, the addition of its bias and of a residual, and a norm are two nodes, not four.

    outputs: the outputs of the graph, whose names must stay
    """
    graph = Nodes(nodes, outputs)
    fused: dict[str, NodeProto] = {}  # by the name of the addition that a node replaces
    for norm in nodes:
        added = graph.writers.get(norm.input[0]) if norm.op_type in FUSED else None
        if added is None or added.op_type != "Add" or added.name in fused:
            continue
        if any(map(graph.writers.get, norm.input[1:])):  # the fused node would come before its gain
            continue
        product = next((each for each in map(graph.writers.get, added.input) if _is_product(each, graph)), None)
        if product is not None:
            residual = next(name for name in added.input if name != product.output[0])
            total = "" if graph.only_reader(added) is norm else added.output[0]
            fused[added.name] = _fused(norm, product, residual, total)
            graph.remove(norm)
    return [fused.get(node.name, node) for node in graph.kept]


def _is_product(node: NodeProto | None, graph: Nodes) -> bool:
    """Whether a node is a product with a bias that one other node reads."""
    return (
        node is not None and node.op_type == "Gemm" and len(node.input) > BIAS and graph.only_reader(node) is not None
    )


def _fused(norm: NodeProto, product: NodeProto, residual: str, total: str) -> NodeProto:
    """Return the node that adds and norms, and take the bias from the product; total: the name of the sum, or ""."""
    bias = product.input.pop(BIAS)
    inputs = [product.output[0], residual, *norm.input[1:], bias]
    results = [norm.output[0], *(("", "", total) if total else ())]
    made = helper.make_node(FUSED[norm.op_type], inputs, results, name=norm.name, domain=CONTRIB)
    made.attribute.extend(each for each in norm.attribute if each.name == "epsilon")
    return made


def _read(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, also those of the graph that its loop body reads."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read(inner)
