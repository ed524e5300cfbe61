"""The layers of the recurrent systems as ONNX nodes: products, cells and attention."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from onnx import TensorProto, numpy_helper
from torch import Tensor, nn

from lingon.bundle.manifest import State
from lingon.export.graphs.layers import MASKED, FloatMatMul, Layers, to_numpy
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.export.graphs.quantisation import ModelT
from lingon.training.models.recurrent import (
    Additive,
    Concat,
    Content,
    General,
    MonotonicWindow,
    Perceptron,
    PredictiveWindow,
    Recurrence,
    RecurrentState,
    ScaledDot,
    Score,
    Stack,
    Window,
)

# The products of a recurrent system as modules of their own.
# A kernel of torch holds the weights of a cell, and the scores `concat` and `mlp` multiply parts of a matrix. An equal
# model in which every product is an `nn.Linear` has a name for each, so that graphs can be written, ranges measured and
# 8-bit products emulated by the names of modules, as for a Transformer.


class ProductCell(Recurrence):
    """A cell that computes what another does, step by step, with its two products in modules.

    input: W x + b, the product with the input
    recurrent: U h + b, the product with the hidden state
    """

    def __init__(self, cell: Recurrence) -> None:
        super().__init__(cell.kernel)
        self.tensors = cell.tensors
        self.cell = cell
        self.input, self.recurrent = (
            _linear(cast("Tensor", getattr(cell.kernel, f"weight_{of}_l0")), getattr(cell.kernel, f"bias_{of}_l0"))
            for of in ("ih", "hh")
        )

    def project(self, inputs: Tensor) -> Tensor:
        return self.input(inputs)  # type: ignore[no-any-return]

    def _step(self, projected: Tensor, state: RecurrentState) -> RecurrentState:
        return self.update(projected, self.recurrent(state[0]), state)

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        return self.cell.update(projected, recurrent, state)

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        state, outputs = start, []
        for projected in self.project(inputs).unbind(1):
            state = self._step(projected, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class ProductPerceptron(Score):
    """The score `mlp`: v^T tanh(W2 tanh(W1 s + V1 h + b1) + b2)."""

    def __init__(self, score: Perceptron) -> None:
        super().__init__()
        weight, bias = score.first.weight, score.first.bias
        self.of_state, self.of_annotation = _linear(weight[:, : score.dim]), _linear(weight[:, score.dim :], bias)
        self.second, self.weight = score.second, score.weight

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.of_annotation(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        first = torch.tanh(self.of_state(states)[:, :, None] + keys[:, None])
        return self.weight(torch.tanh(self.second(first)))[..., 0]  # type: ignore[no-any-return]


def with_products(model: ModelT) -> ModelT:
    """Return a copy of a model that computes the same, in which every product with a weight is an nn.Linear."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        made = _as_products(module)
        if made is not None:
            above, _, own = name.rpartition(".")
            setattr(model.get_submodule(above), own, made)
    return model


def _as_products(module: nn.Module) -> nn.Module | None:
    """Return an equal module whose products are modules, or None if they are already."""
    match module:
        case Recurrence():
            return ProductCell(module)
        case Concat():
            return _additive(module)
        case Perceptron():
            return ProductPerceptron(module)
    return None


def _additive(score: Concat) -> Additive:
    """Return W [s; h] as W1 s + W2 h."""
    weight = score.product.weight
    made = Additive(score.dim, weight.size(1) - score.dim, weight.size(0))
    made.of_state, made.of_annotation = _linear(weight[:, : score.dim]), _linear(weight[:, score.dim :])
    made.weight = score.weight
    return made


@torch.no_grad()
def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None)
    made.weight.copy_(weight)
    if bias is not None:
        made.bias.copy_(bias)
    return made


# Recurrent cells as ONNX nodes: one step, or a whole sequence with the real length of each row.
# In floating point a sequence is one operator, GRU or LSTM. 8-bit products need a loop over the step. Both give each
# row the same bits in any batch. For 20 tokens of width 256 on one core, a GRU takes 0.43 ms alone and 6.8 ms in a
# batch of 32, a loop over Gemm 0.72 and 7.0 ms.

