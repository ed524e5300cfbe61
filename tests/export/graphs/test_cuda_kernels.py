"""Every node of the graphs for CUDA has a kernel there, for its types, and reads nothing on the host but sizes.

A node without a kernel runs on the CPU: ONNX Runtime copies its inputs from the card and its outputs back, in every
step. No card is needed to find it: the tables below are those of onnxruntime-gpu 1.31, of its list of kernels.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, shape_inference

from lingon.bundle import names
from lingon.export.graphs.onnx_writer import KERNELS as OWN
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import PRECISION_KINDS, build
from lingon.export.graphs.transformer import TransformerGraphs, states
from lingon.serving.runtime.device import CUDA, FP16_NATIVE, FP32_ON_CUDA
from tests.support.random_models import random_model

HALF, FLOAT, INT32, INT64, BOOL = (
    TensorProto.FLOAT16,
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)
NUMBERS = {HALF, FLOAT, INT32, INT64}
EVERY = {*NUMBERS, BOOL}
REAL = {HALF, FLOAT}
KERNELS = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "GreaterOrEqual", "Min", "TopK"), NUMBERS),
    **dict.fromkeys(("Gemm", "MatMul", "Softmax", "LogSoftmax", "LayerNormalization", "Log", "Sigmoid"), REAL),
    **dict.fromkeys(("Relu", "Gelu", "Tanh", "Exp", "RotaryEmbedding"), REAL),
    **dict.fromkeys(("Abs", "Max"), NUMBERS),
    "And": {BOOL},
    **dict.fromkeys(
        ("Cast", "Concat", "Expand", "Gather", "GatherElements", "Identity", "Reshape", "ScatterND"), EVERY
    ),
    **dict.fromkeys(("Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"), EVERY),
    "GroupQueryAttention": {HALF},
    "SimplifiedLayerNormalization": REAL,
    "SkipLayerNormalization": REAL,
    "SkipSimplifiedLayerNormalization": REAL,
    "FusedMatMul": REAL,
    "GatherND": {HALF, FLOAT, INT64, BOOL},
    "ReduceMax": {HALF, FLOAT, INT32, INT64},
    "ConstantOfShape": EVERY,
    "Range": {FLOAT, INT32, INT64},
    "Mod": {HALF, FLOAT, INT32, INT64},
    "Where": {HALF, FLOAT, INT32, INT64},
}
"""The operators that have a kernel on CUDA, and the types of the first input that is no condition and no shape."""

HOST_INPUTS = {
    "Expand": (1,),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "TopK": (1,),
    "Range": (0, 1, 2),
    "ConstantOfShape": (0,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "ReduceMax": (1,),
    "Split": (1,),
    "GroupQueryAttention": (6,),
}
"""The inputs that the kernels read in main memory."""

SHAPE_ARITHMETIC = {"Concat", "Div", "Min", "Mul", "Squeeze", "Sub", "Unsqueeze"}
ON_HOST = {names.CANDIDATE_COUNT, names.TOTAL_LENGTH}  # inputs of the graphs that the runner keeps there
SETTINGS = [
    {},
    {"norm": "pre", "activation": "gelu"},
    {"activation": "silu", "positions": "learned", "tie": "none"},
    {"positions": "rotary", "encoder_window": 3},
    {"positions": "none", "encoder_attention": "linear"},
    {"positions": "rotary", "score": "additive"},
    {"norm": "pre", "norm_kind": "rms"},
    {
        "norm": "sandwich",
        "decoder_window": 2,
        "full_attention_every": 2,
        "attention_softcap": 2.0,
        "output_softcap": 3.0,
    },
]


CARD_OPERATORS = {
    *("Embed", "FloatLinear", "StepAttention", "CrossAttention", "SelfAttention", "PlaceMemory"),
    *("Choose", "ChooseWithLogits", "GreedyStep", "BeamStep"),
}
"""Our own operators that have a kernel on CUDA. The graph of beam search runs on the CPU."""

CARD_SIZES: dict[str, object] = {"dim": 64, "heads": 2}  # heads of 32 dimensions
CARD_SETTINGS: list[dict[str, object]] = [
    {},
    {"norm": "pre", "activation": "gelu"},
    {"activation": "silu", "positions": "learned", "tie": "none"},
    {"norm": "pre", "norm_kind": "rms", "gated": True, "activation": "gelu-tanh"},
    {"norm": "both", "query_norm": True, "embedding_norm": True},
]

PRECISIONS = [name for name, kind in PRECISION_KINDS.items() if kind.provider == CUDA and not kind.native]
grids = pytest.mark.parametrize(
    ("precision", "settings"),
    [(name, settings) for name in PRECISIONS for settings in SETTINGS]
    + [(FP16_NATIVE, {**CARD_SIZES, **settings}) for settings in CARD_SETTINGS],
)


def graphs(precision: str = "fp16", **settings: object) -> dict[str, onnx.GraphProto]:
    """The graphs for CUDA of a random model, with the types and shapes that ONNX infers."""
    built = build(random_model(**settings), precision, WeightFiles(), [], shortlist=True).graphs
    return {
        path.removeprefix(f"{precision}/"): shape_inference.infer_shapes(onnx.load_model_from_string(content)).graph
        for path, content in built.items()
    }


def types_of(graph: onnx.GraphProto) -> dict[str, int]:
    values = (*graph.input, *graph.output, *graph.value_info)
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return found | {each.name: each.data_type for each in graph.initializer}


@grids
def test_every_node_has_a_kernel_on_cuda(precision: str, settings: dict[str, object]) -> None:
    for name, graph in graphs(precision, **settings).items():
        types = types_of(graph)
        for node in graph.node:
            if node.domain == OWN:
                assert node.op_type in CARD_OPERATORS, (name, node.name)
                continue
            assert node.op_type in KERNELS, (name, node.name)
            value = node.input[1 if node.op_type == "Where" else 0]
            if value in types:  # types after operators of other domains are not inferred
                assert types[value] in KERNELS[node.op_type], (name, node.name, types[value])


@grids
def test_what_kernels_read_on_the_host_is_never_computed_on_the_card(
    precision: str, settings: dict[str, object]
) -> None:
    """Otherwise every step waits for the card, and it cannot be captured as a CUDA graph."""
    for name, graph in graphs(precision, **settings).items():
        on_host = {each.name for each in graph.initializer} | ON_HOST
        for node in graph.node:
            host_inputs = [node.input[place] for place in HOST_INPUTS.get(node.op_type, ()) if place < len(node.input)]
            wrong = [each for each in host_inputs if each and each not in on_host]
            assert not wrong, (name, node.name, wrong)
            if node.op_type == "Shape" or (node.op_type in SHAPE_ARITHMETIC and set(node.input) <= on_host):
                on_host |= set(node.output)


@pytest.mark.parametrize("score", ["scaled-dot", "additive"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_past_is_read_by_the_one_node_that_writes_its_present(precision: str, score: str) -> None:
    """The runner binds both to the same memory. Shape reads no values."""
    caches = [each.name for each in states(random_model(score=score)) if each.kind == "cache"]
    for name in (names.DECODER, names.GREEDY):
        graph = graphs(precision, score=score)[name]
        for state in caches:
            readers = [node for node in graph.node if node.op_type != "Shape" and names.past_name(state) in node.input]
            assert [node.op_type for node in readers] == [
                "ScatterND" if precision == FP32_ON_CUDA or score == "additive" else "GroupQueryAttention"
            ]
            assert names.present_name(state) in readers[0].output


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_length_of_the_caches_is_an_input_only_of_graphs_with_states_on_the_device(precision: str) -> None:
    found = {name: {each.name for each in graph.input} for name, graph in graphs(precision).items()}
    assert [name for name, inputs in found.items() if names.TOTAL_LENGTH in inputs] == [names.DECODER, names.GREEDY]
    plain = TransformerGraphs(random_model(), np.float32, WeightFiles()).files()
    decoder = onnx.load_model_from_string(plain[names.DECODER]).graph
    assert names.TOTAL_LENGTH not in {each.name for each in decoder.input}
    assert not plain.keys() & {names.GREEDY, names.PLACE, names.COPY_MEMORY, names.COPY_ROWS}
