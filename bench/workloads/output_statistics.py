"""Statistics of a model's outputs that the time of decoding depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lingon.text import BOS
from lingon.training.data.batches import pad
from lingon.training.models.attention import KeyValue
from lingon.training.models.interface import select_rows
from lingon.training.models.transformer import Memory, Transformer


@dataclass(frozen=True, slots=True)
class Outputs:
    """The result of a search with a fixed number of steps.

    tokens: (sentences, steps), the best hypothesis of each sentence
    copying: the share of steps of a sentence in which some beam has several continuations, so that its past is copied
    margins: (steps, sentences), difference in log-probability between the best and the second best continuation
    """

    tokens: Tensor
    copying: float
    margins: Tensor

    @property
    def distinct(self) -> int:
        """The smallest number of distinct tokens in a sentence."""
        return min(len(set(row)) for row in self.tokens.tolist())


@torch.inference_mode()
def outputs(model: Transformer, sources: Sequence[Sequence[int]], beam_size: int, steps: int) -> Outputs:
    """Search for exactly `steps` tokens; the model must never prefer the end token. sources: token ids."""
    count, vocab = len(sources), model.output.weight.size(0)
    memory = _repeated(model.encode(pad(sources), torch.tensor([len(source) for source in sources])), beam_size)
    past, next_ids = model.start(memory), torch.full((count * beam_size,), BOS)
    totals = torch.full((count, beam_size), -torch.inf)
    totals[:, 0] = 0  # All beams have the same past at first, so only one may be extended.
    tokens = torch.empty((count, beam_size, 0), dtype=torch.long)
    margins, copied = [], 0
    for step in range(steps):
        logits, past = model.decode_step(next_ids, past, memory)
        sums = model.log_probs(logits).view(count, beam_size, vocab) + totals[:, :, None]
        best = sums.flatten(1).topk(max(beam_size, 2))
        margins.append(best.values[:, 0] - best.values[:, 1])
        totals, chosen = best.values[:, :beam_size], best.indices[:, :beam_size]
        parents, last = chosen // vocab, chosen % vocab
        copied += sum(len(set(row)) < beam_size for row in parents.tolist()) if step else 0
        rows = (parents + beam_size * torch.arange(count)[:, None]).flatten()
        past = select_rows(past, rows)
        tokens = torch.cat([tokens.flatten(0, 1)[rows].view(count, beam_size, step), last[:, :, None]], dim=2)
        next_ids = last.flatten()
    return Outputs(tokens[:, 0], copied / max((steps - 1) * count, 1), torch.stack(margins))


def _repeated(memory: Memory, beam_size: int) -> Memory:
    """The memory, repeated for every beam of every sentence."""
    layers = [KeyValue(*(each.repeat_interleave(beam_size, 0) for each in layer)) for layer in memory.layers]
    return Memory(layers, memory.visible.repeat_interleave(beam_size, 0))