ValueNames = Sequence[str]
"""The tensors of the state of a cell: the hidden state (rows, dim), and for an LSTM also its cell (rows, dim)."""


@dataclass(frozen=True, slots=True)
class Sources:
    """A batch of sources, one entry of the first dimension for each position.

    ids: (source_length, batch)
    lengths: (batch)
    real: bool (source_length, batch, 1), True at tokens, False at padding
    batch: int64 [batch]
    """

    ids: str
    lengths: str
    real: str
    batch: str


def recurrent_step(layers: Layers, cell: Recurrence, name: str, inputs: str, state: ValueNames) -> list[str]:
    """Return the state of a cell after one more input (rows, input_dim) of each row."""
    assert isinstance(cell, ProductCell)
    return _update(layers, cell, name, layers.linear(cell.input, f"{name}.input", inputs), state)


def stack_step(layers: Layers, stack: Stack, name: str, inputs: str, past: Sequence[ValueNames]) -> list[list[str]]:
    """Return the state of every layer after one more input of each row. See lingon.training.models.recurrent."""
    present: list[list[str]] = []
    for number, (cell, state) in enumerate(zip(stack.layers, past, strict=True)):
        present.append(recurrent_step(layers, cell, f"{name}.layers.{number}", inputs, state))
        inputs = present[-1][0]
    return present


def recurrent_read(
    layers: Layers, cell: Recurrence, name: str, inputs: str, source: Sources, *, reverse: bool = False
) -> tuple[str, list[str]]:
    """Return the hidden state after every token (source_length, batch, dim), and the state after the last one.

    inputs: (source_length, batch, input_dim)
    reverse: whether the last token of each row is the first that the cell reads
    """
    assert isinstance(cell, ProductCell)
    if isinstance(layers.matmul, FloatMatMul):
        return _read_at_once(layers.graph, cell, name, inputs, source, reverse=reverse)
    return _read_by_steps(layers, cell, name, inputs, source, reverse=reverse)


def _read_at_once(
    graph: GraphBuilder, cell: ProductCell, name: str, inputs: str, source: Sources, *, reverse: bool
) -> tuple[str, list[str]]:
    """See `recurrent_read`. The hidden states beyond a row's length are 0."""
    input_weight, recurrent_weight, bias = (
        graph.weight(f"{name}.kernel.{part}", _gates_as_onnx(cell, values)[None])
        for part, values in (
            ("input", [cell.input.weight]),
            ("recurrent", [cell.recurrent.weight]),
            ("bias", [cell.input.bias, cell.recurrent.bias]),
        )
    )
    lengths = graph.op("Cast", source.lengths, to=TensorProto.INT32)
    options: dict[str, Any] = {} if cell.tensors == 2 else {"linear_before_reset": 1}
    found = graph.ops(
        "LSTM" if cell.tensors == 2 else "GRU",
        *(inputs, input_weight, recurrent_weight, bias, lengths),
        outputs=[f"{name}.{part}" for part in ("all", "last", "last_cell")[: 1 + cell.tensors]],
        hidden_size=cell.dim,
        direction="reverse" if reverse else "forward",
        **options,
    )
    hidden = graph.op("Squeeze", found[0], graph.int64s(1))  # the dimension of the directions
    return hidden, [graph.op("Squeeze", each, graph.int64s(0)) for each in found[1:]]


def _gates_as_onnx(cell: ProductCell, tensors: Sequence[Tensor]) -> np.ndarray:
    """Return tensors of torch, (gates * dim, ...) each, one after the other, with the gates in the order of ONNX.

    torch has r, z, n and i, f, g, o. ONNX has z, r, n and i, o, f, g.
    """
    order = (0, 3, 1, 2) if cell.tensors == 2 else (1, 0, 2)
    parts = [np.split(to_numpy(tensor), len(order))[gate] for tensor in tensors for gate in order]
    return np.concatenate(parts)


