"""The attention of the recurrent systems as ONNX nodes: scores, windows, weights and contexts.

Queries are rows; the rows of a sentence are adjacent and read one copy of its memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto
from torch import nn

from lingon.bundle import State
from lingon.export.graphs.layers import MASKED, Layers
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.export.graphs.recurrent.products import ProductPerceptron
from lingon.training.models.recurrent.luong import MonotonicWindow, PredictiveWindow, Window
from lingon.training.models.recurrent.scores import Additive, Content, General, ScaledDot, Score

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
    """Return the keys of annotations (batch, source_length, annotation_dim); what does not depend on states is in them.

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
    """Return attention weights from scores; those of padding, and beyond a window, are exactly 0."""
    graph = layers.graph
    places = graph.count_up(graph.op("Shape", scores, start=2))
    lengths = graph.op("Unsqueeze", memory.lengths, graph.int64s(1, 2))
    visible = graph.op("Less", places, lengths)
    if not isinstance(window, MonotonicWindow):
        return _masked_softmax(graph, scores, visible)
    centre = _centre(layers, window, states, positions, lengths, memory.batch)
    distance = graph.op("Sub", graph.op("Cast", places, to=TensorProto.FLOAT), centre)
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
