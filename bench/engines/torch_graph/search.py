"""Greedy and beam search on a device: a step is one launch, and the host learns nothing before the last step.

No key or value is ever copied when beams are reordered. A step writes the keys and values of all beams of a sentence
beside each other, and a table says which slots a hypothesis consists of. Attention reads all slots of a sentence once,
for all of its beams, and the table masks those of other hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lingon.bench.engines.torch_graph.model import KeyValue, Network, Past
from lingon.text import BOS, PAD

WARM_UP = 3  # runs before a capture: libraries allocate their work space in the first ones


class SearchShape(NamedTuple):
    """The sizes of a search: sentences, beams, tokens of the longest source and of the longest target."""

    batch: int
    beams: int
    width: int
    capacity: int


class Search:
    """A search of one shape, with all its states at fixed addresses."""

    def __init__(self, network: Network, shape: SearchShape) -> None:
        self._network, self._shape = network, shape
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
        self._launch_begin()
        for _ in range(max(limits)):
            self._launch_step()
        found = self._result.tolist()
        return [row[:limit] for row, limit in zip(found, limits, strict=True)]

    def _begin(self) -> None:
        """Encode the sources and go to the first step."""
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
    """Return what does the work with a single launch: a captured CUDA graph; elsewhere the work itself."""
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
    """Return what `attend` adds to scores, in the type of `like`: 0 where visible is True, otherwise -inf."""
    return torch.zeros_like(visible, dtype=like.dtype).masked_fill(~visible, -torch.inf)