def _read_by_steps(
    layers: Layers, cell: ProductCell, name: str, inputs: str, source: Sources, *, reverse: bool
) -> tuple[str, list[str]]:
    """See `recurrent_read`. A mask keeps the state of a row from its last token on, or in reverse before it."""
    graph = layers.graph
    sizes = graph.op("Shape", inputs, start=0, end=2)
    rows = graph.op("Reshape", inputs, graph.int64s(-1, cell.input.in_features))
    projected = layers.linear(cell.input, f"{name}.input", rows)
    by_step = graph.op("Reshape", projected, graph.op("Concat", sizes, graph.int64s(-1), axis=0))

    def body(state: list[str], entry: list[str]) -> tuple[list[str], list[str]]:
        after = _update(layers, cell, name, entry[0], state)
        kept = [graph.op("Where", entry[1], new, old) for new, old in zip(after, state, strict=True)]
        return kept, kept[:1]

    start = [zeros(graph, source.batch, cell.dim)] * cell.tensors
    last, (hidden,) = graph.scan(start, [(by_step, graph.dtype), (source.real, np.bool_)], body, reverse=reverse)
    return hidden, last


def read_stack(layers: Layers, stack: Stack, name: str, inputs: str, source: Sources) -> tuple[str, list[list[str]]]:
    """Return the hidden states of the last layer (source_length, batch, dim), and the last state of every layer."""
    last: list[list[str]] = []
    for number, cell in enumerate(stack.layers):
        inputs, state = recurrent_read(layers, cell, f"{name}.layers.{number}", inputs, source)
        last.append(state)
    return inputs, last


def zeros(graph: GraphBuilder, batch: str, dim: int) -> str:
    """Return zeros (batch, dim); batch: int64 [batch]."""
    zero = numpy_helper.from_array(np.zeros(1, graph.dtype))
    return graph.op("ConstantOfShape", graph.op("Concat", batch, graph.int64s(dim), axis=0), value=zero)


def split_values(graph: GraphBuilder, rows: str, *sizes: int) -> list[str]:
    """Split rows (n, sum of sizes) into values (n, size) each."""
    names = [f"{rows}.part.{part}" for part in range(len(sizes))]
    return graph.ops("Split", rows, graph.int64s(*sizes), outputs=names, axis=1)


def _update(layers: Layers, cell: ProductCell, name: str, projected: str, state: ValueNames) -> list[str]:
    """Return the new state; projected: W x + b of the inputs, (rows, gates * dim)."""
    recurrent = layers.linear(cell.recurrent, f"{name}.recurrent", state[0])
    update = _update_lstm if cell.tensors == 2 else _update_gru
    return update(layers.graph, cell.dim, projected, recurrent, state)


def _update_gru(graph: GraphBuilder, dim: int, projected: str, recurrent: str, state: ValueNames) -> list[str]:
    """See lingon.training.models.recurrent.GatedUnit. N + z * (h - n) is (1 - z) * n + z * h."""
    gates_input, new_input = split_values(graph, projected, 2 * dim, dim)
    gates_state, new_state = split_values(graph, recurrent, 2 * dim, dim)
    reset, keep = split_values(graph, graph.op("Sigmoid", graph.op("Add", gates_input, gates_state)), dim, dim)
    new = graph.op("Tanh", graph.op("Add", new_input, graph.op("Mul", reset, new_state)))
    return [graph.op("Add", new, graph.op("Mul", keep, graph.op("Sub", state[0], new)))]


def _update_lstm(graph: GraphBuilder, dim: int, projected: str, recurrent: str, state: ValueNames) -> list[str]:
    """See lingon.training.models.recurrent.LongShortTermMemory."""
    enter, forget, new, leave = split_values(graph, graph.op("Add", projected, recurrent), *[dim] * 4)
    kept = graph.op("Mul", graph.op("Sigmoid", forget), state[1])
    added = graph.op("Mul", graph.op("Sigmoid", enter), graph.op("Tanh", new))
    cell = graph.op("Add", kept, added)
    return [graph.op("Mul", graph.op("Sigmoid", leave), graph.op("Tanh", cell)), cell]


