"""Scales for 8-bit matrix products: measured on sentences, balanced between activations and weights, constant.

Activations have 8 bits and one scale for a tensor. Weights have 7 bits and a scale for every output column. With
|weight| <= 63, a sum of two products, 2 * 255 * 63, fits the 16-bit sums of processors without VNNI. With 8-bit weights
these sums saturate, and results are wrong without an error.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lingon.text import BOS
from lingon.training.models.attention import QueryNormProducts
from lingon.training.models.interface import AnyModel
from lingon.training.models.layers import SSRU, Norm, PreNorm, Residual
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer

ModelT = TypeVar("ModelT", bound=AnyModel)
MAX_WEIGHT = 63
MAX_ACTIVATION = 255
TOGETHER = 4096  # rows of a weight that are divided at once: quotients of a whole table take as much memory as it does
TINY = 1e-30  # a row whose range is smaller is 0


class InputRange(NamedTuple):
    """The range of the input of a product. It contains 0."""

    low: float
    high: float

    @property
    def step(self) -> float:
        """The difference of two neighbouring quantised values."""
        return max(self.high - self.low, 1e-6) / MAX_ACTIVATION

    @property
    def zero_point(self) -> int:
        """The quantised value that stands for 0."""
        return round(-self.low / self.step)


@dataclass(slots=True)
class _ChannelRanges:
    """The range of every input channel of a product: (channels) each."""

    low: Tensor
    high: Tensor

    def add(self, rows: Tensor) -> None:
        """Extend the ranges by rows (..., channels)."""
        flat = rows.detach().flatten(0, -2)
        self.low = torch.minimum(self.low, flat.amin(0))
        self.high = torch.maximum(self.high, flat.amax(0))

    @property
    def range(self) -> InputRange:
        """The range over all channels."""
        return InputRange(float(self.low.min()), float(self.high.max()))

    @property
    def largest(self) -> Tensor:
        """The largest magnitude of each channel (channels)."""
        return torch.maximum(-self.low, self.high)

    def divided(self, scale: Tensor) -> _ChannelRanges:
        """Return the ranges of channels that are divided by a scale (channels)."""
        return _ChannelRanges(self.low / scale, self.high / scale)


SentenceIds = tuple[list[int], list[int]]
"""Source ids as the tokenizer frames them, target ids without BOS and EOS."""


def quantise_columns(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise a weight (out, in): return int8 of the same shape within +-MAX_WEIGHT, and the scales (out)."""
    largest = np.maximum(weight.max(axis=1), -weight.min(axis=1))
    scale = (np.where(largest > 0, largest, 1) / MAX_WEIGHT).astype(np.float32)
    columns = np.empty(weight.shape, np.int8)
    for first in range(0, len(weight), TOGETHER):
        part = slice(first, first + TOGETHER)
        columns[part] = np.rint(weight[part] / scale[part, None])
    return columns, scale


class Smoothed(NamedTuple):
    """A Transformer whose 8-bit products are built, and the input range of each, by the name of its module.

    `memory` is the product of all `decoder.N.cross.key_value`, which read the same.
    """

    model: Transformer
    ranges: dict[str, InputRange]


