"""Mutants: graphs as an exporter with one mistake writes them. Each is an edit of the right graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from lingon import bundle as names

Edit = Callable[[onnx.GraphProto], None]
FLOAT, ALL = ("fp32", "fp32-cuda", "fp16"), ("fp32", "fp32-cuda", "fp16", "int8")
SCATTERED = ("fp32-cuda",)
IN_SCORER, IN_DECODER, IN_ENCODER, IN_SHORTLIST = (
    (names.SCORER,),
    (names.DECODER,),
    (names.ENCODER,),
    (names.DECODER_SHORTLIST,),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake of an exporter.

    graphs: the graph files that have it
    gates: those that must refuse it
    """

    name: str
    graphs: tuple[str, ...]
    edit: Edit
    gates: tuple[str, ...]
    precisions: tuple[str, ...] = ALL

    def apply(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return graph files by name with the mistake in those that have it."""
        return {
            name: _edited(content, self.edit) if name in self.graphs else content for name, content in files.items()
        }


def _edited(content: bytes, edit: Edit) -> bytes:
    model = onnx.load_model_from_string(content)
    before = model.SerializeToString(deterministic=True)
    edit(model.graph)
    after: bytes = model.SerializeToString(deterministic=True)
    assert after != before, "the edit found nothing to change"
    return after


def _nodes(graph: onnx.GraphProto, kind: str) -> Iterator[onnx.NodeProto]:
    return (node for node in graph.node if node.op_type == kind)


def _writer(graph: onnx.GraphProto, value: str) -> onnx.NodeProto:
    return next(node for node in graph.node if value in node.output)


def _constant(graph: onnx.GraphProto, value: np.ndarray) -> str:
    name = f"mutant.{len(graph.initializer)}"
    graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def _before(graph: onnx.GraphProto, reader: onnx.NodeProto, place: int, kind: str, *rest: str, **options: int) -> None:
    """Put a node between a reader and the value that it reads at a place."""
    output = f"mutant.{len(graph.node)}"
    made = helper.make_node(kind, [reader.input[place], *rest], [output], **options)
    index = next(index for index, node in enumerate(graph.node) if node is reader or node == reader)
    graph.node.insert(index, made)
    graph.node[index + 1].input[place] = output


def _stacked(graph: onnx.GraphProto, output: str) -> onnx.NodeProto:
    """Return the node that stacks the layers of an attention output."""
    node = _writer(graph, output)
    while node.op_type != "Concat":
        node = _writer(graph, node.input[0])
    return node


def _layers_reversed(output: str) -> Edit:
    def edit(graph: onnx.GraphProto) -> None:
        stacked = _stacked(graph, output)
        stacked.input[:] = list(reversed(stacked.input))

    return edit


def _heads_swapped_in_output(graph: onnx.GraphProto) -> None:
    node = _writer(graph, names.CROSS_ATTENTION)
    _before(graph, node, 0, "Gather", _constant(graph, np.array([1, 0, 2, 3])), axis=2)


def _heads_swapped_in_memory(graph: onnx.GraphProto) -> None:
    node = next(node for node in _nodes(graph, "MatMul") if "memory.1.key" in node.input)
    _before(graph, node, 1, "Gather", _constant(graph, np.array([1, 0, 2, 3])), axis=1)


def _causal_mask_turned(graph: onnx.GraphProto) -> None:
    (node,) = _nodes(graph, "LessOrEqual")
    node.op_type = "GreaterOrEqual"


def _causal_mask_off(graph: onnx.GraphProto) -> None:
    (node,) = _nodes(graph, "LessOrEqual")
    node.input[1] = node.input[0]


def _padding_mask_off(graph: onnx.GraphProto) -> None:
    (node,) = _nodes(graph, "Less")
    node.input[1] = _constant(graph, np.full((1, 1, 1, 1), 2**30))


def _query_not_scaled(graph: onnx.GraphProto) -> None:
    node = [node for node in _nodes(graph, "Mul") if _writer_kind(graph, node.input[0]) == "Transpose"][-1]
    scale = next(each for each in graph.initializer if each.name == node.input[1])
    node.input[1] = _constant(graph, np.ones_like(numpy_helper.to_array(scale)))


def _writer_kind(graph: onnx.GraphProto, value: str) -> str:
    return next((node.op_type for node in graph.node if value in node.output), "")


def _step_not_scaled(graph: onnx.GraphProto) -> None:
    node = next(node for node in graph.node if node.op_type in ("GroupQueryAttention", "FusedMatMul"))
    next(each for each in node.attribute if each.name in ("scale", "alpha")).f = 1.0


def _new_position_hidden(graph: onnx.GraphProto) -> None:
    (node,) = _nodes(graph, "LessOrEqual")
    node.op_type = "Less"


def _written_by_another_head(graph: onnx.GraphProto) -> None:
    node = _writer(graph, names.present_name("self.1.value"))
    _before(graph, node, 2, "Gather", _constant(graph, np.array([1, 0, 2, 3])), axis=1)


def _values_of_keys(graph: onnx.GraphProto) -> None:
    one, other = (_writer(graph, names.present_name(f"self.0.{kind}")) for kind in ("key", "value"))
    one.input[2], other.input[2] = other.input[2], one.input[2]


def _positions_off_by_one(graph: onnx.GraphProto) -> None:
    """Of the target, whose positions the last table lookup reads; -1 is the last row of the table."""
    node = [node for node in _nodes(graph, "Gather") if node.input[0] == "position_table"][-1]
    _before(graph, node, 1, "Sub", _constant(graph, np.array(1)))


def _norms(graph: onnx.GraphProto) -> list[tuple[onnx.NodeProto, int]]:
    """The norms in their order, and the place of the gain among the inputs of each; its shift is next."""
    places = {"LayerNormalization": 1, "SkipLayerNormalization": 2}
    return [(node, places[node.op_type]) for node in graph.node if node.op_type in places]


def _final_norm_of_a_layer(graph: onnx.GraphProto) -> None:
    (first, place), *_, (last, target) = _norms(graph)
    last.input[target], last.input[target + 1] = first.input[place], first.input[place + 1]


def _final_norm_missing(graph: onnx.GraphProto) -> None:
    *_, (last, _) = _norms(graph)
    if last.op_type == "SkipLayerNormalization":  # of a product, a residual, gain, shift, and the bias of the product
        _before(graph, last, 1, "Add", last.input[4])
        last.op_type, last.domain = "Add", ""
        del last.input[2:], last.output[1:], last.attribute[:]
        return
    for node in graph.node:
        node.input[:] = [last.input[0] if value == last.output[0] else value for value in node.input]


def _tied_weights_transposed(graph: onnx.GraphProto) -> None:
    """The output layer has as many pieces as dimensions."""
    products = [*_nodes(graph, "Gemm"), *_nodes(graph, "MatMulIntegerToFloat")]
    node = next(
        node for node in products if any(value.startswith(("pieces", "output.columns")) for value in node.input)
    )
    if node.op_type == "Gemm":
        next(each for each in node.attribute if each.name == "transB").i = 0
    else:
        _before(graph, node, 1, "Transpose")


def _scaled_input(product: str, place: int) -> Edit:
    """Make an input of an 8-bit product a tenth larger: 2, the scale of the activations, or 3, those of the weights."""

    def edit(graph: onnx.GraphProto) -> None:
        node = next(node for node in _nodes(graph, "MatMulIntegerToFloat") if node.input[1] == f"{product}.columns")
        _before(graph, node, place, "Mul", _constant(graph, np.array(1.1, np.float32)))

    return edit


def _forbidden_pieces_allowed(graph: onnx.GraphProto) -> None:
    products = [*_nodes(graph, "Gemm"), *_nodes(graph, "MatMulIntegerToFloat")]
    node = next(node for node in products if any(value.startswith("output.bias") for value in node.input))
    place = next(place for place, value in enumerate(node.input) if value.startswith("output.bias"))
    _before(graph, node, place, "Sub", node.input[place])


def _labels_off_by_one(graph: onnx.GraphProto) -> None:
    """The label of a token is that of the next one, and the last row has the first label."""
    node = next(node for node in _nodes(graph, "Reshape") if node.input[0] == names.LABELS)
    ends = [_constant(graph, np.array([value])) for value in (1, 2**31, 0)]
    _before(graph, node, 0, "Slice", ends[0], ends[1], ends[0])
    shifted = next(node for node in graph.node if node.op_type == "Slice" and node.input[0] == names.LABELS)
    first = helper.make_node("Slice", [names.LABELS, ends[2], ends[0], ends[0]], ["mutant.first"])
    joined = helper.make_node("Concat", ["mutant.rest", "mutant.first"], [shifted.output[0]], axis=1)
    shifted.output[0] = "mutant.rest"
    index = next(index for index, node in enumerate(graph.node) if node.output[0] == "mutant.rest")
    graph.node.insert(index + 1, joined)
    graph.node.insert(index, first)


def _renamed(one: str, other: str) -> Edit:
    """Exchange two inputs of a graph, in all nodes that read them."""

    def edit(graph: onnx.GraphProto) -> None:
        exchanged = {one: other, other: one}
        for node in graph.node:
            node.input[:] = [exchanged.get(value, value) for value in node.input]

    return edit


def _memory_of_wrong_layer(graph: onnx.GraphProto) -> None:
    one, other = (_writer(graph, f"memory.{layer}.value") for layer in (0, 1))
    one.input[0], other.input[0] = other.input[0], one.input[0]


def _logits_of_another_temperature(graph: onnx.GraphProto) -> None:
    """The logits that sampling reads; the candidates are right."""
    node = _writer(graph, names.LOGITS)
    node.output[0] = "mutant.logits"
    for each in graph.node:
        each.input[:] = ["mutant.logits" if value == names.LOGITS else value for value in each.input]
    graph.node.append(helper.make_node("Add", ["mutant.logits", "mutant.logits"], [names.LOGITS]))


def _shortlist_off(graph: onnx.GraphProto) -> None:
    """Every sentence chooses among the pieces of all sentences of its batch."""
    node = next(node for node in _nodes(graph, "Where") if len(node.input) == 3 and _masks_allowed(graph, node))
    node.input[0] = _constant(graph, np.array(True))


def _masks_allowed(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    return any(names.ALLOWED in each.input for each in graph.node if node.input[0] in each.output)


def _pieces_not_mapped(graph: onnx.GraphProto) -> None:
    """The candidates are places on the list of pieces, not the pieces at these places."""
    node = _writer(graph, names.CANDIDATE_IDS)
    node.op_type, node.input[:] = "Identity", [node.input[1]]


MUTANTS = [
    Mutant("cross-attention layers reversed", IN_SCORER, _layers_reversed(names.CROSS_ATTENTION), ("attention",)),
    Mutant("decoder attention layers reversed", IN_SCORER, _layers_reversed(names.DECODER_ATTENTION), ("attention",)),
    Mutant("encoder attention layers reversed", IN_SCORER, _layers_reversed(names.ENCODER_ATTENTION), ("attention",)),
    Mutant("heads swapped in the output", IN_SCORER, _heads_swapped_in_output, ("attention",)),
    Mutant("heads swapped in the memory", IN_DECODER, _heads_swapped_in_memory, ("scores",)),
    Mutant("causal mask turned round", IN_SCORER, _causal_mask_turned, ("attention", "scores")),
    Mutant("causal mask off", IN_SCORER, _causal_mask_off, ("attention", "scores")),
    Mutant("padding mask off in the scorer", IN_SCORER, _padding_mask_off, ("attention", "scores")),
    Mutant("padding mask off in the encoder", IN_ENCODER, _padding_mask_off, ("scores",)),
    Mutant("padding mask off in a step", IN_DECODER, _padding_mask_off, ("scores",)),
    Mutant("scale missing in the scorer", IN_SCORER, _query_not_scaled, ("attention", "scores")),
    Mutant("scale missing in a step", IN_DECODER, _step_not_scaled, ("scores",)),
    Mutant("mask of a step turned round", IN_DECODER, _causal_mask_turned, ("scores",), SCATTERED),
    Mutant("mask of a step off by one", IN_DECODER, _new_position_hidden, ("scores",), SCATTERED),
    Mutant("values written by another head", IN_DECODER, _written_by_another_head, ("scores",), SCATTERED),
    Mutant("keys in the cache of values", IN_DECODER, _values_of_keys, ("scores",), SCATTERED),
    Mutant("positions off by one in the scorer", IN_SCORER, _positions_off_by_one, ("attention", "scores")),
    Mutant("positions off by one in a step", IN_DECODER, _positions_off_by_one, ("scores",)),
    Mutant("final norm of a layer in the scorer", IN_SCORER, _final_norm_of_a_layer, ("scores",)),
    Mutant("final norm of a layer in both", IN_SCORER + IN_DECODER, _final_norm_of_a_layer, ("tensors",)),
    Mutant("final norm missing in both", IN_SCORER + IN_DECODER, _final_norm_missing, ("tensors",)),
    Mutant("tied weights transposed", IN_SCORER + IN_DECODER, _tied_weights_transposed, ("tensors",)),
    *(
        Mutant(f"int8 scale of {product}", graphs, _scaled_input(product, place), gates, ("int8",))
        for product, place, graphs, gates in (
            ("output", 2, IN_SCORER + IN_DECODER, ("emulation",)),
            ("decoder.1.cross.query", 3, IN_SCORER + IN_DECODER, ("emulation",)),
            ("memory", 3, IN_SCORER + IN_ENCODER, ("emulation",)),
            ("encoder.0.feed_forward.outer", 2, IN_SCORER + IN_ENCODER, ("emulation",)),
            ("decoder.0.feed_forward.inner", 2, IN_DECODER, ("scores", "emulation")),
        )
    ),
    Mutant("forbidden pieces allowed", IN_SCORER + IN_DECODER, _forbidden_pieces_allowed, ("tensors",), FLOAT),
    Mutant("labels off by one", IN_SCORER, _labels_off_by_one, ("tensors", "scores")),
    Mutant("cache of another layer", IN_DECODER, _renamed("past.self.0.key", "past.self.1.key"), ("scores",)),
    Mutant("memory of another layer", IN_ENCODER, _memory_of_wrong_layer, ("scores",)),
    Mutant("logits of another temperature", IN_DECODER, _logits_of_another_temperature, ("tensors",)),
    Mutant("shortlist off", IN_SHORTLIST, _shortlist_off, ("shortlist",), ("fp32", "int8")),
    Mutant("pieces of the shortlist not mapped", IN_SHORTLIST, _pieces_not_mapped, ("shortlist",), ("fp32", "int8")),
]
