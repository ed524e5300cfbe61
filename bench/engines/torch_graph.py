"""A bare decode loop in PyTorch: a step is one CUDA graph, on the CPU the same operations one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.bench.engines import conversion
from lingon.bench.engines.base import Batch, Cell, Setting, Tokens, batches, limit, missing_package
from lingon.bench.engines.conversion import Affine, model_of
from lingon.bench.engines.parts import ENCODER, STEPS, Stopwatch
from lingon.bundle.manifest import Limits
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD

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
    """The common parts of a layer of the encoder and a layer of the decoder."""

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
    """A layer of the decoder, in which `length` is the beams of a sentence."""

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
        self.output.bias.data[EOS] = -torch.inf  # every length is given, so that no sentence ends by itself

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
    """Compute scaled dot-product attention, Vaswani et al. (2017), equation 1, as (batch, length, heads * head_dim).

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


WARM_UP = 3  # runs before a capture: libraries allocate their work space in the first ones


class SearchShape(NamedTuple):
    """The sizes of a search: sentences, beams, tokens of the longest source and of the longest target."""

    batch: int
    beams: int
    width: int
    capacity: int


class Search:
    """A search of one shape, with all its states at fixed addresses."""

    def __init__(self, network: Network, shape: SearchShape, stopwatch: Stopwatch) -> None:
        self._network, self._shape, self._stopwatch = network, shape, stopwatch
        batch, beams, width, capacity = shape
        weight = network.output.weight
        head_dim = weight.size(1) // network.heads

        def states(length: int) -> list[KeyValue]:
            sizes = (batch, network.heads, length, head_dim)
            return [KeyValue(weight.new_zeros(sizes), weight.new_zeros(sizes)) for _ in network.decoder]

        def integers(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.int64, device=weight.device)

        self._source_ids, self._source_lengths, self._limits = integers(batch, width), integers(batch), integers(batch)
        self._memory, self._past = states(width), states(capacity * beams)
        self._source_bias = weight.new_zeros(batch, 1, 1, width)
        self._step, self._last, self._tokens = integers(1), integers(batch, beams), integers(batch, beams, capacity)
        self._totals = torch.zeros(batch, beams, device=weight.device)
        self._visible = torch.zeros(batch, beams, capacity, beams, dtype=torch.bool, device=weight.device)
        self._own = torch.eye(beams, dtype=torch.bool, device=weight.device)[:, None].expand(batch, -1, -1, -1)
        self._beams = torch.arange(beams, device=weight.device)
        self._result = integers(batch, capacity)
        self._source_lengths += 1
        self._launch_begin = launched(self._begin, weight.device)
        self._launch_begin()
        self._launch_step = launched(self._advance, weight.device)

    def run(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """Return the best hypothesis of each source, as many tokens as its limit. sources: token ids, EOS last."""
        rows = [[*source, *[PAD] * (self._shape.width - len(source))] for source in sources]
        self._source_ids.copy_(torch.tensor(rows))
        self._source_lengths.copy_(torch.tensor([len(source) for source in sources]))
        self._limits.copy_(torch.tensor(limits))
        wait = torch.cuda.synchronize if self._limits.is_cuda else lambda: None
        with self._stopwatch.part(ENCODER, wait):
            self._launch_begin()
        with self._stopwatch.part(STEPS, wait):
            for _ in range(max(limits)):
                self._launch_step()
        found = self._result.tolist()
        return [row[:limit] for row, limit in zip(found, limits, strict=True)]

    def _begin(self) -> None:
        """Encode the sources and reset the search."""
        seen = torch.arange(self._shape.width, device=self._limits.device) < self._source_lengths[:, None]
        self._source_bias.copy_(_bias(seen, self._source_bias)[:, None, None])
        memory = self._network.encode(self._source_ids, self._source_bias)
        for own, found in zip(self._memory, memory, strict=True):
            own.key.copy_(found.key)
            own.value.copy_(found.value)
        self._step.zero_()
        self._last.fill_(BOS)
        self._visible.zero_()
        self._totals.fill_(-torch.inf)  # all beams have the same past at first, so that only one may be extended
        self._totals[:, 0] = 0

    def _advance(self) -> None:
        """Choose one more token for every hypothesis."""
        self._visible.index_copy_(2, self._step, self._own)
        bias = _bias(self._visible, self._source_bias).flatten(2)[:, None]
        slots = self._step * self._shape.beams + self._beams
        hidden = self._network.embed(self._last, self._step)
        for layer, states, memory in zip(self._network.decoder, self._past, self._memory, strict=True):
            hidden = layer.step(hidden, Past(states, slots, bias), memory, self._source_bias)  # type: ignore[operator]
        logits = self._network.logits(hidden)
        if self._shape.beams == 1:
            self._last.copy_(logits.argmax(-1))
        else:
            self._rank(logits)
        self._tokens.index_copy_(2, self._step, self._last[:, :, None])
        self._step += 1
        ends = (self._step == self._limits)[:, None]
        self._result.copy_(torch.where(ends, self._tokens[:, 0], self._result))

    def _rank(self, logits: Tensor) -> None:
        """Keep the likeliest continuations of a sentence, the likeliest first.

        logits: (batch, beams, vocab)
        """
        beams = self._shape.beams
        values, pieces = logits.topk(beams)
        log_probs = values.float() - logits.float().logsumexp(-1, keepdim=True)
        totals, kept = (self._totals[:, :, None] + log_probs).flatten(1).topk(beams)
        parents = kept // beams
        self._totals.copy_(totals)
        self._last.copy_(pieces.flatten(1).gather(1, kept))
        self._tokens.copy_(self._tokens.gather(1, parents[:, :, None].expand_as(self._tokens)))
        self._visible.copy_(self._visible.gather(1, parents[:, :, None, None].expand_as(self._visible)))


def launched(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return a captured CUDA graph that does the work with a single launch; on other devices the work itself."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _bias(visible: Tensor, like: Tensor) -> Tensor:
    """Return the bias of `attend` in the type of `like`: 0 where visible is True, otherwise -inf."""
    return torch.zeros_like(visible, dtype=like.dtype).masked_fill(~visible, -torch.inf)


ALIGNED = 8  # positions, because the kernels of attention take a mask only with rows of whole vectors


def unavailable_reason() -> str | None:
    """Return a reason if torch is not installed."""
    return missing_package("torch")


def prepare(bundle: Bundle, folder: Path) -> None:
    """Do nothing: the loop reads the bundle itself."""


def load(folder: Path, setting: Setting) -> TorchGraph:
    """Load the weights of a bundle's folder on the device of the setting."""
    import torch

    if setting.device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("torch-graph: torch sees no CUDA device")
    if setting.precision == "int8":
        raise SettingsError("torch-graph is measured in fp32 and fp16, got int8")
    torch.set_num_threads(setting.threads)
    bundle = open_bundle(folder)
    kind = torch.float16 if setting.precision == "fp16" else torch.float32
    return TorchGraph(Network(model_of(bundle)).to(setting.device, kind).eval(), bundle.manifest.limits)


class TorchGraph:
    """The loop as a lingon.bench.engines.base.BenchEngine. It keeps the searches of a cell until the next cell."""

    def __init__(self, network: Network, limits: Limits) -> None:
        self._network, self._limits, self.stopwatch = network, limits, Stopwatch()
        self._cell: Cell | None = None
        self._searches: dict[SearchShape, Search] = {}

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Translate one batch after the other. Every sentence gets as many tokens as its limit."""
        import torch

        if not cell.is_forced:
            raise SettingsError("torch-graph decodes only outputs whose lengths are given")
        if cell != self._cell:
            self._searches.clear()  # before others are allocated
            self._cell = cell
        found: Tokens = [[] for _ in sources]
        with torch.inference_mode():
            for batch in batches(sources, cell, self._limits, cell.batch):
                chosen = [sources[index] for index in batch.indices]
                limits = [limit(len(source), cell, self._limits) for source in chosen]
                rows = self._search(batch, chosen, cell).run(chosen, limits)
                for index, tokens in zip(batch.indices, rows, strict=True):
                    found[index] = tokens
        return found

    def _search(self, batch: Batch, sources: Sequence[Sequence[int]], cell: Cell) -> Search:
        width = _aligned(max(map(len, sources)))
        shape = SearchShape(len(sources), cell.beam_size, width, _aligned(batch.longest))
        if shape not in self._searches:
            self._searches[shape] = Search(self._network, shape, self.stopwatch)
        return self._searches[shape]


def _aligned(positions: int) -> int:
    return -(-positions // ALIGNED) * ALIGNED
