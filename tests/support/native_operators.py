"""Our own operators alone: models of one node, their formulas in NumPy, and a digest of all results."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

from lingon.export.graphs.onnx_writer import IR_VERSION, KERNELS, OPSET
from lingon.serving.runtime.device import LIBRARY
from tests.support.repository import ROOT

Arrays = Sequence[np.ndarray | None]
"""The inputs of a node; None for one that is optional and missing."""

OUTPUTS = {
    "Linear": ["float32"],
    "FloatLinear": ["float32"],
    "GatherColumns": ["int8", "int32", "float32", "float32"],
    "PackedLinear": ["float32"],
    "FloatGatherColumns": ["float32", "float32"],
    "FloatPackedLinear": ["float32"],
    "StepCell": ["float32", "float32"],
    "StepAttention": ["float32", "float16", "float16"],
    "StepAttention32": ["float32", "float32", "float32"],
    "CrossAttention": ["float32"],
    "SelfAttention": ["float32"],
    "Tokens": ["int64", "int64"],
    "Memory": ["float16", "float16"],
    "Memory32": ["float32", "float32"],
    "Candidates": ["int64", "float32"],
    "Embed": ["float32"],
    "BeamStep": [
        *("int64", "int64", "int64", "float32", "int64", "float32", "int32"),
        *("bool", "float32", "int64", "float32", "bool"),
    ],
}
"""The types of the outputs, by operator."""

CONSTANT: dict[str, Container[int]] = {
    "Linear": range(1, 6),
    "FloatLinear": range(1, 5),
    "GatherColumns": range(1, 4),
    "PackedLinear": range(5, 7),
    "FloatGatherColumns": range(1, 3),
    "FloatPackedLinear": range(3, 5),
    "Embed": (1, 3),
    "CrossAttention": (4,),
}
"""The positions of constant inputs, by operator."""

MOST_LEVEL = 255  # of a quantised activation, whose least value is 0
ROUNDING = np.float32(12582912)  # 1.5 * 2^23: adding and subtracting it rounds to the nearest even integer


OPTIONAL = {"CrossAttention": ["float32"], "BeamStep": ["int32"]}
"""The types of the last outputs that a node may leave out, by operator."""


def session_of(
    op: str,
    inputs: Arrays,
    *,
    threads: int = 1,
    constant: Container[int] | None = None,
    optional: bool = False,
    **attributes: Any,
) -> ort.InferenceSession:
    """Return a session of a model that has one node. Variable inputs are named by their positions.

    optional: whether the node has the outputs of OPTIONAL
    """
    types = [*OUTPUTS[op], *(OPTIONAL[op] if optional else [])]
    constant = CONSTANT.get(op, range(0)) if constant is None else constant
    names = ["" if value is None else str(position) for position, value in enumerate(inputs)]
    given = {position: value for position, value in enumerate(inputs) if value is not None}
    results = [f"out.{position}" for position in range(len(types))]
    node = helper.make_node(op, names, results, domain=KERNELS, **attributes)
    graph = helper.make_graph(
        [node],
        op,
        [
            helper.make_tensor_value_info(
                str(position),
                helper.np_dtype_to_tensor_dtype(value.dtype),
                [f"{position}.{axis}" for axis in range(value.ndim)],
            )
            for position, value in given.items()
            if position not in constant
        ],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
            for name, dtype in zip(results, types, strict=True)
        ],
        [numpy_helper.from_array(value, str(position)) for position, value in given.items() if position in constant],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(KERNELS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(LIBRARY))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(op: str, *inputs: np.ndarray | None, threads: int = 1, **attributes: Any) -> list[np.ndarray]:
    """Return the outputs of one node."""
    session = session_of(op, inputs, threads=threads, **attributes)
    found: list[np.ndarray] = session.run(None, feed_of(op, inputs))
    return found


def feed_of(op: str, inputs: Arrays) -> dict[str, np.ndarray]:
    """Return the inputs that a session of session_of takes."""
    constant = CONSTANT.get(op, range(0))
    return {
        str(position): value for position, value in enumerate(inputs) if value is not None and position not in constant
    }


def refusal(op: str, *inputs: np.ndarray | None, **attributes: Any) -> str:
    """Return the message with which a node is refused, a line from the name of the operator on."""
    try:
        run(op, *inputs, **attributes)
    except Exception as error:
        message = str(error)
        assert "\n" not in message.strip(), message
        assert f"lingon.{op} " in message, message
        return message.partition(f"lingon.{op} ")[2]
    raise AssertionError(f"{op} computes what it should refuse")


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether arrays are equal to the last bit. Every NaN counts as the same."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not np.issubdtype(first.dtype, np.floating):
        return bool((first == second).all())
    both_nan, bits = np.isnan(first) & np.isnan(second), f"i{first.itemsize}"
    return bool(((first.view(bits) == second.view(bits)) | both_nan).all())


def total(values: np.ndarray) -> np.ndarray:
    """Return the sum of the last dimension of (rows, columns) float32, in the order of the operators."""
    lanes = np.zeros((len(values), 32), np.float32)
    for begin in range(0, values.shape[1], 32):
        part = values[:, begin : begin + 32]
        lanes[:, : part.shape[1]] += part
    for half in (16, 8):
        lanes = lanes[:, :half] + lanes[:, half:]
    return ((lanes[:, 0] + lanes[:, 4]) + (lanes[:, 2] + lanes[:, 6])) + (
        (lanes[:, 1] + lanes[:, 5]) + (lanes[:, 3] + lanes[:, 7])
    )


def normalised(rows: np.ndarray, norm: int, epsilon: float, gain: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return rows after a norm: 1 is the layer norm, 2 the RMS norm."""
    count = np.float32(rows.shape[1])
    mean = total(rows) / count if norm == 1 else np.zeros(len(rows), np.float32)
    apart = rows - mean[:, None]
    inverse = np.float32(1) / np.sqrt(total(apart * apart) / count + np.float32(epsilon))
    scaled = apart * inverse[:, None] * gain
    return scaled if bias is None else scaled + bias


