"""Graphs that change decoder states where they are, on the device: for providers whose memory is not main memory.

Every graph has an input for each state, under its name, and an output `changed.NAME`. The runner binds both to the same
memory, in which ScatterND then writes the changed rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from lingon import bundle
from lingon.bundle import State
from lingon.export.graphs.onnx_writer import GraphBuilder, WeightFiles


def state_graphs(states: Sequence[State], dtype: type[np.floating[Any]]) -> dict[str, bytes]:
    """Return the graphs by their file names."""
    return {
        bundle.PLACE: _place(states, dtype),
        bundle.COPY_MEMORY: _copy("copy_memory", [each for each in states if each.kind == "memory"], dtype),
        bundle.COPY_ROWS: _copy("copy_rows", [each for each in states if each.kind != "memory"], dtype),
    }


def _place(states: Sequence[State], dtype: type[np.floating[Any]]) -> bytes:
    """Return the graph that writes outputs `indices` of the encoder into memory `slots`.

    Recurrent states of the rows `targets` get the outputs `sources`.
    """
    graph = GraphBuilder("place", WeightFiles(), dtype)
    slots, indices = (graph.input(name, np.int64, ["placed"]) for name in (bundle.SLOTS, bundle.INDICES))
    recurrent = any(each.kind == "recurrent" for each in states)
    targets, sources = (
        (graph.input(name, np.int64, ["placed_rows"]) if recurrent else "") for name in (bundle.TARGETS, bundle.SOURCES)
    )
    for state in states:
        if state.kind == "cache":
            continue
        old = _declare(graph, state, dtype)
        shape = ["encoded_length" if size == "source_length" else size for size in state.shape]
        encoded = graph.input(bundle.encoded_name(state.name), dtype, ["batch", *shape])
        chosen = graph.op("Gather", encoded, indices if state.kind == "memory" else sources, axis=0)
        if "source_length" in state.shape:
            chosen = _fit(graph, chosen, old, 1 + state.shape.index("source_length"))
        _scatter(graph, state, old, slots if state.kind == "memory" else targets, chosen, dtype)
    return graph.finish()


def _copy(name: str, states: Sequence[State], dtype: type[np.floating[Any]]) -> bytes:
    """Return the graph that copies entries `sources` of every state to entries `targets`."""
    graph = GraphBuilder(name, WeightFiles(), dtype)
    sources, targets = (graph.input(each, np.int64, ["copied"]) for each in (bundle.SOURCES, bundle.TARGETS))
    for state in states:
        old = _declare(graph, state, dtype)
        _scatter(graph, state, old, targets, graph.op("Gather", old, sources, axis=0), dtype)
    return graph.finish()


def _declare(graph: GraphBuilder, state: State, dtype: type[np.floating[Any]]) -> str:
    return graph.input(state.name, dtype, [_first(state), *state.shape])


def _scatter(
    graph: GraphBuilder, state: State, old: str, places: str, values: str, dtype: type[np.floating[Any]]
) -> None:
    """Output a state with values at some places of its first dimension."""
    changed = graph.declare_output(bundle.changed_name(state.name), dtype, [_first(state), *state.shape])
    graph.op("ScatterND", old, graph.op("Unsqueeze", places, graph.int64s(1)), values, named=changed)


def _first(state: State) -> str:
    return "sentences" if state.kind == "memory" else "rows"


def _fit(graph: GraphBuilder, values: str, like: str, axis: int) -> str:
    """Return values with the size of `like` along an axis: cut, or continued with zeros."""
    width = graph.op("Shape", like, start=axis, end=axis + 1)
    cut = graph.op("Slice", values, graph.int64s(0), width, graph.int64s(axis))
    missing = graph.op("Sub", width, graph.op("Shape", cut, start=axis, end=axis + 1))
    before, after = graph.op("Shape", cut, start=0, end=axis), graph.op("Shape", cut, start=axis + 1)
    zero = numpy_helper.from_array(np.zeros(1, graph.dtype))
    zeros = graph.op("ConstantOfShape", graph.op("Concat", before, missing, after, axis=0), value=zero)
    return graph.op("Concat", cut, zeros, axis=axis)