# The attention of the recurrent systems as ONNX nodes: scores, windows, weights and contexts.
# Queries are rows. The rows of a sentence are adjacent and read one copy of its memory.

ANNOTATIONS, KEYS = "memory.annotations", "memory.keys"
NAME = "score"  # of the module in every system
Perceptrons = Additive | ProductPerceptron  # scores that read the sum of a product with the state and a key


@dataclass(frozen=True, slots=True)
class AttentionMemory:
    """What a step reads of the sources of a running batch.

    annotations: (sentences, source_length, annotation_dim)
    keys: see `attention_states`
    lengths: (sentences)
    batch: int64 [sentences]
    """

    annotations: str
    keys: str
    lengths: str
    batch: str


def attention_states(score: Score, annotation_dim: int) -> tuple[State, State]:
    """Return the states of annotations and of keys, whose layout is that of the product that reads them.

    keys: (key_dim, source_length) for scores that are products with them, (source_length, key_dim) for the others
    """
    shape: tuple[int | str, ...]
    if isinstance(score, Perceptrons):
        shape = "source_length", score.of_annotation.out_features
    else:
        shape = score.product.out_features if isinstance(score, General) else annotation_dim, "source_length"
    return State(ANNOTATIONS, "memory", ("source_length", annotation_dim)), State(KEYS, "memory", shape)


def attention_keys(layers: Layers, score: Score, annotations: str, annotation_dim: int) -> str:
    """Return the keys of annotations (batch, source_length, annotation_dim). What does not depend on states is in them.

    Dot products of scaled-dot and content are scaled here: 1 / sqrt(dim), and the strength b / |h|.
    """
    graph = layers.graph
    if isinstance(score, General):
        return _transposed(graph, _products(layers, score.product, f"{NAME}.product", annotations))
    if isinstance(score, Perceptrons):
        return _products(layers, score.of_annotation, f"{NAME}.of_annotation", annotations)
    keys = annotations
    if isinstance(score, ScaledDot):
        keys = graph.op("Mul", keys, graph.scalar(1 / math.sqrt(annotation_dim)))
    if isinstance(score, Content):
        keys = graph.op("Mul", _normalised(graph, keys), graph.scalar(score.strength.item()))
    return _transposed(graph, keys)


def attend_to_memory(
    layers: Layers, score: Score, window: Window, states: str, positions: str, memory: AttentionMemory
) -> tuple[str, str]:
    """Return the context of each state (rows, annotation_dim), and the weights (sentences, beams, source_length).

    states: rows (sentences * beams, dim)
    positions: int64 (sentences, beams, 1) or (1, 1, 1), the number of tokens before each
    """
    graph = layers.graph
    weights = _weights(layers, window, _scores(layers, score, states, memory), states, positions, memory)
    mixed = graph.op("MatMul", weights, memory.annotations)
    size = graph.op("Shape", memory.annotations, start=2)
    return graph.op("Reshape", mixed, graph.op("Concat", graph.int64s(-1), size, axis=0)), weights


def _scores(layers: Layers, score: Score, states: str, memory: AttentionMemory) -> str:
    """Return the score of each state with each annotation (sentences, beams, source_length)."""
    graph = layers.graph
    if not isinstance(score, Perceptrons):
        query = _normalised(graph, states) if isinstance(score, Content) else states
        return graph.op("MatMul", _by_sentence(graph, query, memory.batch), memory.keys)
    query = _by_sentence(graph, layers.linear(score.of_state, f"{NAME}.of_state", states), memory.batch)
    keys = graph.op("Unsqueeze", memory.keys, graph.int64s(1))
    summed = graph.op("Add", graph.op("Unsqueeze", query, graph.int64s(2)), keys)
    hidden = graph.op("Reshape", graph.op("Tanh", summed), graph.int64s(-1, score.of_state.out_features))
    if isinstance(score, ProductPerceptron):
        hidden = graph.op("Tanh", layers.linear(score.second, f"{NAME}.second", hidden))
    sizes = graph.op("Shape", summed, start=0, end=3)
    return graph.op("Reshape", layers.linear(score.weight, f"{NAME}.weight", hidden), sizes)