@dataclass(slots=True)
class Calibration:
    """Sentences on which the inputs of 8-bit products are measured, and what was measured, once for all precisions.

    sentences: source and target ids; may be empty if `known` has the ranges
    known: the ranges that a Transformer was trained with. Nothing is measured then. Nothing is smoothed either, because
        that would move the values out of these ranges
    """

    sentences: Sequence[SentenceIds] = ()
    known: Mapping[str, InputRange] | None = None
    _channels: dict[str, _ChannelRanges] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to calibrate with."""
        return not self.sentences and self.known is None

    def smoothed(self, model: Transformer) -> Smoothed:
        """Return an equal model that is easier to quantise, see `smooth`, and its ranges.

        Its modules are its own, so that `emulate` may change them. With known ranges its weights are those of `model`.

        model: always the same one
        """
        if self.known is not None:
            return Smoothed(with_own_modules(model), dict(self.known))
        found, channels = smooth(model, self._measured(model))
        ranges = {name: each.range for name, each in channels.items()}
        return Smoothed(found, {**ranges, "memory": ranges["decoder.0.cross.key_value"]})

    def ranges(self, model: AnyModel) -> dict[str, InputRange]:
        """Return the input range of each product of a model as it is, by the name of its module.

        model: always the same one
        """
        return {name: each.range for name, each in self._measured(model).items()}

    def _measured(self, model: AnyModel) -> dict[str, _ChannelRanges]:
        if self._channels is None:
            self._channels = _measure_ranges(model, self.sentences)
        return self._channels


def calibrate(model: AnyModel, sentences: Iterable[SentenceIds]) -> dict[str, InputRange]:
    """Return the input range of each product of a model, by the name of its module."""
    return {name: channels.range for name, channels in _measure_ranges(model, list(sentences)).items()}


def smooth(model: Transformer, ranges: dict[str, _ChannelRanges]) -> tuple[Transformer, dict[str, _ChannelRanges]]:
    """Return a copy of the model with smaller activations and larger weights, which computes the same, and its ranges.

    Input channel c of a product is divided by s_c = sqrt(largest value / largest weight) in the layer that writes it,
    and its column of the weight is multiplied by s_c (SmoothQuant, Xiao et al., 2023, equation 4 with alpha = 0.5).
    This is done only if it costs nothing at run time: after norms that only products read (pre-norm), after the values
    of an attention, after a ReLU, and after the product of a gated feed-forward layer that has no activation.
    """
    tables = (model.source_embedding.pieces.weight, model.target_embedding.pieces.weight, model.output.weight)
    model = copy.deepcopy(model, _shared(tables))  # nothing writes to them, and they are most of the weights
    ranges = dict(ranges)
    for name, encoder_layer in enumerate(model.encoder):
        _smooth_layer(encoder_layer, f"encoder.{name}", ranges)
    for name, decoder_layer in enumerate(model.decoder):
        _smooth_layer(decoder_layer, f"decoder.{name}", ranges)
        _smooth_cross(decoder_layer, f"decoder.{name}", ranges)
    if not isinstance(model.encoder_norm, nn.Identity):
        readers = {f"decoder.{name}.cross.key_value": layer.cross.key_value for name, layer in enumerate(model.decoder)}
        _divide_norm(model.encoder_norm, readers, ranges)
    if not isinstance(model.decoder_norm, nn.Identity):
        # The output layer gets a weight of its own, so that the embedding keeps its values.
        model.output.weight = nn.Parameter(model.output.weight.detach().clone())
        _divide_norm(model.decoder_norm, {"output": model.output}, ranges)
    return model, ranges


@torch.no_grad()
def emulate(model: ModelT, ranges: Mapping[str, InputRange] | None) -> ModelT:
    """Let the products of a calibrated model round as those of 8-bit graphs do, and return it.

    It computes in floating point what the graphs compute in integers, and is the reference of the gates for them. Each
    product gets another weight, so that those of a model that shares weights stay, and the memory of others is freed.

    model: whose modules are its own, as `Calibration.smoothed` and `with_own_modules` return it
    ranges: of the inputs of each product, or None if every row has its own
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            columns, scale = quantise_columns(module.weight.numpy())
            module.weight = nn.Parameter(torch.from_numpy(columns * scale[:, None]))  # not shared with an embedding
            module.register_forward_pre_hook(_round_rows if ranges is None else _rounding_hook(ranges[name]))
    return model


ROUNDING = 1e-6  # deviation of the relative errors; sums of a thousand float32 in another order differ by as much


