"""The formulas of the recurrent systems in NumPy, one sentence and one position at a time, without code of Lingon.

weights: the tensors of a model by their names. A state is a tuple: hidden state, and for an LSTM its cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NamedArrays = Mapping[str, Array]
ArrayState = tuple[Array, ...]


def sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-values)))


def softmax(values: Array) -> Array:
    shares = np.exp(values - values.max())
    return np.asarray(shares / shares.sum())


def cell(weights: NamedArrays, name: str, kind: str, inputs: Array, state: ArrayState) -> ArrayState:
    """Return one step of the layer `name`: the GRU, in the form of cuDNN, or the LSTM."""
    width = len(state[0])
    of_input = weights[f"{name}.kernel.weight_ih_l0"] @ inputs + weights[f"{name}.kernel.bias_ih_l0"]
    of_state = weights[f"{name}.kernel.weight_hh_l0"] @ state[0] + weights[f"{name}.kernel.bias_hh_l0"]
    gates = [slice(first, first + width) for first in range(0, len(of_input), width)]
    if kind == "gru":
        r, z = (sigmoid(of_input[gate] + of_state[gate]) for gate in gates[:2])
        n = np.tanh(of_input[gates[2]] + r * of_state[gates[2]])
        return ((1 - z) * n + z * state[0],)
    i, f, o = (sigmoid(of_input[gate] + of_state[gate]) for gate in (gates[0], gates[1], gates[3]))
    g = np.tanh(of_input[gates[2]] + of_state[gates[2]])
    c = f * state[1] + i * g
    return o * np.tanh(c), c


def zeros(kind: str, width: int) -> ArrayState:
    return (np.zeros(width),) * (1 if kind == "gru" else 2)


def score(weights: NamedArrays, name: str, kind: str, s: Array, h: Array) -> float:
    """Return the score of a state s with an annotation h."""
    match kind:
        case "dot":
            return float(s @ h)
        case "scaled-dot":
            return float(s @ h) / math.sqrt(len(s))
        case "content":
            return float(weights[f"{name}.strength"] * (s @ h) / (np.linalg.norm(s) * np.linalg.norm(h)))
        case "additive":
            hidden = np.tanh(weights[f"{name}.of_state.weight"] @ s + weights[f"{name}.of_annotation.weight"] @ h)
        case "general":
            return float(s @ weights[f"{name}.product.weight"] @ h)
        case "concat":
            hidden = np.tanh(weights[f"{name}.product.weight"] @ np.concatenate([s, h]))
        case "mlp":
            first = weights[f"{name}.first.weight"] @ np.concatenate([s, h]) + weights[f"{name}.first.bias"]
            hidden = np.tanh(weights[f"{name}.second.weight"] @ np.tanh(first) + weights[f"{name}.second.bias"])
    return float(weights[f"{name}.weight.weight"][0] @ hidden)


def embedded(weights: NamedArrays, side: str, tokens: Sequence[int]) -> list[Array]:
    table = weights[f"{side}_embedding.pieces.weight"]
    return [math.sqrt(table.shape[1]) * table[token] for token in tokens]


def read(weights: NamedArrays, name: str, kind: str, inputs: Sequence[Array]) -> list[ArrayState]:
    """Return the state after each input, from zeros on."""
    state, states = zeros(kind, weights[f"{name}.kernel.weight_hh_l0"].shape[1]), []
    for each in inputs:
        state = cell(weights, name, kind, each, state)
        states.append(state)
    return states


def read_stack(weights: NamedArrays, settings: Any, inputs: list[Array]) -> tuple[list[Array], list[ArrayState]]:
    """Return the hidden states of the encoder's last layer, and the last state of each of its layers."""
    last = []
    for layer in range(settings.layers):
        states = read(weights, f"encoder.layers.{layer}", settings.cell, inputs)
        inputs = [state[0] for state in states]
        last.append(states[-1])
    return inputs, last


def step_stack(weights: NamedArrays, settings: Any, inputs: Array, states: list[ArrayState]) -> list[ArrayState]:
    """Return the states of the decoder's layers after one more input."""
    found = []
    for layer, state in enumerate(states):
        found.append(cell(weights, f"decoder.layers.{layer}", settings.cell, inputs, state))
        inputs = found[-1][0]
    return found


