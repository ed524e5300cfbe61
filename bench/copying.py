"""Transformers that copy their source: random weights of any size whose outputs end, without training.

With plain random weights no output ends. Here the decoder's last cross-attention reads the piece at its own position:
an output has the tokens of its source, and ends where the source ends. All other products are random, and what they add
is small. The margin between the best piece and the others is that of a sure decision, so that 8-bit products find the
same tokens.

The positions are sines before cosines, added to the scaled pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lingon.text import BOS, PAD
from lingon.training.model_settings import Activation, TransformerSettings
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.layers import SSRU, FeedForward
from lingon.training.models.transformer import Transformer

NOISE = 0.03  # gain of the random products: what a layer adds is small beside what it reads
SHARPNESS = 11.2  # of the attention to the own position
COPIED = 6.0  # gain of the piece that is read, beside the last piece of the target
DECISION = 14.7  # of all logits: a token has a log-probability of about -0.3 then


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyingShape:
    """The size of a copying model. The defaults are those of OPUS-MT.

    decoder_cell: what reads the target so far
    norm: before each layer, with one more after the last layer, or after each layer
    first_position: the place of the first token in the table of positions
    """

    encoder_layers: int = 6
    decoder_layers: int = 6
    decoder_cell: Literal["attention", "ssru"] = "attention"
    dim: int = 512
    heads: int = 8
    ffn: int = 2048
    activation: Activation = "silu"
    norm: Literal["pre", "post"] = "post"
    first_position: int = 0
    vocab: int = 58_101
    positions: int = 512
    seed: int = 0

    def settings(self) -> TransformerSettings:
        """Return the shape as settings of lingon.training, with the positions of Marian."""
        return TransformerSettings(
            dim=self.dim,
            heads=self.heads,
            head_dim=self.dim // self.heads,
            ffn=self.ffn,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            decoder_cell=self.decoder_cell,
            activation=self.activation,
            norm=self.norm,
            first_position=self.first_position,
            max_positions=self.positions,
            sinusoids="inclusive-halves",
            norm_epsilon=1e-6,
            dropout=0.0,
        )


@torch.no_grad()
def copying_transformer(shape: CopyingShape) -> Transformer:
    """Return the model of a shape. The ids are those of Lingon."""
    random = torch.Generator().manual_seed(shape.seed)
    model = Transformer(shape.settings(), shape.vocab, shape.vocab).eval()
    model.output.weight.copy_(piece_table(shape, random))
    model.output.weight[[PAD, BOS]] = 0
    for module in model.modules():
        for linear, weights in _products(module, shape, random):
            linear.weight.copy_(torch.cat(weights))
            nn.init.zeros_(linear.bias)
    last = model.decoder[-1]
    query, key, value, output = copying_attention(shape)
    last.cross.query.weight.copy_(query)
    last.cross.key_value.weight.copy_(torch.cat([key, value]))
    last.cross.output.weight.copy_(output)
    norm = last.around_feed_forward.norm if shape.norm == "post" else model.decoder_norm
    assert isinstance(norm, nn.LayerNorm)
    norm.weight.fill_(decision_gain(shape))
    return model


def _products(
    module: nn.Module, shape: CopyingShape, random: torch.Generator
) -> Iterator[tuple[nn.Linear, list[Tensor]]]:
    """Yield the products of a part of a layer, each with the random matrices that it packs."""
    if isinstance(module, SelfAttention | CrossAttention):
        query, key, value, output = random_attention(shape, random)
        if isinstance(module, SelfAttention):
            assert isinstance(module.qkv, nn.Linear)
            yield module.qkv, [query, key, value]
        else:
            yield module.query, [query]
            yield module.key_value, [key, value]
        yield module.output, [output]
    elif isinstance(module, SSRU):
        yield module.gates, [random_matrix(shape.dim, shape.dim, random), added_matrix(shape, shape.dim, random)]
    elif isinstance(module, FeedForward):
        assert isinstance(module.inner, nn.Linear)
        yield module.inner, [random_matrix(shape.ffn, shape.dim, random)]
        yield module.outer, [added_matrix(shape, shape.ffn, random)]


def piece_table(shape: CopyingShape, random: torch.Generator) -> Tensor:
    """Return random rows (vocab, dim) of length 1, with nothing in the channels that positions are read from.

    Beside a shorter row its position would be louder, so that the positions around it would read that one.
    """
    table = torch.randn(shape.vocab, shape.dim, generator=random)
    table[:, _reserved_channels(shape)] = 0
    return nn.functional.normalize(table)


def copying_attention(shape: CopyingShape) -> list[Tensor]:
    """Return the weights of query, key, value and output of an attention whose heads read their own position."""
    dim, channels = shape.dim, _position_channels(shape)
    select = torch.zeros(dim, dim)
    gain = SHARPNESS / len(channels) ** 0.25  # so that scores are as large for all sizes of heads
    for head in range(shape.heads):
        rows = head * len(channels) + torch.arange(len(channels))
        select[rows, channels], select[rows, _empty_channel(shape)] = gain, -gain
    return [select, select.clone(), torch.eye(dim), COPIED * torch.eye(dim)]


def random_attention(shape: CopyingShape, random: torch.Generator) -> list[Tensor]:
    """Return the weights of query, key, value and output of an attention that adds little."""
    read = [random_matrix(shape.dim, shape.dim, random) for _ in range(3)]
    return [*read, added_matrix(shape, shape.dim, random)]


def random_matrix(outputs: int, inputs: int, random: torch.Generator) -> Tensor:
    """Return a matrix (outputs, inputs) whose outputs are as large as its inputs."""
    return torch.randn(outputs, inputs, generator=random) / math.sqrt(inputs)


def added_matrix(shape: CopyingShape, inputs: int, random: torch.Generator) -> Tensor:
    """Return a matrix (dim, inputs) of a product that is added to the hidden state: small, and nothing to positions.

    A number added to the empty channel would be subtracted from all channels of a position.
    """
    matrix = NOISE * random_matrix(shape.dim, inputs, random)
    matrix[_reserved_channels(shape)] = 0
    return matrix


def decision_gain(shape: CopyingShape) -> float:
    """Return the gain of the last norm of the decoder, beside sqrt(dim) in its outputs."""
    return DECISION / math.sqrt(shape.dim)


def _position_channels(shape: CopyingShape) -> Tensor:
    """Return as many channels as a head has: the sines and the cosines of the highest frequencies."""
    half = shape.dim // shape.heads // 2
    return torch.cat([torch.arange(half), shape.dim // 2 + torch.arange(half)])


def _empty_channel(shape: CopyingShape) -> int:
    """Return the channel of the slowest sine, about 0 everywhere: after a norm it is what the norm subtracts."""
    return shape.dim // 2 - 1


def _reserved_channels(shape: CopyingShape) -> list[int]:
    return [*_position_channels(shape).tolist(), _empty_channel(shape)]