def quantised(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the levels of rows (rows, columns), the scale of each row, NaN if it is not finite, and its zero point."""
    finite = np.isfinite(rows).all(axis=1)
    held = np.where(np.isnan(rows), 0, rows)
    least, most = np.minimum(held.min(axis=1), 0), np.maximum(held.max(axis=1), 0)
    extent = most - least
    finite &= extent <= np.finfo(np.float32).max
    scale = np.where(extent > np.float32(1e-30), extent / np.float32(MOST_LEVEL), np.float32(1)).astype(np.float32)
    inverse = np.float32(1) / scale
    zero = ROUNDING - (least * inverse + ROUNDING)
    level = (held * inverse[:, None] + ROUNDING) - ROUNDING + zero[:, None]
    levels = np.where(finite[:, None], np.minimum(level, MOST_LEVEL), 0).astype(np.int32)
    return levels, np.where(finite, scale, np.float32(np.nan)), np.where(finite, zero, 0).astype(np.int32)


def product(rows: np.ndarray, columns: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the product of rows, each quantised by itself, with 8-bit columns (inputs, outputs)."""
    levels, row_scale, zero = quantised(rows)
    sums = levels.astype(np.int64) @ columns.astype(np.int64)
    sums -= zero[:, None].astype(np.int64) * columns.astype(np.int64).sum(axis=0)
    return sums.astype(np.float32) * (row_scale[:, None] * scale) + bias


def float_product(rows: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the product of rows with weights (outputs, inputs): each output adds its products in order, each rounded
    once.
    """
    found = np.zeros((len(rows), len(weights)), np.float32)
    for column, weight in zip(rows.T.astype(np.float64), weights.T.astype(np.float64), strict=True):
        found = (column[:, None] * weight + found).astype(np.float32)  # float64 holds the product exactly
    return found + bias


def linear(inputs: Arrays, *, norm: int = 0, epsilon: float = 1e-5, relu: int = 0) -> np.ndarray:
    """See Linear in kernels/products.cpp."""
    return _product_with_ends(product, 3, inputs, norm, epsilon, relu)


def float_linear(inputs: Arrays, *, norm: int = 0, epsilon: float = 1e-5, relu: int = 0) -> np.ndarray:
    """See FloatLinear in kernels/products.cpp."""
    return _product_with_ends(float_product, 2, inputs, norm, epsilon, relu)


def _product_with_ends(
    multiply: Callable[..., np.ndarray], parts: int, inputs: Arrays, norm: int, epsilon: float, relu: int
) -> np.ndarray:
    """Return the norm of rows, their product, a ReLU and a residual. parts: arrays that the product reads besides
    rows.
    """
    rows, *rest = [*inputs, *[None] * (4 + parts - len(inputs))]
    weights, (gain, bias, residual) = rest[:parts], rest[parts:]
    assert rows is not None
    assert all(each is not None for each in weights)
    with np.errstate(all="ignore"):
        if norm:
            assert gain is not None
            rows = normalised(rows, norm, epsilon, gain, bias if norm == 1 else None)
        found = multiply(rows, *weights)
        if relu:
            found = np.where(found < 0, np.float32(0), found)
        return found if residual is None else found + residual


def attention(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """Return the attention of one query (size) to keys and values (length, size), in float64."""
    found: np.ndarray = attention_weights(query, keys, scale) @ values.astype(np.float64)
    return found


def attention_weights(query: np.ndarray, keys: np.ndarray, scale: float) -> np.ndarray:
    """Return the weight of each key (length, size) for one query (size), (length), in float64."""
    scores = keys.astype(np.float64) @ query.astype(np.float64) * scale
    weights = np.exp(scores - scores.max())
    found: np.ndarray = weights / weights.sum()
    return found


def candidates(logits: np.ndarray, count: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the largest logits of each row, and their log-probabilities in float64. allowed: as
    logits.
    """
    exact = logits.astype(np.float64)
    if allowed is not None:
        exact = np.where(allowed, exact, -np.inf)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :count]
    top = exact.max(axis=1, keepdims=True)
    log_probs = exact - top - np.log(np.exp(exact - top).sum(axis=1, keepdims=True))
    return order, np.take_along_axis(log_probs, order, axis=1)


def instruction_sets() -> list[str]:
    """Return the instruction sets of the library that this processor has."""
    names = ("amx", "avx512_vnni", "avx_vnni", "avx2", "i8mm", "neon", "portable")
    ask = "from lingon.serving.runtime.device import instruction_set; print(instruction_set())"
    return [name for name in names if in_process(name, ask).strip() == name.encode()]


def in_process(instruction_set: str, code: str, *arguments: str) -> bytes:
    """Return the output of a Python program in a process whose operators use one instruction set."""
    environment: Mapping[str, str] = {**os.environ, "LINGON_KERNELS": instruction_set}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def print_outputs() -> None:
    """Print a digest of each result. Every NaN counts as the same."""
    for position, value in enumerate(outputs()):
        held = np.where(np.isnan(value), value.dtype.type(np.nan), value) if value.dtype.kind == "f" else value
        print(position, hashlib.sha256(held.tobytes()).hexdigest())  # noqa: T201


def outputs() -> Iterator[np.ndarray]:
    """Yield the results of all operators, of several shapes and magnitudes."""
    for seed, scale in enumerate((1.0, 1e-38, 1e30, 30.0)):
        draw = np.random.default_rng(seed)

        def floats(*shape: int, draw: np.random.Generator = draw, scale: float = scale, seed: int = seed) -> np.ndarray:
            found = (draw.normal(size=shape) * scale).astype(np.float32)
            found.reshape(-1)[:: 53 + seed] = [np.nan, np.inf, 0, -0.0][seed]
            return found

        yield from products(draw, floats(7, 77))
        yield from products(draw, floats(37, 128))
        yield from run("StepCell", floats(3, 154), floats(3, 77), floats(3, 77))
        lengths, positions = np.array([5, 11, 1]), np.array([0, 12, 7])
        caches = halves(floats(3, 2, 13, 24), floats(3, 2, 13, 24))
        yield from run("StepAttention", floats(3, 144), *caches, positions, heads=2, scale=0.2)
        wide = floats(3, 2, 13, 24), floats(3, 2, 13, 24)
        yield from run("StepAttention32", floats(3, 144), *wide, positions, heads=2, scale=0.2)
        memory = halves(floats(3, 2, 24, 11), floats(3, 2, 11, 24))
        yield from run("CrossAttention", floats(6, 48), *memory, lengths, heads=2, scale=0.2)
        wide = floats(3, 2, 24, 11), floats(3, 2, 11, 24)
        yield from run("CrossAttention", floats(6, 48), *wide, lengths, heads=2, scale=0.2)
        aligned = np.array([1, 0])
        yield from run("CrossAttention", floats(27, 48), *memory, lengths, aligned, optional=True, heads=2, scale=0.2)
        for causal, narrow in ((0, 1), (1, 1), (1, 0)):
            given = floats(17, 144), lengths
            yield from run("SelfAttention", *given, heads=2, scale=0.2, causal=causal, narrow=narrow)
        yield from run("Memory32", floats(17, 96), np.zeros((3, 11), np.int64), lengths, heads=2, layers=2, layer=1)
        yield from run("Memory", floats(17, 96), np.zeros((3, 11), np.int64), lengths, heads=2, layers=2, layer=1)
        yield from run("Candidates", floats(3, 1000), np.array([9]))
        allowed = draw.random((3, 1000)) < 0.3
        yield from run("Candidates", floats(6, 1000), np.array([9]), np.arange(1000), allowed)


def halves(*values: np.ndarray) -> list[np.ndarray]:
    """Return values as float16. Values beyond its range are infinite."""
    with np.errstate(over="ignore"):
        return [each.astype(np.float16) for each in values]


def products(draw: np.random.Generator, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the results of Linear and FloatLinear, with every norm, and of their gathered columns."""
    inputs, outputs = rows.shape[1], 93
    columns = draw.integers(-63, 64, (inputs, outputs)).astype(np.int8)
    weights = columns, draw.random(outputs, np.float32), draw.random(outputs, np.float32)
    norm = draw.random(inputs, np.float32), draw.random(inputs, np.float32)
    for kind in range(3):
        added = draw.random((len(rows), outputs), np.float32)
        gains = norm if kind == 1 else (norm[0], None)
        yield from run("Linear", rows, *weights, *gains, added, norm=kind, epsilon=1e-6, relu=kind % 2)
        for dtype in (np.float32, np.float16):
            given = rows, draw.normal(size=(outputs, inputs)).astype(dtype), weights[2], *gains, added
            yield from run("FloatLinear", *given, norm=kind, epsilon=1e-6, relu=kind % 2)
    chosen = run("GatherColumns", draw.integers(0, outputs, 21), *weights)
    yield from run("PackedLinear", rows, *chosen, *norm, norm=1, epsilon=1e-6)
    of_floats = draw.normal(size=(outputs, inputs)).astype(np.float32), weights[2]
    chosen = run("FloatGatherColumns", draw.integers(0, outputs, 21), *of_floats)
    yield from run("FloatPackedLinear", rows, *chosen, *norm, norm=1, epsilon=1e-6)