def disturb(model: ModelT) -> ModelT:
    """Let an emulating model read the inputs of all products with relative errors of ROUNDING, and return it.

    Graphs add floats in another order than PyTorch, which rounds some values to the other of two neighbouring steps.
    What that makes of a model's outputs is what these errors make of them.
    """
    random = torch.Generator().manual_seed(0)

    def disturb_input(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0] * (1 + ROUNDING * torch.randn(inputs[0].shape, generator=random)),)

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(disturb_input, prepend=True)
    return model


def with_own_modules(model: ModelT) -> ModelT:
    """Return a copy of a model that shares all its weights."""
    return copy.deepcopy(model, _shared(model.parameters()))


def _shared(parameters: Iterable[Tensor]) -> dict[int, Any]:
    """Return what lets `copy.deepcopy` keep these parameters instead of copying them."""
    return {id(each): each for each in parameters}


def narrow_states(model: Transformer, *, memory: bool, past: bool) -> Transformer:
    """Let a model round keys and values of its decoder to float16, as the states of native graphs have them.

    memory: those of cross-attention
    past: those of self-attention
    """
    for layer in model.decoder:
        if memory:
            layer.cross.key_value.register_forward_hook(_narrow)
        if past:
            assert not isinstance(layer.attention, SSRU)
            layer.attention.qkv.register_forward_hook(_narrow_past)
    return model


