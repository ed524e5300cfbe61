"""The Transformer of a bundle as PyTorch modules for decoding: no dropout, no loss, static keys and values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.bench.engines import conversion
from lingon.bench.engines.conversion import Affine
from lingon.text import EOS

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class KeyValue(NamedTuple):
    """Keys and values (batch, heads, length, head_dim) of one attention."""

    key: Tensor
    value: Tensor


class Residual(nn.Module):
    """The residual connection and the norm around a sublayer, before it or after it."""

    def __init__(self, norm: Affine, model: conversion.Model) -> None:
        super().__init__()
        self.norm, self.pre_norm = _norm(norm, model.epsilon), model.pre_norm

    def before(self, hidden: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(hidden) if self.pre_norm else hidden

    def after(self, hidden: Tensor, sublayer: Tensor) -> Tensor:
        """Return the output of the connection, from its input and the output of the sublayer."""
        return hidden + sublayer if self.pre_norm else self.norm(hidden + sublayer)


class Layer(nn.Module):
    """What a layer of the encoder and one of the decoder have in common."""

    def __init__(self, layer: conversion.Layer, model: conversion.Model) -> None:
        super().__init__()
        self.heads = model.heads
        self.around_attention = Residual(layer.attention_norm, model)
        self.qkv, self.attention_output = _linear(layer.qkv), _linear(layer.attention_output)
        self.around_feed_forward = Residual(layer.feed_forward_norm, model)
        self.feed_forward = nn.Sequential(_linear(layer.inner), ACTIVATIONS[model.activation](), _linear(layer.outer))

    def split_heads(self, rows: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Return `parts` times (batch, heads, length, head_dim) of rows (batch, length, parts * dim)."""
        return rows.reshape(*rows.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()

    def encode(self, hidden: Tensor, bias: Tensor) -> Tensor:
        """Return (batch, length, dim) of hidden (batch, length, dim). bias: see `attend`."""
        query, key, value = self.split_heads(self.qkv(self.around_attention.before(hidden)), 3)
        mixed = self.attention_output(attend(query, KeyValue(key, value), bias))
        return self.transform(self.around_attention.after(hidden, mixed))

    def transform(self, hidden: Tensor) -> Tensor:
        """Return the feed-forward layer of hidden with its residual connection."""
        around = self.around_feed_forward
        return around.after(hidden, self.feed_forward(around.before(hidden)))


class DecoderLayer(Layer):
    """A layer of the decoder; the beams of a sentence take the place of `length`."""

    def __init__(self, layer: conversion.Layer, cross: conversion.CrossAttention, model: conversion.Model) -> None:
        super().__init__(layer, model)
        self.around_cross = Residual(cross.norm, model)
        self.query, self.key_value, self.cross_output = map(_linear, (cross.query, cross.key_value, cross.output))

    def memory(self, encoder_output: Tensor) -> KeyValue:
        """Return the keys and values of encoder_output (batch, source_length, dim)."""
        return KeyValue(*self.split_heads(self.key_value(encoder_output), 2))

    def step(self, hidden: Tensor, past: Past, memory: KeyValue, source_bias: Tensor) -> Tensor:
        """Return (batch, beams, dim) of hidden (batch, beams, dim), and write the new keys and values into the past."""
        query, key, value = self.split_heads(self.qkv(self.around_attention.before(hidden)), 3)
        past.states.key.index_copy_(2, past.slots, key)
        past.states.value.index_copy_(2, past.slots, value)
        mixed = self.attention_output(attend(query, past.states, past.bias))
        hidden = self.around_attention.after(hidden, mixed)
        (query,) = self.split_heads(self.query(self.around_cross.before(hidden)), 1)
        mixed = self.cross_output(attend(query, memory, source_bias))
        return self.transform(self.around_cross.after(hidden, mixed))


class Past(NamedTuple):
    """The past of one layer.

    states: (batch, heads, capacity * beams, head_dim); slot number position * beams + beam
    slots: int64 (beams), where the new position is written
    bias: of `attend`, (batch, 1, beams, capacity * beams), which slots a hypothesis consists of
    """

    states: KeyValue
    slots: Tensor
    bias: Tensor


class Network(nn.Module):
    """Encoder, decoder and output layer."""

    source_positions: Tensor
    target_positions: Tensor

    def __init__(self, model: conversion.Model) -> None:
        super().__init__()
        self.heads, self.scale = model.heads, math.sqrt(model.dim)
        self.source_pieces, self.target_pieces = (_parameter(side.pieces) for side in (model.encoder, model.decoder))
        self.register_buffer("source_positions", torch.from_numpy(model.encoder.positions.copy()))
        self.register_buffer("target_positions", torch.from_numpy(model.decoder.positions.copy()))
        self.encoder = nn.ModuleList(Layer(layer, model) for layer in model.encoder.layers)
        pairs = zip(model.decoder.layers, model.cross, strict=True)
        self.decoder = nn.ModuleList(DecoderLayer(layer, cross, model) for layer, cross in pairs)
        self.encoder_norm, self.decoder_norm = (
            _norm(side.norm, model.epsilon) if side.norm else nn.Identity() for side in (model.encoder, model.decoder)
        )
        self.output = _linear(model.output)
        self.output.bias.data[EOS] = -torch.inf  # every sentence has a length of its own, so that none ends by itself

    def encode(self, source_ids: Tensor, bias: Tensor) -> list[KeyValue]:
        """Return the memory of every decoder layer for source_ids (batch, source_length). bias: see `attend`."""
        hidden = functional.embedding(source_ids, self.source_pieces) * self.scale
        hidden = hidden + self.source_positions[: source_ids.size(1)]
        for layer in self.encoder:
            hidden = layer.encode(hidden, bias)  # type: ignore[operator]
        encoder_output = self.encoder_norm(hidden)
        return [layer.memory(encoder_output) for layer in self.decoder]  # type: ignore[operator]

    def embed(self, token_ids: Tensor, position: Tensor) -> Tensor:
        """Return (batch, beams, dim) of token_ids (batch, beams), all at one position, int64 (1)."""
        hidden = functional.embedding(token_ids, self.target_pieces) * self.scale
        return hidden + self.target_positions.index_select(0, position)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return (batch, beams, vocab) of hidden (batch, beams, dim)."""
        return self.output(self.decoder_norm(hidden))  # type: ignore[no-any-return]


def attend(query: Tensor, states: KeyValue, bias: Tensor) -> Tensor:
    """Scaled dot-product attention, equation 1 of Vaswani et al. (2017); returns (batch, length, heads * head_dim).

    query: (batch, heads, length, head_dim)
    bias: added to scores, broadcast over (batch, heads, length, keys): 0 where a key is seen, otherwise -inf
    """
    mixed = functional.scaled_dot_product_attention(query, *states, attn_mask=bias)
    return mixed.transpose(1, 2).flatten(2)


def _linear(values: Affine) -> nn.Linear:
    outputs, inputs = values.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")  # without memory, because its values are replaced
    linear.weight, linear.bias = _parameter(values.weight), _parameter(values.bias)
    return linear


def _norm(values: Affine, epsilon: float) -> nn.LayerNorm:
    norm = nn.LayerNorm(len(values.weight), epsilon)
    norm.weight, norm.bias = _parameter(values.weight), _parameter(values.bias)
    return norm


def _parameter(values: np.ndarray) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values.copy()), requires_grad=False)
