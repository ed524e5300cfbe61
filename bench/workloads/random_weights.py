"""A Transformer with random weights that decodes like a trained one: tokens vary between steps, and beams diverge.

With plain random weights a model repeats one token for ever, for two reasons. First, the part that all positions have
in common (slowly varying position encodings, means of ReLU outputs) grows from layer to layer until it dominates; here
the biases of the norms remove it. Second, with tied embeddings the last token's own embedding fits the hidden state
best; here the gain of the last norm is negative, so that the last token is the least likely next token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from lingon.text import EOS, FORBIDDEN, UNK
from lingon.training.config import Activation, TransformerSettings
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.layers import FeedForward
from lingon.training.models.ssru import SSRU
from lingon.training.models.transformer import Transformer

NEVER_GENERATED = sorted({*FORBIDDEN, EOS})
INNER_GAIN, OUTPUT_GAIN = 1.4, 0.5
"""Gains of weights: first of queries, keys and the inner layer; then of all others, which add to the hidden state."""
SPECIAL_LOGIT, CONSTANT = 24.0, 1.5
"""By how much the logits of special pieces are lowered, and the constant in the hidden state that lowers them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The size of a post-norm model; the defaults are the Transformer base of Vaswani et al. (2017)."""

    layers: int = 6  # of the encoder, and as many of the decoder unless decoder_layers says another number
    decoder_layers: int = 0
    decoder_cell: Literal["attention", "ssru"] = "attention"
    activation: Activation = "relu"
    dim: int = 512
    heads: int = 8
    ffn: int = 2048
    vocab: int = 32_000
    positions: int = 256
    spread: float = 4.0  # standard deviation of the logits
    seed: int = 0

    def settings(self) -> TransformerSettings:
        """The shape as settings of lingon.training."""
        return TransformerSettings(
            dim=self.dim,
            heads=self.heads,
            head_dim=self.dim // self.heads,
            ffn=self.ffn,
            encoder_layers=self.layers,
            decoder_layers=self.decoder_layers or self.layers,
            decoder_cell=self.decoder_cell,
            activation=self.activation,
            max_positions=self.positions,
            dropout=0.0,
        )


SHAPES = {"base": Shape(), "big": Shape(dim=1024, heads=16, ffn=4096)}
"""The Transformers base and big of Vaswani et al. (2017), by name."""

TINY_SHAPES = {"tiny": Shape(layers=2, dim=128, heads=2, ffn=256, vocab=1000)}
"""What a quick run measures in their place; the heads have the size of theirs."""


@torch.no_grad()
def random_transformer(shape: Shape) -> Transformer:
    """The model of a shape. Special pieces, among them the end token, are never likely."""
    random = np.random.default_rng(shape.seed)
    model = Transformer(shape.settings(), shape.vocab, shape.vocab).eval()
    for module in model.modules():
        if isinstance(module, SelfAttention | SSRU | CrossAttention | FeedForward):
            _set_weights(module, random, shape.dim)
    pieces = model.output.weight
    pieces.copy_(_normal(random, pieces.shape, shape.dim**-0.5))
    _remove_means(model, random, shape)
    last = model.decoder[-1].around_feed_forward.norm
    assert isinstance(last, nn.LayerNorm)
    last.weight.fill_(-shape.spread)
    last.bias.mul_(-shape.spread)
    reserved = max(shape.dim // 16, 1)  # dimensions that only lower the logits of special pieces
    last.weight[:reserved], last.bias[:reserved] = 0, CONSTANT
    pieces[:, :reserved] = 0
    pieces[NEVER_GENERATED, :reserved] = -SPECIAL_LOGIT / (CONSTANT * reserved)
    return model


def _set_weights(
    module: SelfAttention | SSRU | CrossAttention | FeedForward, random: np.random.Generator, dim: int
) -> None:
    """Set the weights of a sublayer to random values with the gains above."""
    for linear in module.children():
        if isinstance(linear, nn.Linear):
            linear.weight.copy_(_normal(random, linear.weight.shape, OUTPUT_GAIN * linear.in_features**-0.5))
    ratio = INNER_GAIN / OUTPUT_GAIN
    if isinstance(module, SelfAttention):
        assert isinstance(module.qkv, nn.Linear)
        module.qkv.weight[: 2 * dim] *= ratio
    elif isinstance(module, CrossAttention):
        module.query.weight *= ratio
        module.key_value.weight[:dim] *= ratio
    elif isinstance(module, FeedForward):
        module.inner.weight *= ratio


def _remove_means(model: Transformer, random: np.random.Generator, shape: Shape) -> None:
    """Set the bias of every norm, first to last, so that the mean of its output over random sentences is zero."""

    def subtract_mean(norm: nn.Module, inputs: object, output: Tensor) -> Tensor:
        mean = output.mean((0, 1))
        assert isinstance(norm, nn.LayerNorm)
        norm.bias.sub_(mean)
        return output - mean

    hooks = [norm.register_forward_hook(subtract_mean) for norm in model.modules() if isinstance(norm, nn.LayerNorm)]
    length = min(28, shape.positions)
    source, target = random.integers(UNK + 1, shape.vocab, (2, 16, length))
    model(torch.from_numpy(source), torch.full((16,), length), torch.from_numpy(target))
    for hook in hooks:
        hook.remove()


def _normal(random: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32) * np.float32(deviation))
