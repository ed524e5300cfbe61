"""Nodes of a finished graph that one operator computes together: norms, ReLUs, residual connections and products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import NodeProto, helper

from lingon.export.graphs.onnx_writer import CONTRIB, KERNELS

# The nodes of a finished graph with their readers, and norms of residual connections as one node each, for CUDA, where
# a decoder step takes the time of its many kernels.

FUSED = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
"""The node that also adds, by the norm."""

BIAS = 2  # the position of the bias among the inputs of Gemm


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
        """Return the node that alone reads the first result of a node, or None if there is none, or it is an output."""
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
    """Return whether a node is a product with a bias that one other node reads."""
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


# Nodes that the operators Linear and FloatLinear compute as well: the norm of the rows of a product, a ReLU, and a
# residual connection after it, which StepCell adds too. The products of gathered columns and the choices of tokens
# compute the norm too.

NORMS = {"LayerNormalization": 1, "SimplifiedLayerNormalization": 2}
"""The attribute `norm` of a product, by the operator that it replaces."""

GAIN = {"Linear": 4, "FloatLinear": 3, "PackedLinear": 5, "FloatPackedLinear": 3, "Choose": 4, "ChooseWithLogits": 4}
"""The index of the gain of a norm among the inputs of a product. Its bias is next."""

RESIDUAL = {"Linear": 6, "FloatLinear": 5, "StepCell": 2}
"""The index of a residual among the inputs of an operator."""

LINEAR = "Linear", "FloatLinear"
"""The products that compute a ReLU."""

KEPT = "FloatLinear"
"""The product whose second output, for CUDA alone, is the norm of its rows."""


def fuse(nodes: Sequence[NodeProto], outputs: Iterable[str], *, keep_norms: bool = False) -> list[NodeProto]:
    """Return the nodes of a graph with norms, ReLUs and residuals in the products beside them, in order.

    outputs: the outputs of the graph, whose values must stay
    keep_norms: whether products have the norm of their rows as another output, for other nodes that read it
    """
    graph = _Nodes(nodes, outputs)
    for node in nodes:
        if node.op_type in NORMS and not (keep_norms and graph.keep_norm(node)):
            graph.fuse_norm(node)
    for node in nodes:
        if node.domain == KERNELS and node.op_type in LINEAR:
            graph.fuse_relu(node)
        if node.domain == KERNELS and node.op_type in RESIDUAL:
            graph.fuse_residual(node)
    return graph.kept


class _Nodes(Nodes):
    """See Nodes; with the nodes that products can compute as well."""

    def __init__(self, nodes: Sequence[NodeProto], outputs: Iterable[str]) -> None:
        super().__init__(nodes, outputs)
        self._order = {node.name: position for position, node in enumerate(nodes)}

    def fuse_norm(self, norm: NodeProto) -> None:
        """Let every product that reads a norm compute it, if nobody else reads it."""
        readers = self.readers.get(norm.output[0], [])
        if not readers or norm.output[0] in self.outputs or not all(_is_native_product(each) for each in readers):
            return
        for reader in readers:
            self._compute_norm(reader, norm)
        self.remove(norm)

    def keep_norm(self, norm: NodeProto) -> bool:
        """Let the first reader of a norm compute and write it for the others; return False if it cannot, or is alone.

        In post-norm layers the others are residual connections.
        """
        name = norm.output[0]
        readers = sorted(self.readers.get(name, []), key=lambda node: self._order[node.name])
        if len(readers) + (name in self.outputs) < 2:
            return False
        first, *others = readers
        if first.op_type != KEPT or first.domain != KERNELS:
            return False
        self._compute_norm(first, norm)
        first.output.append(name)
        self.writers[name] = first
        self.readers[name] = others
        self.remove(norm)
        return True

    def _compute_norm(self, product: NodeProto, norm: NodeProto) -> None:
        """Let a product compute the norm that it reads."""
        _set_input(product, 0, norm.input[0])
        for position, name in enumerate(norm.input[1:], GAIN[product.op_type]):
            _set_input(product, position, name)
        epsilon = next(each.f for each in norm.attribute if each.name == "epsilon")
        _set(product, norm=NORMS[norm.op_type], epsilon=epsilon)
        self.readers.setdefault(norm.input[0], []).append(product)

    def fuse_relu(self, linear: NodeProto) -> None:
        """Let a product compute the ReLU that alone reads it."""
        reader = self.only_reader(linear)
        if reader is not None and reader.op_type == "Relu":
            _set(linear, relu=1)
            self._replace_output(linear, reader)

    def fuse_residual(self, linear: NodeProto) -> None:
        """Let an operator add what the node that alone reads it adds, if that is known before the operator."""
        reader = self.only_reader(linear)
        if reader is None or reader.op_type != "Add":
            return
        added = next(name for name in reader.input if name != linear.output[0])
        writer = self.writers.get(added)
        if writer is not None and self._order[writer.name] < self._order[linear.name]:
            _set_input(linear, RESIDUAL[linear.op_type], added)
            self._replace_output(linear, reader)

    def _replace_output(self, linear: NodeProto, reader: NodeProto) -> None:
        """Let a product write what its reader wrote, instead of the reader."""
        linear.output[0] = reader.output[0]
        self.writers[linear.output[0]] = linear
        self.remove(reader)


def _is_native_product(node: NodeProto) -> bool:
    return node.op_type in GAIN and node.domain == KERNELS


def _set_input(node: NodeProto, position: int, name: str) -> None:
    node.input.extend([""] * (position + 1 - len(node.input)))
    node.input[position] = name


def _set(node: NodeProto, **attributes: float) -> None:
    kept = [each for each in node.attribute if each.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
