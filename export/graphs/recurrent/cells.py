"""Recurrent cells as ONNX nodes: one step, or a whole sequence with the real length of each row.

In floating point a sequence is one operator, GRU or LSTM. 8-bit products need a loop over the step. Both give each row
the same bits in any batch. For 20 tokens of width 256 on one core, a GRU takes 0.43 ms alone and 6.8 ms in a batch of
32, a loop over Gemm 0.72 and 7.0 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from torch import Tensor

from lingon.export.graphs.layers import Layers, to_numpy
from lingon.export.graphs.matmul import FloatMatMul
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.export.graphs.recurrent.products import ProductCell
from lingon.training.models.recurrent.cells import Recurrence, Stack

Values = Sequence[str]
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


def recurrent_step(layers: Layers, cell: Recurrence, name: str, inputs: str, state: Values) -> list[str]:
    """Return the state of a cell after one more input (rows, input_dim) of each row."""
    assert isinstance(cell, ProductCell)
    return _update(layers, cell, name, layers.linear(cell.input, f"{name}.input", inputs), state)


def stack_step(layers: Layers, stack: Stack, name: str, inputs: str, past: Sequence[Values]) -> list[list[str]]:
    """Return the state of every layer after one more input of each row; see lingon.training.models.recurrent.cells."""
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
    """See `recurrent_read`; the hidden states beyond a row's length are 0."""
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

    torch has r, z, n and i, f, g, o; ONNX has z, r, n and i, o, f, g.
    """
    order = (0, 3, 1, 2) if cell.tensors == 2 else (1, 0, 2)
    parts = [np.split(to_numpy(tensor), len(order))[gate] for tensor in tensors for gate in order]
    return np.concatenate(parts)


def _read_by_steps(
    layers: Layers, cell: ProductCell, name: str, inputs: str, source: Sources, *, reverse: bool
) -> tuple[str, list[str]]:
    """See `recurrent_read`; a mask keeps the state of a row from its last token on, or in reverse before it."""
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


def _update(layers: Layers, cell: ProductCell, name: str, projected: str, state: Values) -> list[str]:
    """Return the new state; projected: W x + b of the inputs, (rows, gates * dim)."""
    recurrent = layers.linear(cell.recurrent, f"{name}.recurrent", state[0])
    update = _update_lstm if cell.tensors == 2 else _update_gru
    return update(layers.graph, cell.dim, projected, recurrent, state)


def _update_gru(graph: GraphBuilder, dim: int, projected: str, recurrent: str, state: Values) -> list[str]:
    """See lingon.training.models.recurrent.cells.GatedUnit; n + z * (h - n) is (1 - z) * n + z * h."""
    gates_input, new_input = split_values(graph, projected, 2 * dim, dim)
    gates_state, new_state = split_values(graph, recurrent, 2 * dim, dim)
    reset, keep = split_values(graph, graph.op("Sigmoid", graph.op("Add", gates_input, gates_state)), dim, dim)
    new = graph.op("Tanh", graph.op("Add", new_input, graph.op("Mul", reset, new_state)))
    return [graph.op("Add", new, graph.op("Mul", keep, graph.op("Sub", state[0], new)))]


def _update_lstm(graph: GraphBuilder, dim: int, projected: str, recurrent: str, state: Values) -> list[str]:
    """See lingon.training.models.recurrent.cells.LongShortTermMemory."""
    enter, forget, new, leave = split_values(graph, graph.op("Add", projected, recurrent), *[dim] * 4)
    kept = graph.op("Mul", graph.op("Sigmoid", forget), state[1])
    added = graph.op("Mul", graph.op("Sigmoid", enter), graph.op("Tanh", new))
    cell = graph.op("Add", kept, added)
    return [graph.op("Mul", graph.op("Sigmoid", leave), graph.op("Tanh", cell)), cell]
