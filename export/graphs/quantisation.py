"""Scales for 8-bit products: measured on sentences, evened out between activations and weights, fixed in the graph.

Activations are 8 bits with one scale for a whole tensor, weights 7 bits with a scale for every column: |weight| <= 63
keeps a sum of two products, 2 * 255 * 63, within the 16 bits in which processors without VNNI add them up, where 8-bit
weights saturate and give wrong sums without a word.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lingon.text import BOS
from lingon.training.models.layers import PostNorm, PreNorm
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer

MAX_WEIGHT = 63
MAX_ACTIVATION = 255


class Range(NamedTuple):
    """The values that a product reads, 0 among them."""

    low: float
    high: float

    @property
    def step(self) -> float:
        """What one unit of the quantised value stands for."""
        return max(self.high - self.low, 1e-6) / MAX_ACTIVATION

    @property
    def zero_point(self) -> int:
        """The quantised value of 0."""
        return round(-self.low / self.step)


@dataclass(slots=True)
class _ChannelRanges:
    """What came into a product, channel by channel."""

    low: Tensor
    high: Tensor

    def add(self, rows: Tensor) -> None:
        """Take in rows (..., channels)."""
        flat = rows.detach().flatten(0, -2)
        self.low = torch.minimum(self.low, flat.amin(0))
        self.high = torch.maximum(self.high, flat.amax(0))

    @property
    def range(self) -> Range:
        """The range over all channels."""
        return Range(float(self.low.min()), float(self.high.max()))

    @property
    def largest(self) -> Tensor:
        """The largest magnitude of each channel."""
        return torch.maximum(-self.low, self.high)


Sentence = tuple[list[int], list[int]]
"""Source ids with EOS, target ids without BOS and EOS."""


def quantise_columns(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight (out, in) as int8 of that shape within MAX_WEIGHT, and the scale of each of `out`."""
    largest = np.abs(weight).max(axis=1)
    scale = (np.where(largest > 0, largest, 1) / MAX_WEIGHT).astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def smooth_and_calibrate(model: Transformer, sentences: Iterable[Sentence]) -> tuple[Transformer, dict[str, Range]]:
    """A model that computes the same and is easier to quantise, and the range of what each of its products reads.

    MatMul are named as modules are; `memory` reads what every `decoder.N.cross.key_value` does.
    """
    known = list(sentences)
    smoothed = smooth(model, _measure_ranges(model, known))
    ranges = {name: seen.range for name, seen in _measure_ranges(smoothed, known).items()}
    return smoothed, {**ranges, "memory": ranges["decoder.0.cross.key_value"]}


def smooth(model: Transformer, seen: dict[str, _ChannelRanges]) -> Transformer:
    """A copy in which channels with large values give of their size to the weights that read them.

    Channel c of what a product reads is divided by s_c = sqrt(largest value / largest weight) where it is written, and
    multiplied in the weight (SmoothQuant, Xiao et al., 2023, equation 4 with alpha = 0.5). Only where that costs
    nothing at run time: after norms that feed products alone (pre-norm), after values of attentions, after a ReLU.
    """
    model = copy.deepcopy(model)
    for name, encoder_layer in enumerate(model.encoder):
        _smooth_layer(encoder_layer, f"encoder.{name}", seen)
    for name, decoder_layer in enumerate(model.decoder):
        _smooth_layer(decoder_layer, f"decoder.{name}", seen)
        _smooth_cross(decoder_layer, f"decoder.{name}", seen)
    if isinstance(model.encoder_norm, nn.LayerNorm):
        readers = [layer.cross.key_value for layer in model.decoder]
        _divide_norm(model.encoder_norm, readers, seen["decoder.0.cross.key_value"])
    if isinstance(model.decoder_norm, nn.LayerNorm):
        model.output.weight = nn.Parameter(model.output.weight.detach().clone())  # the embedding stays as it is
        _divide_norm(model.decoder_norm, [model.output], seen["output"])
    return model


def _smooth_layer(layer: EncoderLayer | DecoderLayer, name: str, seen: dict[str, _ChannelRanges]) -> None:
    attention, feed_forward, dim = layer.attention, layer.feed_forward, layer.attention.output.in_features
    if attention_norm := _norm_before(layer.around_attention):
        _divide_norm(attention_norm, [attention.qkv], seen[f"{name}.attention.qkv"])
    if feed_forward_norm := _norm_before(layer.around_feed_forward):
        _divide_norm(feed_forward_norm, [feed_forward.inner], seen[f"{name}.feed_forward.inner"])
    _divide_writer(attention.qkv, slice(2 * dim, None), attention.output, seen[f"{name}.attention.output"])
    if isinstance(feed_forward.activation, nn.ReLU):
        _divide_writer(feed_forward.inner, slice(None), feed_forward.outer, seen[f"{name}.feed_forward.outer"])


def _smooth_cross(layer: DecoderLayer, name: str, seen: dict[str, _ChannelRanges]) -> None:
    cross, dim = layer.cross, layer.cross.output.in_features
    if norm := _norm_before(layer.around_cross):
        _divide_norm(norm, [cross.query], seen[f"{name}.cross.query"])
    _divide_writer(cross.key_value, slice(dim, None), cross.output, seen[f"{name}.cross.output"])


def _norm_before(around: PostNorm) -> nn.LayerNorm | None:
    """The norm whose output a sublayer alone reads; after post-norm the residual reads it too."""
    return around.norm if isinstance(around, PreNorm) else None


@torch.no_grad()
def _divide_norm(norm: nn.LayerNorm, readers: list[nn.Linear], seen: _ChannelRanges) -> None:
    scale = _smoothing_scale(seen, readers)
    norm.weight.div_(scale)
    norm.bias.div_(scale)
    for reader in readers:
        reader.weight.mul_(scale)


@torch.no_grad()
def _divide_writer(writer: nn.Linear, outputs: slice, reader: nn.Linear, seen: _ChannelRanges) -> None:
    scale = _smoothing_scale(seen, [reader])
    writer.weight[outputs].div_(scale[:, None])
    writer.bias[outputs].div_(scale)
    reader.weight.mul_(scale)


def _smoothing_scale(seen: _ChannelRanges, readers: list[nn.Linear]) -> Tensor:
    """s_c of every channel."""
    weights = torch.stack([reader.weight.detach().abs().amax(0) for reader in readers]).amax(0)
    return (seen.largest.clamp_min(1e-5) / weights.clamp_min(1e-5)).sqrt()


@torch.inference_mode()
def _measure_ranges(model: Transformer, sentences: list[Sentence]) -> dict[str, _ChannelRanges]:
    """What every linear layer reads; one sentence at a time, so that no padding is measured."""
    seen: dict[str, _ChannelRanges] = {}
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [module.register_forward_pre_hook(_range_hook(name, seen)) for name, module in linear.items()]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for one sentence several threads wait on each other more than they compute
    try:
        for source, target in sentences:
            model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))
    finally:
        torch.set_num_threads(threads)
        for hook in hooks:
            hook.remove()
    return seen


def _range_hook(name: str, seen: dict[str, _ChannelRanges]) -> Callable[[nn.Module, tuple[Tensor]], None]:
    def observe(module: nn.Module, inputs: tuple[Tensor]) -> None:
        zeros = torch.zeros(inputs[0].size(-1))
        seen.setdefault(name, _ChannelRanges(zeros, zeros)).add(inputs[0])

    return observe