def rnnenc(weights: NamedArrays, settings: Any, source: list[int], target: list[int]) -> Array:
    """Return the logits (target_length, vocab) of RNNenc. The source ends with EOS, the target begins with BOS."""
    if settings.reverse_source:
        source = [*source[:-1][::-1], source[-1]]
    _, states = read_stack(weights, settings, embedded(weights, "source", source))
    logits = []
    for token in embedded(weights, "target", target):
        states = step_stack(weights, settings, token, states)
        logits.append(weights["output.weight"] @ states[-1][0])
    return np.array(logits)


def rnnsearch(weights: NamedArrays, settings: Any, source: list[int], target: list[int]) -> tuple[Array, Array]:
    """Return the logits (target_length, vocab) and the weights (target_length, source_length) of RNNsearch."""
    inputs = embedded(weights, "source", source)
    ahead = read(weights, "encoder.ahead", settings.cell, inputs)
    back = read(weights, "encoder.back", settings.cell, inputs[::-1])[::-1]
    annotations = [np.concatenate([one[0], other[0]]) for one, other in zip(ahead, back, strict=True)]
    first = np.tanh(weights["first_state.weight"] @ back[0][0] + weights["first_state.bias"])
    state: ArrayState = tuple(first.reshape(-1, settings.dim))
    logits, alphas = [], []
    for token in embedded(weights, "target", target):
        alpha = softmax(np.array([score(weights, "score", settings.score, state[0], h) for h in annotations]))
        context = sum(a * h for a, h in zip(alpha, annotations, strict=True))
        state = cell(weights, "decoder", settings.cell, np.concatenate([token, context]), state)
        deep = {name: weights[f"deep_output.{name}.weight"] for name in ("of_state", "of_token", "of_context")}
        u = deep["of_state"] @ state[0] + weights["deep_output.of_state.bias"]
        u = u + deep["of_token"] @ token + deep["of_context"] @ context
        maxout = np.array([max(u[2 * j], u[2 * j + 1]) for j in range(len(u) // 2)])
        logits.append(weights["output.weight"] @ maxout)
        alphas.append(alpha)
    return np.array(logits), np.array(alphas)


def luong(weights: NamedArrays, settings: Any, source: list[int], target: list[int]) -> tuple[Array, Array]:
    """Return the logits (target_length, vocab) and the weights (target_length, source_length) of Luong et al."""
    annotations, states = read_stack(weights, settings, embedded(weights, "source", source))
    attentional, logits, alphas = np.zeros(settings.dim), [], []
    for t, token in enumerate(embedded(weights, "target", target)):
        inputs = np.concatenate([token, attentional]) if settings.input_feeding else token
        states = step_stack(weights, settings, inputs, states)
        s = states[-1][0]
        scores = np.array([score(weights, "score", settings.score, s, h) for h in annotations])
        alpha = local_weights(weights, settings, scores, s, t)
        context = sum(a * h for a, h in zip(alpha, annotations, strict=True))
        attentional = np.tanh(weights["combine.weight"] @ np.concatenate([context, s]))
        logits.append(weights["output.weight"] @ attentional)
        alphas.append(alpha)
    return np.array(logits), np.array(alphas)


def local_weights(weights: NamedArrays, settings: Any, scores: Array, s: Array, t: int) -> Array:
    """Return the weights of the source positions: over all of them, or over the window of settings.alignment."""
    if settings.alignment == "global":
        return softmax(scores)
    centre = float(min(t, len(scores) - 1))
    if settings.alignment == "local-predictive":
        v, w = weights["window.outer.weight"][0], weights["window.inner.weight"]
        centre = len(scores) * float(sigmoid(v @ np.tanh(w @ s)))
    inside = [j for j in range(len(scores)) if centre - settings.window <= j <= centre + settings.window]
    alpha = np.zeros(len(scores))
    alpha[inside] = softmax(scores[inside])
    if settings.alignment == "local-predictive":
        sigma = settings.window / 2
        alpha *= [math.exp(-((j - centre) ** 2) / (2 * sigma**2)) for j in range(len(scores))]
    return alpha
