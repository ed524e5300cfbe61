"""Batches by token budget in length buckets, in an order that is a function of the seed and the epoch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from lingon.errors import CorpusError
from lingon.text import BOS, EOS, PAD, Tokenizer
from training.corpus import Pair, sides


class Batch(NamedTuple):
    """Pairs padded to one width.

    source_ids: (batch, source_length), each source ends with EOS
    source_lengths: (batch)
    target_ids: (batch, target_length), each target begins with BOS
    labels: (batch, target_length), the token after each of target_ids, the last EOS; PAD is not learned
    """

    source_ids: Tensor
    source_lengths: Tensor
    target_ids: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        """Target tokens to learn from."""
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Token ids of parallel sentences, without special tokens."""

    sources: list[list[int]]
    targets: list[list[int]]

    def lengths(self) -> np.ndarray:
        """(pairs, 2): source and target length, the end token counted."""
        return np.array([(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, rows: Sequence[int]) -> Batch:
        """The pairs of these rows, padded."""
        sources = [[*self.sources[row], EOS] for row in rows]
        targets = [self.targets[row] for row in rows]
        return Batch(
            pad(sources),
            torch.tensor([len(source) for source in sources]),
            pad([[BOS, *target] for target in targets]),
            pad([[*target, EOS] for target in targets]),
        )


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of ids side by side, PAD behind the shorter ones: (rows, longest)."""
    padded = torch.full((len(rows), max(map(len, rows))), PAD)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, dtype=torch.long)
    return padded


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, alpha: float = 0.0, seed: int = 0) -> EncodedPairs:
    """Token ids of pairs; alpha > 0 samples the segmentation (Kudo, 2018), the same for the same seed."""
    sources, targets = sides(pairs)
    if alpha == 0:
        return EncodedPairs(tokenizer.source.encode(sources), tokenizer.target.encode(targets))
    return EncodedPairs(
        _sample(tokenizer.source, sources, alpha, 2 * seed),
        _sample(tokenizer.target, targets, alpha, 2 * seed + 1),
    )


def drop_long(pairs: Sequence[Pair], tokenizer: Tokenizer, max_tokens: int) -> list[Pair]:
    """The pairs of at most max_tokens pieces on either side, the end token counted."""
    longest = encode_pairs(pairs, tokenizer).lengths().max(axis=1)
    kept = [pair for pair, length in zip(pairs, longest, strict=True) if length <= max_tokens]
    if not kept:
        raise CorpusError(f"no pair has at most {max_tokens} tokens a side; raise data.max_tokens")
    return kept


def plan_batches(lengths: np.ndarray, batch_tokens: int, seed: Sequence[int]) -> list[np.ndarray]:
    """Rows of each batch: pairs of like length together, batches in random order, every pair once.

    lengths: (pairs, 2). A batch holds at most batch_tokens padded tokens on each side, and at least one pair.
    """
    random = np.random.default_rng(list(seed))
    order = random.permutation(len(lengths))
    order = order[np.lexsort((lengths[order, 0], lengths[order, 1]))]
    batches: list[np.ndarray] = []
    first, longest = 0, 0
    for position, row in enumerate(order):
        longest = max(longest, int(lengths[row].max()))
        if position > first and (position - first + 1) * longest > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, int(lengths[row].max())
    batches.append(order[first:])
    return [batches[index] for index in random.permutation(len(batches))]


def _sample(
    processor: sentencepiece.SentencePieceProcessor, lines: list[str], alpha: float, seed: int
) -> list[list[int]]:
    """Sampled segmentations. sentencepiece seeds its generator once a thread, so a new thread makes it repeatable."""
    encoded: list[list[int]] = []

    def work() -> None:
        sentencepiece.set_random_generator_seed(seed)
        encoded.extend(processor.encode(lines, enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return encoded
