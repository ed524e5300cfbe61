"""Nodes that the operators Linear and FloatLinear compute as well: the norm of the rows of a product, a ReLU, and a
residual connection after it. PackedLinear computes the norm too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import NodeProto, helper

from lingon.export.graphs.fusion import Nodes
from lingon.export.graphs.onnx_writer import KERNELS

NORMS = {"LayerNormalization": 1, "SimplifiedLayerNormalization": 2}
"""The attribute `norm` of a product, by the operator that it replaces."""

GAIN = {"Linear": 4, "FloatLinear": 3, "PackedLinear": 5}
"""The place of the gain of a norm among the inputs of a product; its bias is next."""

RESIDUAL = {"Linear": 6, "FloatLinear": 5}
"""The place of a residual among the inputs of a product."""


def fuse(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Return the nodes of a graph with norms, ReLUs and residuals in the products beside them, in order.

    outputs: the outputs of the graph, whose values must stay
    """
    graph = _Nodes(nodes, outputs)
    for node in nodes:
        if node.op_type in NORMS:
            graph.fuse_norm(node)
    for node in nodes:
        if _is_linear(node):
            graph.fuse_relu(node)
            graph.fuse_residual(node)
    return graph.kept


class _Nodes(Nodes):
    """See Nodes; with the nodes that products can compute as well."""

    def __init__(self, nodes: Sequence[NodeProto], outputs: Iterable[str]) -> None:
        super().__init__(nodes, outputs)
        self._order = {node.name: place for place, node in enumerate(nodes)}

    def fuse_norm(self, norm: NodeProto) -> None:
        """Let every product that reads a norm compute it, if nobody else reads it."""
        readers = self.readers.get(norm.output[0], [])
        if not readers or norm.output[0] in self.outputs or not all(_is_native_product(each) for each in readers):
            return
        epsilon = next(each.f for each in norm.attribute if each.name == "epsilon")
        for reader in readers:
            _set_input(reader, 0, norm.input[0])
            for place, name in enumerate(norm.input[1:], GAIN[reader.op_type]):
                _set_input(reader, place, name)
            _set(reader, norm=NORMS[norm.op_type], epsilon=epsilon)
            self.readers.setdefault(norm.input[0], []).append(reader)
        self.remove(norm)

    def fuse_relu(self, linear: NodeProto) -> None:
        """Let a product compute the ReLU that alone reads it."""
        reader = self.only_reader(linear)
        if reader is not None and reader.op_type == "Relu":
            _set(linear, relu=1)
            self._replace_output(linear, reader)

    def fuse_residual(self, linear: NodeProto) -> None:
        """Let a product add what the node that alone reads it adds, if that is known before the product."""
        reader = self.only_reader(linear)
        if reader is None or reader.op_type != "Add":
            return
        added = next(name for name in reader.input if name != linear.output[0])
        writer = self.writers.get(added)
        if writer is not None and self._order[writer.name] < self._order[linear.name]:
            _set_input(linear, RESIDUAL[linear.op_type], added)
            self._replace_output(linear, reader)

    def _replace_output(self, linear: NodeProto, reader: NodeProto) -> None:
        """Let a product write what its reader wrote, in the place of the reader."""
        linear.output[0] = reader.output[0]
        self.writers[linear.output[0]] = linear
        self.remove(reader)


def _is_native_product(node: NodeProto) -> bool:
    return node.op_type in GAIN and node.domain == KERNELS


def _is_linear(node: NodeProto) -> bool:
    return node.op_type in RESIDUAL and node.domain == KERNELS


def _set_input(node: NodeProto, place: int, name: str) -> None:
    node.input.extend([""] * (place + 1 - len(node.input)))
    node.input[place] = name


def _set(node: NodeProto, **attributes: float) -> None:
    kept = [each for each in node.attribute if each.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