def _weights(layers: Layers, window: Window, scores: str, states: str, positions: str, memory: AttentionMemory) -> str:
    """Return attention weights from scores. Those of padding, and beyond a window, are exactly 0."""
    graph = layers.graph
    indices = graph.count_up(graph.op("Shape", scores, start=2))
    lengths = graph.op("Unsqueeze", memory.lengths, graph.int64s(1, 2))
    visible = graph.op("Less", indices, lengths)
    if not isinstance(window, MonotonicWindow):
        return _masked_softmax(graph, scores, visible)
    centre = _centre(layers, window, states, positions, lengths, memory.batch)
    distance = graph.op("Sub", graph.op("Cast", indices, to=TensorProto.FLOAT), centre)
    near = graph.op("LessOrEqual", graph.op("Abs", distance), graph.scalar(window.reach))
    weights = _masked_softmax(graph, scores, graph.op("And", visible, near))
    if not isinstance(window, PredictiveWindow):
        return weights
    exponent = graph.op("Mul", graph.op("Mul", distance, distance), graph.scalar(-1 / (2 * (window.reach / 2) ** 2)))
    return graph.op("Mul", weights, graph.op("Exp", exponent))


def _centre(layers: Layers, window: MonotonicWindow, states: str, positions: str, lengths: str, batch: str) -> str:
    """Return p_t, (sentences, beams, 1); lengths: (sentences, 1, 1)."""
    graph = layers.graph
    if isinstance(window, PredictiveWindow):
        inner = graph.op("Tanh", layers.linear(window.inner, "window.inner", states))
        share = graph.op("Sigmoid", layers.linear(window.outer, "window.outer", inner))
        return graph.op("Mul", graph.op("Cast", lengths, to=TensorProto.FLOAT), _by_sentence(graph, share, batch))
    last = graph.op("Sub", lengths, graph.constant(np.array(1)))
    return graph.op("Cast", graph.op("Min", positions, last), to=TensorProto.FLOAT)


def _masked_softmax(graph: GraphBuilder, scores: str, visible: str) -> str:
    bias = graph.op("Where", visible, graph.scalar(0), graph.scalar(MASKED[graph.dtype.name]))
    return graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)


def _normalised(graph: GraphBuilder, values: str) -> str:
    """Return values (..., n) divided by their norm, which torch takes to be at least 1e-12."""
    norm = graph.op("ReduceL2", values, graph.int64s(-1), keepdims=1)
    return graph.op("Div", values, graph.op("Max", norm, graph.scalar(1e-12)))


def _by_sentence(graph: GraphBuilder, rows: str, batch: str) -> str:
    """Return rows (sentences * beams, n) as (sentences, beams, n)."""
    size = graph.op("Shape", rows, start=1)
    return graph.op("Reshape", rows, graph.op("Concat", batch, graph.int64s(-1), size, axis=0))


def _products(layers: Layers, module: nn.Linear, name: str, annotations: str) -> str:
    """Return the product of annotations (batch, source_length, in) with a weight: (batch, source_length, out)."""
    graph = layers.graph
    rows = graph.op("Reshape", annotations, graph.int64s(-1, module.in_features))
    sizes = graph.op("Concat", graph.op("Shape", annotations, start=0, end=2), graph.int64s(-1), axis=0)
    return graph.op("Reshape", layers.linear(module, name, rows), sizes)


def _transposed(graph: GraphBuilder, values: str) -> str:
    return graph.op("Transpose", values, perm=[0, 2, 1])
