"""A Transformer with drawn weights that decodes as a trained one does: other tokens at every step, beams that part.

Plainly drawn, a stack says one token for ever, for two reasons. What all positions have in common (positions that turn
slowly, means of what a ReLU lets through) grows from layer to layer until nothing else is left: here the norms' biases
take it away. And with tied pieces the last token's own piece fits its trace in the hidden state best: here the last
norm's gain is negative, so that it is the one that comes next least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lingon.text import EOS, FORBIDDEN, UNK
from lingon.training.config import ModelSettings
from lingon.training.model import CrossAttention, FeedForward, SelfAttention, Transformer

NEVER = sorted({*FORBIDDEN, EOS})
SEEK, ADD = 1.4, 0.5
"""Gains of products: those that find (queries, keys, the inner layer), and those that add to the hidden state."""
DEPTH, PLATEAU = 24.0, 1.5
"""How far the logits of special pieces lie below, and the constant part of the hidden state that puts them there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The size of a post-norm model; as it stands, the Transformer base of Vaswani et al. (2017)."""

    layers: int = 6  # of the encoder, and as many of the decoder
    dim: int = 512
    heads: int = 8
    ffn: int = 2048
    vocab: int = 32_000
    positions: int = 256
    spread: float = 4.0  # standard deviation of the logits
    seed: int = 0

    def settings(self) -> ModelSettings:
        """The shape as training knows it."""
        return ModelSettings(
            dim=self.dim,
            heads=self.heads,
            ffn=self.ffn,
            encoder_layers=self.layers,
            decoder_layers=self.layers,
            max_positions=self.positions,
            dropout=0.0,
        )


@torch.no_grad()
def draw(shape: Shape) -> Transformer:
    """The model of a shape. No special piece, the end token among them, is ever likely."""
    random = np.random.default_rng(shape.seed)
    model = Transformer(shape.settings(), shape.vocab, shape.vocab).eval()
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention | FeedForward):
            _fill(module, random, shape.dim)
    pieces = model.output.weight
    pieces.copy_(_normal(random, pieces.shape, shape.dim**-0.5))
    _centre(model, random, shape)
    last = model.decoder[-1].around_feed_forward.norm
    last.weight.fill_(-shape.spread)
    last.bias.mul_(-shape.spread)
    silent = max(shape.dim // 16, 1)  # dimensions
    last.weight[:silent], last.bias[:silent] = 0, PLATEAU
    pieces[:, :silent] = 0
    pieces[NEVER, :silent] = -DEPTH / (PLATEAU * silent)
    return model


def _fill(module: SelfAttention | CrossAttention | FeedForward, random: np.random.Generator, dim: int) -> None:
    """Draw the weights of a sublayer, of the gains above."""
    for linear in module.children():
        if isinstance(linear, nn.Linear):
            linear.weight.copy_(_normal(random, linear.weight.shape, ADD * linear.in_features**-0.5))
    found = SEEK / ADD
    if isinstance(module, SelfAttention):
        module.qkv.weight[: 2 * dim] *= found
    elif isinstance(module, CrossAttention):
        module.query.weight *= found
        module.key_value.weight[:dim] *= found
    else:
        module.inner.weight *= found


def _centre(model: Transformer, random: np.random.Generator, shape: Shape) -> None:
    """Let every norm's bias, first to last, take away the mean of what the norm hands out for drawn sentences."""

    def take_away(norm: nn.Module, inputs: object, output: Tensor) -> Tensor:
        mean = output.mean((0, 1))
        assert isinstance(norm, nn.LayerNorm)
        norm.bias.sub_(mean)
        return output - mean

    hooks = [norm.register_forward_hook(take_away) for norm in model.modules() if isinstance(norm, nn.LayerNorm)]
    length = min(28, shape.positions)
    source, target = random.integers(UNK + 1, shape.vocab, (2, 16, length))
    model(torch.from_numpy(source), torch.full((16,), length), torch.from_numpy(target))
    for hook in hooks:
        hook.remove()


def _normal(random: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32) * np.float32(deviation))
