"""Graphs that change decoder states where they are, on the device: for providers whose memory is not main memory.

Every graph has an input for each state, under its name, and an output `changed.NAME`. The runner binds both to the same
memory, in which ScatterND then writes the changed rows only.

States are declared in blocks, (sentences or rows, blocks, block): on CUDA, a thread of ScatterND copies a whole entry,
one value after the other. On one H200, 192 rows of 80 KB took 17 ms as 192 entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from lingon.bundle import names
from lingon.bundle.manifest import State
from lingon.export.graphs.onnx_writer import GraphBuilder, WeightFiles

BLOCK_BYTES = 16  # that one thread copies, at most
WORDS: tuple[type[np.integer[Any]], ...] = (np.int64, np.int32, np.int16)
"""The types in which a graph that only copies reads states: the widest one that fits. It may copy any bits."""


def state_graphs(states: Sequence[State], dtype: type[np.floating[Any]]) -> dict[str, bytes]:
    """Return the graphs by their file names."""
    return {names.PLACE: _place(states, dtype), **copy_graphs(states, dtype)}


def copy_graphs(states: Sequence[State], dtype: type[np.floating[Any]]) -> dict[str, bytes]:
    """Return the graphs that copy states, by their file names."""
    memory = [each for each in states if each.kind == "memory"]
    past = [each for each in states if each.kind != "memory"]
    return {names.COPY_MEMORY: _copy("copy_memory", memory, dtype), names.COPY_ROWS: _copy("copy_rows", past, dtype)}


def _place(states: Sequence[State], dtype: type[np.floating[Any]]) -> bytes:
    """Return the graph that writes outputs `indices` of the encoder into memory `slots`.

    Recurrent states of the rows `targets` get the outputs `sources`.
    """
    graph = GraphBuilder("place", WeightFiles(), dtype)
    slots, indices = (graph.input(name, np.int64, ["placed"]) for name in (names.SLOTS, names.INDICES))
    recurrent = any(each.kind == "recurrent" for each in states)
    targets, sources = (
        (graph.input(name, np.int64, ["placed_rows"]) if recurrent else "") for name in (names.TARGETS, names.SOURCES)
    )
    blocks = _Blocks(graph)
    for state in states:
        if state.kind == "cache":
            continue
        old, block = blocks.declare(state, dtype, _elements(state))
        shape = ["encoded_length" if size == "source_length" else size for size in state.shape]
        encoded = graph.input(names.encoded_name(state.name), dtype, ["batch", *shape])
        chosen = graph.op("Gather", encoded, indices if state.kind == "memory" else sources, axis=0)
        if "source_length" in state.shape:
            width = graph.op("Div", blocks.elements_of_entry(old, block), graph.int64s(_elements(state)))
            chosen = _fit(graph, chosen, width, 1 + state.shape.index("source_length"))
        in_blocks = graph.op("Reshape", chosen, graph.int64s(0, -1, block))
        blocks.scatter(state, old, slots if state.kind == "memory" else targets, in_blocks)
    return graph.finish()


def _copy(name: str, states: Iterable[State], dtype: type[np.floating[Any]]) -> bytes:
    """Return the graph that copies entries `sources` of every state to entries `targets`."""
    graph = GraphBuilder(name, WeightFiles(), dtype)
    sources, targets = (graph.input(each, np.int64, ["copied"]) for each in (names.SOURCES, names.TARGETS))
    blocks = _Blocks(graph)
    for state in states:
        size = _elements(state) * np.dtype(dtype).itemsize
        word = next(each for each in WORDS if size % np.dtype(each).itemsize == 0)
        old, _ = blocks.declare(state, word, size // np.dtype(word).itemsize)
        blocks.scatter(state, old, targets, graph.op("Gather", old, sources, axis=0))
    return graph.finish()


class _Blocks:
    """States in blocks, some of whose entries are written."""

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph
        self._declared: dict[str, tuple[type[Any], list[int | str]]] = {}  # types and shapes by name
        self._positions: dict[tuple[Any, ...], str] = {}

    def declare(self, state: State, dtype: type[Any], multiple: int) -> tuple[str, int]:
        """Declare a state as values of dtype, of which an entry has a multiple, and return its name and the block."""
        block = math.gcd(multiple, BLOCK_BYTES // np.dtype(dtype).itemsize)
        first = "sentences" if state.kind == "memory" else "rows"
        self._declared[state.name] = dtype, [first, names.blocks_name(state.name), block]
        return self._graph.input(state.name, *self._declared[state.name]), block

    def elements_of_entry(self, state: str, block: int) -> str:
        """Return the values of one entry, int64 [1]."""
        return self._graph.op("Mul", self._count(state), self._graph.int64s(block))

    def scatter(self, state: State, old: str, positions: str, values: str) -> None:
        """Output a state with values (positions, blocks, block) at some positions of its first dimension."""
        changed = self._graph.declare_output(names.changed_name(state.name), *self._declared[old])
        self._graph.op("ScatterND", old, self._pairs(state, old, positions), values, named=changed)

    def _pairs(self, state: State, old: str, positions: str) -> str:
        """Return the index (position, block) of every block of some positions: int64 (positions, blocks, 2)."""
        graph, (dtype, shape) = self._graph, self._declared[old]
        key = positions, _elements(state), tuple(state.varying), dtype, shape[-1]  # states of one size have the same
        if key not in self._positions:
            count = self._count(old)
            sizes = graph.op("Concat", graph.op("Shape", positions), count, axis=0)
            pair = graph.op("Unsqueeze", positions, graph.int64s(1)), graph.count_up(count)
            columns = (graph.op("Unsqueeze", graph.op("Expand", each, sizes), graph.int64s(2)) for each in pair)
            self._positions[key] = graph.op("Concat", *columns, axis=2)
        return self._positions[key]

    def _count(self, state: str) -> str:
        """Return the blocks of one entry, int64 [1]."""
        return self._graph.op("Shape", state, start=1, end=2)


def _elements(state: State) -> int:
    """Return the number of values of an entry at one position of its variable dimension."""
    return math.prod(size for size in state.shape if isinstance(size, int))


def _fit(graph: GraphBuilder, values: str, width: str, axis: int) -> str:
    """Return values with a size along an axis, int64 [1]: cut, or continued with zeros."""
    cut = graph.op("Slice", values, graph.int64s(0), width, graph.int64s(axis))
    missing = graph.op("Sub", width, graph.op("Shape", cut, start=axis, end=axis + 1))
    before, after = graph.op("Shape", cut, start=0, end=axis), graph.op("Shape", cut, start=axis + 1)
    zero = numpy_helper.from_array(np.zeros(1, graph.dtype))
    zeros = graph.op("ConstantOfShape", graph.op("Concat", before, missing, after, axis=0), value=zero)
    return graph.op("Concat", cut, zeros, axis=axis)
