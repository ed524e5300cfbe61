"""Mutants: graphs as an exporter with one mistake writes them, and modules with one mistake in their source."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
from onnx import helper, numpy_helper

from lingon.bundle import names
from lingon.bundle.names import DECODER, ENCODER, SCORER, past_name

GraphEdit = Callable[[onnx.GraphProto], None]
FLOAT, ALL = ("fp32", "fp32-cuda", "fp16"), ("fp32", "fp32-cuda", "fp16", "int8")
STEPS = ("fp32", "int8")  # whose steps say where they look
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
    gates: that must refuse it
    """

    name: str
    graphs: tuple[str, ...]
    edit: GraphEdit
    gates: tuple[str, ...]
    precisions: tuple[str, ...] = ALL

    def apply(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return graph files by name, with the mistake in the files of this mutant."""
        return {
            name: _edited(content, self.edit) if name in self.graphs else content for name, content in files.items()
        }


def _edited(content: bytes, edit: GraphEdit) -> bytes:
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


def _before(
    graph: onnx.GraphProto, reader: onnx.NodeProto, position: int, kind: str, *rest: str, **options: int
) -> None:
    """Put a node between a reader and the value that it reads at a position."""
    output = f"mutant.{len(graph.node)}"
    made = helper.make_node(kind, [reader.input[position], *rest], [output], **options)
    index = next(index for index, node in enumerate(graph.node) if node is reader or node == reader)
    graph.node.insert(index, made)
    graph.node[index + 1].input[position] = output


def _parts(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of the loops of a graph, then the graph."""
    yield from (each.g for node in graph.node for each in node.attribute if each.name == "body")
    yield graph


def _first(kind: str, change: Callable[[onnx.GraphProto, int], None], *, nth: int = 0, last: bool = False) -> GraphEdit:
    """Change the nth node of a kind, or the last one, in the first part of a graph that has so many."""

    def edit(graph: onnx.GraphProto) -> None:
        for part in _parts(graph):
            positions = [position for position, node in enumerate(part.node) if node.op_type == kind]
            if len(positions) > nth:
                change(part, positions[-1] if last else positions[nth])
                return

    return edit


def _kind(kind: str) -> Callable[[onnx.GraphProto, int], None]:
    def change(part: onnx.GraphProto, position: int) -> None:
        part.node[position].op_type = kind

    return change


def _swap(part: onnx.GraphProto, position: int) -> None:
    node = part.node[position]
    node.input[:] = [node.input[1], node.input[0], *node.input[2:]]


def _pass(part: onnx.GraphProto, position: int) -> None:
    """Replace a node by its first input."""
    node = part.node[position]
    part.node[position].CopyFrom(helper.make_node("Identity", [node.input[0]], [node.output[0]]))


def _insert_before(kind: str, value: float | None = None) -> Callable[[onnx.GraphProto, int], None]:
    """Put a node before the first input of a node. value: its second input, of the type of positions."""

    def change(part: onnx.GraphProto, position: int) -> None:
        node, inputs = part.node[position], [part.node[position].input[0]]
        if value is not None:
            part.initializer.append(numpy_helper.from_array(np.array(value, np.int64), "mutant.value"))
            inputs.append("mutant.value")
        made = helper.make_node(kind, inputs, ["mutant.before"])
        node.input[0] = "mutant.before"
        part.node.insert(position, made)

    return change


def _always_visible(part: onnx.GraphProto, position: int) -> None:
    part.initializer.append(numpy_helper.from_array(np.array(2**30), "mutant.length"))
    part.node[position].input[1] = "mutant.length"


def _exchanged(one: str, other: str) -> GraphEdit:
    """Exchange two states of a step, in all nodes that read them."""

    def edit(graph: onnx.GraphProto) -> None:
        names = {past_name(one): past_name(other), past_name(other): past_name(one)}
        for node in graph.node:
            node.input[:] = [names.get(value, value) for value in node.input]

    return edit


def _stacked(graph: onnx.GraphProto, output: str) -> onnx.NodeProto:
    """Return the node that stacks the layers of an attention output."""
    node = _writer(graph, output)
    while node.op_type != "Concat":
        node = _writer(graph, node.input[0])
    return node


def _layers_reversed(output: str) -> GraphEdit:
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


def _other_heads_of_steps(graph: onnx.GraphProto) -> None:
    """Let a step say where other heads look than those of alignments."""
    node = _writer(graph, names.STEP_ATTENTION)
    while node.op_type != "Gather":
        node = _writer(graph, node.input[0])
    heads = next(each for each in graph.initializer if each.name == node.input[1])
    node.input[1] = _constant(graph, (numpy_helper.to_array(heads) + 1) % 4)


def _causal_mask_off(graph: onnx.GraphProto) -> None:
    (node,) = _nodes(graph, "LessOrEqual")
    node.input[1] = node.input[0]


def _query_not_scaled(graph: onnx.GraphProto) -> None:
    node = [node for node in _nodes(graph, "Mul") if _writer_kind(graph, node.input[0]) == "Transpose"][-1]
    scale = next(each for each in graph.initializer if each.name == node.input[1])
    node.input[1] = _constant(graph, np.ones_like(numpy_helper.to_array(scale)))


def _writer_kind(graph: onnx.GraphProto, value: str) -> str:
    return next((node.op_type for node in graph.node if value in node.output), "")


def _step_not_scaled(graph: onnx.GraphProto) -> None:
    node = next(node for node in graph.node if node.op_type in ("GroupQueryAttention", "FusedMatMul"))
    next(each for each in node.attribute if each.name in ("scale", "alpha")).f = 1.0


def _written_by_another_head(graph: onnx.GraphProto) -> None:
    node = _writer(graph, names.present_name("self.1.value"))
    _before(graph, node, 2, "Gather", _constant(graph, np.array([1, 0, 2, 3])), axis=1)


def _values_of_keys(graph: onnx.GraphProto) -> None:
    one, other = (_writer(graph, names.present_name(f"self.0.{kind}")) for kind in ("key", "value"))
    one.input[2], other.input[2] = other.input[2], one.input[2]


def _positions_off_by_one(graph: onnx.GraphProto) -> None:
    """Shift the positions of the target, which the last table lookup reads. -1 is the last row of the table."""
    node = [node for node in _nodes(graph, "Gather") if node.input[0] == "position_table"][-1]
    _before(graph, node, 1, "Sub", _constant(graph, np.array(1)))


def _norms(graph: onnx.GraphProto) -> list[tuple[onnx.NodeProto, int]]:
    """Return the norms in their order, and the position of the gain among the inputs of each. Its shift is next."""
    positions = {"LayerNormalization": 1, "SkipLayerNormalization": 2}
    return [(node, positions[node.op_type]) for node in graph.node if node.op_type in positions]


def _final_norm_of_a_layer(graph: onnx.GraphProto) -> None:
    (first, position), *_, (last, target) = _norms(graph)
    last.input[target], last.input[target + 1] = first.input[position], first.input[position + 1]


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
    """Transpose the output layer, which has as many pieces as dimensions."""
    products = [*_nodes(graph, "Gemm"), *_nodes(graph, "MatMulIntegerToFloat")]
    node = next(
        node for node in products if any(value.startswith(("pieces", "output.columns")) for value in node.input)
    )
    if node.op_type == "Gemm":
        next(each for each in node.attribute if each.name == "transB").i = 0
    else:
        _before(graph, node, 1, "Transpose")


def _scaled_input(product: str, position: int) -> GraphEdit:
    """Make an input of an 8-bit product a tenth larger. position: 2, of the activations, or 3, of the weights."""

    def edit(graph: onnx.GraphProto) -> None:
        node = next(node for node in _nodes(graph, "MatMulIntegerToFloat") if node.input[1] == f"{product}.columns")
        _before(graph, node, position, "Mul", _constant(graph, np.array(1.1, np.float32)))

    return edit


def _forbidden_pieces_allowed(graph: onnx.GraphProto) -> None:
    products = [*_nodes(graph, "Gemm"), *_nodes(graph, "MatMulIntegerToFloat")]
    node = next(node for node in products if any(value.startswith("output.bias") for value in node.input))
    position = next(position for position, value in enumerate(node.input) if value.startswith("output.bias"))
    _before(graph, node, position, "Sub", node.input[position])


def _labels_off_by_one(graph: onnx.GraphProto) -> None:
    """Give a token the label of the next one, and the last row the first label."""
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


def _memory_of_wrong_layer(graph: onnx.GraphProto) -> None:
    one, other = (_writer(graph, f"memory.{layer}.value") for layer in (0, 1))
    one.input[0], other.input[0] = other.input[0], one.input[0]


def _logits_of_another_temperature(graph: onnx.GraphProto) -> None:
    """Double the logits that sampling reads. The candidates are right."""
    node = _writer(graph, names.LOGITS)
    node.output[0] = "mutant.logits"
    for each in graph.node:
        each.input[:] = ["mutant.logits" if value == names.LOGITS else value for value in each.input]
    graph.node.append(helper.make_node("Add", ["mutant.logits", "mutant.logits"], [names.LOGITS]))


def _shortlist_off(graph: onnx.GraphProto) -> None:
    """Let every sentence choose among the pieces of all sentences of its batch."""
    node = next(node for node in _nodes(graph, "Where") if len(node.input) == 3 and _masks_allowed(graph, node))
    node.input[0] = _constant(graph, np.array(True))


def _masks_allowed(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    return any(names.ALLOWED in each.input for each in graph.node if node.input[0] in each.output)


def _pieces_not_mapped(graph: onnx.GraphProto) -> None:
    """Return positions on the list of pieces as candidates, not the pieces at these positions."""
    node = _writer(graph, names.CANDIDATE_IDS)
    node.op_type, node.input[:] = "Identity", [node.input[1]]


TURNED = _first("LessOrEqual", _kind("GreaterOrEqual"))
MUTANTS = [
    Mutant("cross-attention layers reversed", IN_SCORER, _layers_reversed(names.CROSS_ATTENTION), ("attention",)),
    Mutant("decoder attention layers reversed", IN_SCORER, _layers_reversed(names.DECODER_ATTENTION), ("attention",)),
    Mutant("encoder attention layers reversed", IN_SCORER, _layers_reversed(names.ENCODER_ATTENTION), ("attention",)),
    Mutant("heads swapped in the output", IN_SCORER, _heads_swapped_in_output, ("attention",)),
    Mutant("heads swapped in the memory", IN_DECODER, _heads_swapped_in_memory, ("scores",)),
    Mutant("causal mask turned round", IN_SCORER, TURNED, ("attention", "scores")),
    Mutant("causal mask off", IN_SCORER, _causal_mask_off, ("attention", "scores")),
    Mutant("padding mask off in the scorer", IN_SCORER, _first("Less", _always_visible), ("attention", "scores")),
    Mutant("padding mask off in the encoder", IN_ENCODER, _first("Less", _always_visible), ("scores",)),
    Mutant("padding mask off in a step", IN_DECODER, _first("Less", _always_visible), ("scores",)),
    Mutant("scale missing in the scorer", IN_SCORER, _query_not_scaled, ("attention", "scores")),
    Mutant("scale missing in a step", IN_DECODER, _step_not_scaled, ("scores",)),
    Mutant(
        "mask of a step turned round",
        IN_DECODER,
        TURNED,
        ("scores",),
        SCATTERED,
    ),
    Mutant("mask of a step off by one", IN_DECODER, _first("LessOrEqual", _kind("Less")), ("scores",), SCATTERED),
    Mutant("values written by another head", IN_DECODER, _written_by_another_head, ("scores",), SCATTERED),
    Mutant("keys in the cache of values", IN_DECODER, _values_of_keys, ("scores",), SCATTERED),
    Mutant("positions off by one in the scorer", IN_SCORER, _positions_off_by_one, ("attention", "scores")),
    Mutant("positions off by one in a step", IN_DECODER, _positions_off_by_one, ("scores",)),
    Mutant("final norm of a layer in the scorer", IN_SCORER, _final_norm_of_a_layer, ("scores",)),
    Mutant("final norm of a layer in both", IN_SCORER + IN_DECODER, _final_norm_of_a_layer, ("tensors",)),
    Mutant("final norm missing in both", IN_SCORER + IN_DECODER, _final_norm_missing, ("tensors",)),
    Mutant("tied weights transposed", IN_SCORER + IN_DECODER, _tied_weights_transposed, ("tensors",)),
    *(
        Mutant(f"int8 scale of {product}", graphs, _scaled_input(product, position), gates, ("int8",))
        for product, position, graphs, gates in (
            ("output", 2, IN_SCORER + IN_DECODER, ("emulation",)),
            ("decoder.1.cross.query", 3, IN_SCORER + IN_DECODER, ("emulation",)),
            ("memory", 3, IN_SCORER + IN_ENCODER, ("emulation",)),
            ("encoder.0.feed_forward.outer", 2, IN_SCORER + IN_ENCODER, ("emulation",)),
            ("decoder.0.feed_forward.inner", 2, IN_DECODER, ("scores", "emulation")),
        )
    ),
    Mutant("forbidden pieces allowed", IN_SCORER + IN_DECODER, _forbidden_pieces_allowed, ("tensors",), FLOAT),
    Mutant("attention of other heads in a step", IN_DECODER, _other_heads_of_steps, ("scores",), STEPS),
    Mutant("attention of other heads with shortlist", IN_SHORTLIST, _other_heads_of_steps, ("shortlist",), STEPS),
    Mutant("labels off by one", IN_SCORER, _labels_off_by_one, ("tensors", "scores")),
    Mutant("cache of another layer", IN_DECODER, _exchanged("self.0.key", "self.1.key"), ("scores",)),
    Mutant("memory of another layer", IN_ENCODER, _memory_of_wrong_layer, ("scores",)),
    Mutant("logits of another temperature", IN_DECODER, _logits_of_another_temperature, ("tensors",)),
    Mutant("shortlist off", IN_SHORTLIST, _shortlist_off, ("shortlist",), ("fp32", "int8")),
    Mutant("pieces of the shortlist not mapped", IN_SHORTLIST, _pieces_not_mapped, ("shortlist",), ("fp32", "int8")),
]


BOTH = (DECODER, SCORER)  # the decoder step is in both
READ = (ENCODER, SCORER)  # the encoder is in both


def _ahead(graph: onnx.GraphProto) -> None:
    """Read the source from its first token in all directions."""
    for node in graph.node:
        for each in node.attribute:
            if each.name == "direction":
                each.s = b"forward"


def _beyond_the_end(graph: onnx.GraphProto) -> None:
    """Read padding as tokens, in all directions."""
    for node in graph.node:
        if node.op_type in ("GRU", "LSTM"):
            node.input[4] = ""


def _gates_exchanged(graph: onnx.GraphProto) -> None:
    """Put the last gate of the encoder's recurrent product first."""
    position, node = next(
        (position, node) for position, node in enumerate(graph.node) if node.op_type in ("GRU", "LSTM")
    )
    gates = 4 if node.op_type == "LSTM" else 3
    parts = [f"mutant.gate.{number}" for number in range(gates)]
    graph.node.insert(position, helper.make_node("Split", [node.input[2]], parts, axis=1, num_outputs=gates))
    graph.node.insert(position + 1, helper.make_node("Concat", [parts[-1], *parts[:-1]], ["mutant.gates"], axis=1))
    graph.node[position + 2].input[2] = "mutant.gates"


def _features_exchanged(graph: onnx.GraphProto) -> None:
    """Exchange the values of the last Concat of two values along features."""
    for part in _parts(graph):
        found = [node for node in part.node if node.op_type == "Concat" and len(node.input) == 2]
        rows = [node for node in found if node.attribute[0].i == 1]
        if rows:
            _swap(part, list(part.node).index(rows[-1]))
            return


def _without_first_tanh(graph: onnx.GraphProto) -> None:
    """Remove the first tanh outside of all loops."""
    _pass(graph, next(position for position, node in enumerate(graph.node) if node.op_type == "Tanh"))


def _halves_rotated(graph: onnx.GraphProto) -> None:
    """Pair dimensions i and i + head_dim / 2, not 2i and 2i + 1."""
    for node in graph.node:
        for each in node.attribute:
            if each.name == "interleaved":
                each.i = 0


def _keys_subtracted(graph: onnx.GraphProto) -> None:
    """Score q - k instead of q + k, in additive attention."""
    summed = {node.input[0] for node in graph.node if node.op_type == "Tanh"}
    for node in graph.node:
        if summed & set(node.output):
            node.op_type = "Sub"


def _ones_among_values(graph: onnx.GraphProto) -> None:
    """Exchange the values with the column whose sums are the norms of linear attention."""
    position = next(position for position, node in enumerate(graph.node) if node.op_type == "Expand")
    _swap(graph, next(at for at, node in enumerate(graph.node) if graph.node[position].output[0] in node.input))


def _mutant(name: str, graphs: tuple[str, ...], edit: GraphEdit, gates: tuple[str, ...] = ("tensors",)) -> Mutant:
    return Mutant(name, graphs, edit, gates, ("fp32",))


SEEN = ("tensors", "attention")
RECURRENT_MUTANTS: dict[str, list[Mutant]] = {
    "rnnenc gru": [
        _mutant("old and new state exchanged", BOTH, _first("Sub", _swap)),
        _mutant("a gate of tanh", BOTH, _first("Sigmoid", _kind("Tanh"))),
        _mutant("state beyond the last token", READ, _beyond_the_end),
        _mutant("gates exchanged", READ, _gates_exchanged),
        _mutant("states of another layer", (DECODER,), _exchanged("decoder.0.hidden", "decoder.1.hidden")),
    ],
    "rnnenc lstm": [
        _mutant("gates exchanged", READ, _gates_exchanged),
        _mutant("cell without tanh", BOTH, _first("Tanh", _pass, last=True)),
        _mutant("cell and hidden state exchanged", (DECODER,), _exchanged("decoder.0.hidden", "decoder.0.cell")),
    ],
    "rnnenc reversed": [_mutant("source not reversed", READ, _first("GatherElements", _pass))],
    "rnnsearch gru": [
        _mutant("first state without tanh", (ENCODER,), _without_first_tanh),
        _mutant("backward direction reads ahead", READ, _ahead, SEEN),
        _mutant("padding is read", READ, _beyond_the_end, SEEN),
        _mutant("padding is seen", BOTH, _first("Less", _always_visible), SEEN),
        _mutant("score without tanh", BOTH, _first("Tanh", _pass), SEEN),
        _mutant("smaller of each two", BOTH, _first("ReduceMax", _kind("ReduceMin"))),
        _mutant("token and context exchanged", BOTH, _features_exchanged, SEEN),
    ],
    "rnnsearch scaled-dot": [_mutant("keys not scaled", (ENCODER,), _first("Mul", _pass, nth=1))],
    "rnnsearch content": [_mutant("states not normalised", BOTH, _first("Div", _pass), SEEN)],
    "luong local-monotonic": [
        _mutant("window narrower by one", BOTH, _first("LessOrEqual", _kind("Less")), SEEN),
        _mutant("positions off by one", BOTH, _first("Min", _insert_before("Add", 1)), SEEN),
    ],
    "luong local-predictive": [
        _mutant("weights grow with the distance", BOTH, _first("Exp", _insert_before("Neg")), SEEN),
        _mutant("centre without tanh", BOTH, _first("Tanh", _pass, nth=4), SEEN),
    ],
    "transformer rotary": [
        _mutant("queries of the encoder not rotated", READ, _first("RotaryEmbedding", _pass), SEEN),
        _mutant("keys of a step not rotated", (DECODER,), _first("RotaryEmbedding", _pass, nth=1)),
        _mutant("pairs of other dimensions", BOTH, _halves_rotated, SEEN),
        _mutant("all steps at position 1", (DECODER,), _first("Unsqueeze", _insert_before("Sign"), nth=1)),
    ],
    "transformer window": [
        _mutant("window narrower by one", READ, _first("LessOrEqual", _kind("Less")), SEEN),
        _mutant("no window", READ, _first("And", _pass), SEEN),
        _mutant("padding in the window is seen", READ, _first("Less", _always_visible), SEEN),
    ],
    "transformer additive": [
        _mutant("score without tanh", BOTH, _first("Tanh", _pass), SEEN),
        _mutant("keys subtracted", BOTH, _keys_subtracted, SEEN),
        _mutant("new position hidden in a step", (DECODER,), _first("LessOrEqual", _kind("Less"))),
        _mutant("caches of another layer", (DECODER,), _exchanged("self.0.key", "self.1.key")),
    ],
    "transformer linear": [
        _mutant("sums not divided by the norm", READ, _first("Div", _pass)),
        _mutant("features without exp", READ, _first("Exp", _pass), SEEN),
        _mutant("padding is seen", READ, _first("Less", _always_visible), SEEN),
        _mutant("norms among the values", READ, _ones_among_values),
    ],
    "luong general": [
        _mutant("attentional state without tanh", BOTH, _first("Tanh", _pass, last=True)),
        _mutant("context and state exchanged", BOTH, _features_exchanged),
        _mutant("attentional state of a layer", (DECODER,), _exchanged("attentional", "decoder.1.hidden")),
    ],
}
"""Mutants by system. `nth` counts the nodes of a kind in the order in which the exporter writes them."""


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """A mistake in a formula.

    module: below lingon.training.models
    after: text before the position of the mistake, such as the head of a class. The first `right` after it is edited
    """

    module: str
    after: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.module}, {self.after}: {self.wrong}"

    def load(self) -> ModuleType:
        """Return a copy of the module with the mistake."""
        original = importlib.import_module(f"lingon.training.models.{self.module}")
        source = Path(str(original.__file__)).read_text(encoding="utf-8")
        head, found, rest = source.partition(self.after)
        assert found, f"{self.module} has no {self.after!r}"
        assert self.right in rest, f"{self.module} has no {self.right!r} after {self.after!r}"
        edited = ModuleType(f"mutant_of_{self.module}")
        exec(compile(head + found + rest.replace(self.right, self.wrong, 1), str(self), "exec"), edited.__dict__)
        return edited
