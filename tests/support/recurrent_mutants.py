"""Mutants of the graphs of recurrent systems and of variants of the Transformer; an edit also reaches loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from lingon.bundle import DECODER, ENCODER, SCORER, past_name
from tests.support.mutants import Edit, Mutant

BOTH = (DECODER, SCORER)  # the decoder step is in both
READ = (ENCODER, SCORER)  # the encoder is in both


def _parts(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of the loops of a graph, then the graph."""
    yield from (each.g for node in graph.node for each in node.attribute if each.name == "body")
    yield graph


def _first(kind: str, change: Callable[[onnx.GraphProto, int], None], *, nth: int = 0, last: bool = False) -> Edit:
    """Change the nth node of a kind, or the last one, in the first part of a graph that has so many."""

    def edit(graph: onnx.GraphProto) -> None:
        for part in _parts(graph):
            places = [place for place, node in enumerate(part.node) if node.op_type == kind]
            if len(places) > nth:
                change(part, places[-1] if last else places[nth])
                return

    return edit


def _kind(kind: str) -> Callable[[onnx.GraphProto, int], None]:
    def change(part: onnx.GraphProto, place: int) -> None:
        part.node[place].op_type = kind

    return change


def _swap(part: onnx.GraphProto, place: int) -> None:
    node = part.node[place]
    node.input[:] = [node.input[1], node.input[0], *node.input[2:]]


def _pass(part: onnx.GraphProto, place: int) -> None:
    """Replace a node by its first input."""
    node = part.node[place]
    part.node[place].CopyFrom(helper.make_node("Identity", [node.input[0]], [node.output[0]]))


def _insert_before(kind: str, value: float | None = None) -> Callable[[onnx.GraphProto, int], None]:
    """Put a node before the first input of a node; value: its second input, of the type of positions."""

    def change(part: onnx.GraphProto, place: int) -> None:
        node, inputs = part.node[place], [part.node[place].input[0]]
        if value is not None:
            part.initializer.append(numpy_helper.from_array(np.array(value, np.int64), "mutant.value"))
            inputs.append("mutant.value")
        made = helper.make_node(kind, inputs, ["mutant.before"])
        node.input[0] = "mutant.before"
        part.node.insert(place, made)

    return change


def _always_visible(part: onnx.GraphProto, place: int) -> None:
    part.initializer.append(numpy_helper.from_array(np.array(2**30), "mutant.length"))
    part.node[place].input[1] = "mutant.length"


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
    place, node = next((place, node) for place, node in enumerate(graph.node) if node.op_type in ("GRU", "LSTM"))
    gates = 4 if node.op_type == "LSTM" else 3
    parts = [f"mutant.gate.{number}" for number in range(gates)]
    graph.node.insert(place, helper.make_node("Split", [node.input[2]], parts, axis=1, num_outputs=gates))
    graph.node.insert(place + 1, helper.make_node("Concat", [parts[-1], *parts[:-1]], ["mutant.gates"], axis=1))
    graph.node[place + 2].input[2] = "mutant.gates"


def _features_exchanged(graph: onnx.GraphProto) -> None:
    """Exchange the values of the last Concat of two values along features."""
    for part in _parts(graph):
        found = [node for node in part.node if node.op_type == "Concat" and len(node.input) == 2]
        rows = [node for node in found if node.attribute[0].i == 1]
        if rows:
            _swap(part, list(part.node).index(rows[-1]))
            return


def _without_first_tanh(graph: onnx.GraphProto) -> None:
    """Outside of all loops."""
    _pass(graph, next(place for place, node in enumerate(graph.node) if node.op_type == "Tanh"))


def _halves_rotated(graph: onnx.GraphProto) -> None:
    """Pair i is dimensions i and i + head_dim / 2, not 2i and 2i + 1."""
    for node in graph.node:
        for each in node.attribute:
            if each.name == "interleaved":
                each.i = 0


def _keys_subtracted(graph: onnx.GraphProto) -> None:
    """Of additive scores: q - k in the place of q + k."""
    summed = {node.input[0] for node in graph.node if node.op_type == "Tanh"}
    for node in graph.node:
        if summed & set(node.output):
            node.op_type = "Sub"


def _ones_among_values(graph: onnx.GraphProto) -> None:
    """Exchange the values with the column whose sums are the norms of linear attention."""
    place = next(place for place, node in enumerate(graph.node) if node.op_type == "Expand")
    _swap(graph, next(at for at, node in enumerate(graph.node) if graph.node[place].output[0] in node.input))


def _exchanged(one: str, other: str) -> Edit:
    def edit(graph: onnx.GraphProto) -> None:
        names = {past_name(one): past_name(other), past_name(other): past_name(one)}
        for node in graph.node:
            node.input[:] = [names.get(value, value) for value in node.input]

    return edit


def _mutant(name: str, graphs: tuple[str, ...], edit: Edit, gates: tuple[str, ...] = ("tensors",)) -> Mutant:
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
"""By system; `nth` counts the nodes of a kind in the order in which the exporter writes them."""
