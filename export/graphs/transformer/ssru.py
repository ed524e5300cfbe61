"""The SSRU of a decoder layer as ONNX nodes: one step, and whole targets. See lingon.training.models.ssru."""

from __future__ import annotations

from lingon.export.graphs.transformer.blocks import Blocks
from lingon.training.models.ssru import SSRU


def step_cell(blocks: Blocks, module: SSRU, name: str, rows: str, past: str, present: str) -> str:
    """Return what the cell says after one more position: (rows, dim).

    rows: the input of the cell (rows, dim)
    past: the input of the graph (rows, dim); no other node may read it, since the runner binds `present` to its memory
    present: the output of the graph
    """
    keep, new = _gated(blocks, module, name, rows)
    kept = blocks.graph.op("Mul", keep, past)
    return blocks.graph.op("Relu", blocks.graph.op("Add", kept, new, named=present))


def run_cell(blocks: Blocks, module: SSRU, name: str, rows: str, batch: str) -> str:
    """Return what the cell says at each position of whole targets: (batch * length, dim), of rows of that shape.

    batch: int64 [batch]
    """
    graph, dim = blocks.graph, blocks.settings.dim
    by_time = [_by_time(blocks, each, batch) for each in _gated(blocks, module, name, rows)]

    def advance(states: list[str], inputs: list[str]) -> tuple[list[str], list[str]]:
        cell = graph.op("Add", graph.op("Mul", inputs[0], states[0]), inputs[1])
        return [cell], [cell]

    _, (found,) = graph.scan([zero_cells(blocks, batch)], [(each, graph.dtype) for each in by_time], advance)
    by_row = graph.op("Transpose", found, perm=[1, 0, 2])
    return graph.op("Relu", graph.op("Reshape", by_row, graph.int64s(-1, dim)))


def zero_cells(blocks: Blocks, batch: str) -> str:
    """Return the cells before the first token (batch, dim); batch: int64 [batch]."""
    graph = blocks.graph
    return graph.op("Expand", graph.scalar(0), graph.op("Concat", batch, graph.int64s(blocks.settings.dim), axis=0))


def _gated(blocks: Blocks, module: SSRU, name: str, rows: str) -> tuple[str, str]:
    """Return the share of the cell that each row keeps, and what it adds: (n, dim) each."""
    graph = blocks.graph
    gate, value = blocks.split(blocks.linear(module.gates, f"{name}.gates", rows), 2)
    keep = graph.op("Sigmoid", gate)
    return keep, graph.op("Mul", graph.op("Sub", graph.scalar(1), keep), value)


def _by_time(blocks: Blocks, rows: str, batch: str) -> str:
    """Reshape rows (batch * length, dim) to (length, batch, dim)."""
    graph = blocks.graph
    sizes = graph.op("Concat", batch, graph.int64s(-1, blocks.settings.dim), axis=0)
    return graph.op("Transpose", graph.op("Reshape", rows, sizes), perm=[1, 0, 2])
