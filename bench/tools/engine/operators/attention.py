"""Attention of a decoder step: over the past of a row, and over the source of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import onnx
from onnx import helper

from lingon.bench.tools.engine.operators.case import LATEST_OPSET, TYPES, Arrays, Case, Outputs
from lingon.export.graphs.onnx_writer import CONTRIB, OPSET

REPEATED = 8
HEADS = ((8, 64), (4, 128), (16, 64), (8, 128))  # heads and width of a head, of the models base and big
MASKED = -6e4  # added to a score, as in the exported graphs
SELF, CROSS = "self-attention of a step", "cross-attention of a step"


def cases(rows: tuple[int, ...], capacities: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[Case]:
    """All cases. rows: of a step; capacities: positions of a past; widths: positions of a source."""
    for (heads, head_dim), count, capacity, kind in product(HEADS, rows, capacities, ("fp16", "bf16")):
        yield self_attention(heads, head_dim, count, capacity, kind)
    for count, width, beams, kind in product(rows, widths, (1, 4), ("fp16", "bf16")):
        yield from cross_attention(count, width, beams, kind)


def self_attention(heads: int, head_dim: int, rows: int, capacity: int, kind: str) -> Case:
    """GroupQueryAttention over pasts of different lengths, whose new position is written in place."""
    random = np.random.default_rng(0)
    dim, lengths = heads * head_dim, (capacity - 1 - np.arange(rows) % (capacity // 2)).astype(np.int32)
    query, key, value = (_normal(random, rows, 1, dim) for _ in range(3))
    past_key, past_value = (_normal(random, rows, heads, capacity, head_dim) for _ in range(2))
    inputs: Arrays = {
        "query": query,
        "key": key,
        "value": value,
        "past_key": past_key,
        "past_value": past_value,
        "lengths": lengths,
        "total": np.array(capacity, np.int32),
    }
    keys, values = past_key.copy(), past_value.copy()
    for past, new in ((keys, key), (values, value)):
        past[np.arange(rows), :, lengths] = new.reshape(rows, heads, head_dim)
    seen = np.arange(capacity) <= lengths[:, None]
    state, code = (rows, heads, capacity, head_dim), TYPES[kind]

    def outputs(count: int) -> Outputs:
        states = {f"{name}.{each}": (state, code) for each in range(count) for name in ("keys", "values")}
        return {**states, _result(count - 1): ((rows, 1, dim), code)}

    return Case(
        question=SELF,
        variant="GroupQueryAttention",
        sizes=f"rows {rows}, capacity {capacity}, heads {heads} x {head_dim}",
        kind=kind,
        nodes=lambda count: _grouped(count, heads, head_dim, "key", "value"),
        inputs=inputs,
        outputs=outputs,
        shared={"keys": "past_key", "values": "past_value"},
        host=("total",),
        expected=attended(query.reshape(rows, heads, 1, head_dim), keys, values, seen).reshape(rows, 1, dim),
        repeated=REPEATED,
    )


def cross_attention(
    sentences: int, width: int, beams: int, kind: str, heads: int = 8, head_dim: int = 64
) -> list[Case]:
    """The ways to attend from the beams of a sentence over a source of its own length."""
    random = np.random.default_rng(0)
    lengths = width - np.arange(sentences) % (width // 2)
    query = _normal(random, sentences, heads, beams, head_dim)
    key, value = (_normal(random, sentences, heads, width, head_dim) for _ in range(2))
    seen = np.arange(width) < lengths[:, None]
    expected = attended(query, key, value, seen)
    sizes = f"sentences {sentences}, beam {beams}, width {width}, heads {heads} x {head_dim}"
    rows_of_beams = query.transpose(0, 2, 1, 3).reshape(sentences, beams, -1)
    expected_rows = expected.transpose(0, 2, 1, 3).reshape(sentences, beams, -1)
    empty = np.zeros((sentences, 0, heads * head_dim), np.float32)
    past = {"past_key": key, "past_value": value, "lengths": lengths.astype(np.int32) - 1}
    bias = np.where(seen, 0, MASKED).astype(np.float32)[:, None, None]

    def case(variant: str, inputs: Arrays, nodes: Callable[[int], list[onnx.NodeProto]], found: np.ndarray) -> Case:
        def outputs(count: int) -> Outputs:
            return {_result(count - 1): (found.shape, TYPES[kind])}

        return Case(
            question=CROSS,
            variant=variant,
            sizes=sizes,
            kind=kind,
            nodes=nodes,
            inputs=inputs,
            outputs=outputs,
            host=("total",),
            expected=found,
            repeated=REPEATED,
            opset=LATEST_OPSET if nodes is _attention else OPSET,
        )

    products = {"query": query * np.float32(head_dim**-0.5), "key": key.transpose(0, 1, 3, 2), "value": value}
    grouped = {"query": rows_of_beams, "empty": empty, **past, "total": np.array(width, np.int32)}
    named = {"query": query, "key": key, "value": value, "lengths": lengths.astype(np.int64)}
    packed = {**named, "query": rows_of_beams, "lengths": lengths.astype(np.int32)}
    return [
        case("MatMul, Add, Softmax, MatMul", {**products, "bias": bias}, _products, expected),
        case(
            "GroupQueryAttention, causal 0",
            grouped,
            lambda count: _grouped(count, heads, head_dim, "empty", "empty", causal=0),
            expected_rows,
        ),
        case("Attention-24 with lengths", named, _attention, expected),
        case("MultiHeadAttention with lengths", packed, lambda count: _multi_head(count, heads), expected_rows),
    ]


def _products(count: int) -> list[onnx.NodeProto]:
    nodes = []
    for each in range(count):
        nodes += [
            helper.make_node("MatMul", [_result(each - 1), "key"], [f"scores.{each}"]),
            helper.make_node("Add", [f"scores.{each}", "bias"], [f"masked.{each}"]),
            helper.make_node("Softmax", [f"masked.{each}"], [f"weights.{each}"], axis=-1),
            helper.make_node("MatMul", [f"weights.{each}", "value"], [_result(each)]),
        ]
    return nodes


def _grouped(count: int, heads: int, head_dim: int, key: str, value: str, **attributes: int) -> list[onnx.NodeProto]:
    """GroupQueryAttention with as many heads of keys as of queries. key, value: what is added to the past."""
    return [
        helper.make_node(
            "GroupQueryAttention",
            [_result(each - 1), key, value, "past_key", "past_value", "lengths", "total"],
            [_result(each), f"keys.{each}", f"values.{each}"],
            domain=CONTRIB,
            num_heads=heads,
            kv_num_heads=heads,
            scale=head_dim**-0.5,
            **attributes,  # type: ignore[arg-type]
        )
        for each in range(count)
    ]


def _attention(count: int) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Attention", [_result(each - 1), "key", "value", "", "", "", "lengths"], [_result(each)])
        for each in range(count)
    ]


def _multi_head(count: int, heads: int) -> list[onnx.NodeProto]:
    inputs = ["key", "value", "", "lengths"]
    return [
        helper.make_node(
            "MultiHeadAttention", [_result(each - 1), *inputs], [_result(each)], domain=CONTRIB, num_heads=heads
        )
        for each in range(count)
    ]


def attended(query: np.ndarray, key: np.ndarray, value: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Scaled dot-product attention, equation 1 of Vaswani et al. (2017): (batch, heads, length, head_dim).

    query: (batch, heads, length, head_dim)
    key, value: (batch, heads, width, head_dim)
    seen: (batch, width), the positions that are attended to
    """
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    scores = np.where(seen[:, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: np.ndarray = (weights / weights.sum(-1, keepdims=True)) @ value
    return mixed


def _result(each: int) -> str:
    """The name of the result of a repetition, which is the query of the next one."""
    return "query" if each < 0 else f"result.{each}"


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)