def _narrow(module: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
    return outputs.half().to(outputs.dtype)


def _narrow_past(module: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
    query, past = outputs.tensor_split([outputs.size(-1) // 3], dim=-1)
    return torch.cat([query, _narrow(module, inputs, past)], dim=-1)


def _round_rows(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Round each row of the input of a product to 256 levels from its smallest to its largest value, with 0."""
    rows = inputs[0]
    low, high = rows.amin(-1, keepdim=True).clamp_max(0), rows.amax(-1, keepdim=True).clamp_min(0)
    step = ((high - low) / MAX_ACTIVATION).where(high - low > TINY, 1)
    zero_point = -(low / step).round()
    levels = ((rows / step).round() + zero_point).clamp(0, MAX_ACTIVATION)
    return ((levels - zero_point) * step,)


def _rounding_hook(seen: InputRange) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
    def round_input(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        levels = (inputs[0] / seen.step).round() + seen.zero_point
        return ((levels.clamp(0, MAX_ACTIVATION) - seen.zero_point) * seen.step,)

    return round_input


def _smooth_layer(layer: EncoderLayer | DecoderLayer, name: str, ranges: dict[str, _ChannelRanges]) -> None:
    attention, feed_forward = layer.attention, layer.feed_forward
    product, reader = ("gates", attention.gates) if isinstance(attention, SSRU) else ("qkv", attention.qkv)
    if isinstance(reader, QueryNormProducts):
        _divide_norm(reader.norm, {f"{name}.attention.qkv.query": reader.query}, ranges)
    elif attention_norm := _norm_before(layer.around_attention):
        _divide_norm(attention_norm, {f"{name}.attention.{product}": reader}, ranges)
    if feed_forward_norm := _norm_before(layer.around_feed_forward):
        _divide_norm(feed_forward_norm, {f"{name}.feed_forward.inner": feed_forward.inner}, ranges)
    if not isinstance(attention, SSRU):
        writer = attention.qkv.key_value if isinstance(attention.qkv, QueryNormProducts) else attention.qkv
        values = slice(-attention.output.in_features, None)
        _divide_writer(writer, values, f"{name}.attention.output", attention.output, ranges)
    if feed_forward.gated or isinstance(feed_forward.activation, nn.ReLU):
        linear = slice(feed_forward.outer.in_features if feed_forward.gated else 0, None)
        _divide_writer(feed_forward.inner, linear, f"{name}.feed_forward.outer", feed_forward.outer, ranges)


def _smooth_cross(layer: DecoderLayer, name: str, ranges: dict[str, _ChannelRanges]) -> None:
    cross, dim = layer.cross, layer.cross.output.in_features
    if norm := _norm_before(layer.around_cross):
        _divide_norm(norm, {f"{name}.cross.query": cross.query}, ranges)
    _divide_writer(cross.key_value, slice(dim, None), f"{name}.cross.output", cross.output, ranges)


def _norm_before(around: Residual) -> Norm | None:
    """Return the norm before a sublayer, or None for post-norm, because the residual connection reads that norm too."""
    return around.norm if isinstance(around, PreNorm) else None


@torch.no_grad()
def _divide_norm(norm: Norm, readers: Mapping[str, nn.Linear], ranges: dict[str, _ChannelRanges]) -> None:
    """Divide what a norm writes; readers: all that read it, by name. Their ranges are the same, and are divided too."""
    seen = ranges[next(iter(readers))]
    scale = _smoothing_scale(seen, readers.values())
    for each in norm.parameters():  # the gain, and the bias if it has one
        each.div_(scale)
    for name, reader in readers.items():
        reader.weight.mul_(scale)
        ranges[name] = seen.divided(scale)


@torch.no_grad()
def _divide_writer(
    writer: nn.Linear, outputs: slice, name: str, reader: nn.Linear, ranges: dict[str, _ChannelRanges]
) -> None:
    """Divide outputs of a product, and the range of the product that alone reads them, which has this name."""
    scale = _smoothing_scale(ranges[name], [reader])
    writer.weight[outputs].div_(scale[:, None])
    if writer.bias is not None:
        writer.bias[outputs].div_(scale)
    reader.weight.mul_(scale)
    ranges[name] = ranges[name].divided(scale)


def _smoothing_scale(ranges: _ChannelRanges, readers: Iterable[nn.Linear]) -> Tensor:
    """Return s_c of every channel (channels)."""
    weights = torch.stack([_largest_of_columns(reader.weight.detach()) for reader in readers]).amax(0)
    return (ranges.largest.clamp_min(1e-5) / weights.clamp_min(1e-5)).sqrt()


def _largest_of_columns(weight: Tensor) -> Tensor:
    """Return the largest magnitude of each column (columns). One of all values would take as much memory as they do."""
    low, high = weight.aminmax(dim=0)
    return torch.maximum(-low, high)


class _Unread(nn.Linear):
    """A stand-in for the output layer where nobody reads the logits, most of the work with a large vocabulary."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__(output.in_features, output.out_features, bias=False, device="meta")

    def forward(self, inputs: Tensor) -> Tensor:
        """Return zeros of the shape of the logits, which take no memory."""
        return inputs.new_zeros(1).expand(*inputs.shape[:-1], self.out_features)


@torch.inference_mode()
def _measure_ranges(model: AnyModel, sentences: Sequence[SentenceIds]) -> dict[str, _ChannelRanges]:
    """Measure the inputs of every linear layer, one sentence at a time, so that no padding is measured."""
    ranges: dict[str, _ChannelRanges] = {}
    output, threads = model.output, torch.get_num_threads()
    model.output = _Unread(output)
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    lock = threading.Lock()
    hooks = [module.register_forward_pre_hook(_range_hook(name, ranges, lock)) for name, module in linear.items()]

    @torch.inference_mode()
    def measure(sentence: SentenceIds) -> None:
        source, target = sentence
        model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))

    torch.set_num_threads(1)  # threads of one sentence mostly wait for each other; those of several do not
    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(measure, sentences))
    finally:
        torch.set_num_threads(threads)
        model.output = output
        for hook in hooks:
            hook.remove()
    return ranges


def _range_hook(
    name: str, ranges: dict[str, _ChannelRanges], lock: threading.Lock
) -> Callable[[nn.Module, tuple[Tensor]], None]:
    def observe(module: nn.Module, inputs: tuple[Tensor]) -> None:
        zeros = torch.zeros(inputs[0].size(-1))
        with lock:
            ranges.setdefault(name, _ChannelRanges(zeros, zeros)).add(inputs[0])

    return observe
