"""The graphs that change states on a device, against NumPy: for states of any size, and in blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from lingon.bundle import names
from lingon.bundle.manifest import State
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build
from lingon.export.graphs.state_graphs import state_graphs
from lingon.serving.runtime.device import CPU, FP32_ON_CUDA
from lingon.serving.runtime.device_buffers import Device, bind_in_place
from tests.support.random_models import random_model

STATES = (
    State("key", "memory", (2, 8, "source_length")),
    State("value", "memory", (2, "source_length", 8)),
    State("odd", "memory", (3, "source_length")),
    State("past", "cache", (2, "capacity", 8)),
    State("cell", "recurrent", (6,)),
    State("single", "recurrent", (5,)),
)
SIZES = {"source_length": 7, "capacity": 9}
BEAM = 2
MEMORY = [state for state in STATES if state.kind == "memory"]
ROWS = [state for state in STATES if state.kind != "memory"]


def run(content: bytes, states: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The states after a graph has changed them in place."""
    session = ort.InferenceSession(content)
    device = Device(CPU)
    arrays = {name: device.array(array) for name, array in states.items()}
    kept = {name: device.array(array) for name, array in values.items()}
    binding = bind_in_place(session, arrays, kept)
    session.run_with_iobinding(binding)
    return {name: array.read() for name, array in arrays.items()}


def random_states(states: list[State], count: int, dtype: Any, **sizes: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(len(states))
    return {
        state.name: random.standard_normal((count, *state.sized(**(SIZES | sizes)))).astype(dtype) for state in states
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("graph", "states"), [(names.COPY_MEMORY, MEMORY), (names.COPY_ROWS, ROWS)])
def test_copies_replace_the_targets_alone_bit_by_bit(graph: str, states: list[State], dtype: Any) -> None:
    before = random_states(states, 5, dtype)
    for array in before.values():
        array[0] = np.nan  # a past may hold anything beyond its length
    sources, targets = np.array([0, 0, 3]), np.array([4, 1, 2])
    graphs = state_graphs(STATES, dtype)
    after = run(graphs[graph], before, {names.SOURCES: sources, names.TARGETS: targets})
    for name, array in before.items():
        expected = array.copy()
        expected[targets] = array[sources]
        assert np.array_equal(after[name].view(np.uint8), expected.view(np.uint8)), name


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("length", [4, 7, 12])
def test_placed_memory_is_cut_or_continued_with_zeros(length: int, dtype: Any) -> None:
    slots, indices = np.array([3, 0]), np.array([1, 2])
    placed = [state for state in STATES if state.kind != "cache"]
    before = random_states(MEMORY, 4, dtype) | random_states(ROWS[1:], 4 * BEAM, dtype)
    encoded = random_states(placed, 3, dtype, source_length=length)
    rows = (slots[:, None] * BEAM + np.arange(BEAM)).ravel()
    numbers = {names.SLOTS: slots, names.INDICES: indices}
    numbers |= {names.TARGETS: rows, names.SOURCES: np.repeat(indices, BEAM)}
    values = numbers | {names.encoded_name(name): array for name, array in encoded.items()}
    after = run(state_graphs(STATES, dtype)[names.PLACE], before, values)
    for state in placed:
        expected = before[state.name].copy()
        if state.kind == "recurrent":
            expected[rows] = encoded[state.name][np.repeat(indices, BEAM)]
        else:
            axis = 1 + state.shape.index("source_length")
            kept = [slice(None)] * expected.ndim
            kept[axis] = slice(min(length, SIZES["source_length"]))
            expected[slots] = 0
            for slot, index in zip(slots, indices, strict=True):
                expected[slot][tuple(kept[1:])] = encoded[state.name][index][tuple(kept[1:])]
        assert np.array_equal(after[state.name], expected), state.name


@pytest.mark.parametrize("block", [0, -1, 3, 2**40])
def test_blocks_that_do_not_divide_an_entry_are_refused(block: int) -> None:
    array = Device(CPU).allocate((2, 4, 5), np.float32)
    with pytest.raises(ValueError, match=rf"\b80\b.* got {8 * block}$"):
        array.in_blocks(np.int64, block)


@pytest.mark.parametrize("precision", ["fp16", FP32_ON_CUDA])
@pytest.mark.parametrize("settings", [{}, {"decoder_cell": "ssru"}, {"score": "additive"}])
def test_no_thread_of_a_card_copies_more_than_a_block(precision: str, settings: dict[str, Any]) -> None:
    """A thread of ScatterND copies what one entry of the indices names, one value after the other."""
    built = build(random_model(**settings), precision, WeightFiles(), [], shortlist=False).graphs
    for name in (names.PLACE, names.COPY_MEMORY, names.COPY_ROWS):
        model = onnx.load_model_from_string(built[f"{precision}/{name}"])
        declared = {value.name: value.type.tensor_type for value in model.graph.input}
        written = [node.input[0] for node in model.graph.node if node.op_type == "ScatterND"]
        assert written
        for state in written:
            sizes = [size.dim_value for size in declared[state].shape.dim]
            itemsize = onnx.helper.tensor_dtype_to_np_dtype(declared[state].elem_type).itemsize
            assert len(sizes) == 3
            assert 0 < math.prod(sizes[2:]) * itemsize <= 16
