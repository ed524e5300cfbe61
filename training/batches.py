"""Batches of pairs of similar length within a token budget. Their order is a function of seed and epoch."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingon.alignment import word_at
from lingon.errors import CorpusError
from lingon.text import BOS, EOS, PAD, LanguageTokens, Tokenizer, ended, without_end
from lingon.training.config import LanguagePair
from lingon.training.corpus import FilterCounts, Pair, TrainingText, sides
from lingon.training.tokenizer import SegmentationSampler

NO_OTHERS: Mapping[LanguagePair, Tokenizer] = MappingProxyType({})


class Batch(NamedTuple):
    """Pairs padded to one width.

    source_ids: (batch, source_length), each source ends with EOS unless the model reads none there
    source_lengths: (batch)
    target_ids: (batch, target_length), each target begins with BOS
    labels: (batch, target_length), the token after each of target_ids, the last one EOS. PAD is ignored by the loss
    alignment: see `PieceAlignments.batch`, or None if training is not guided
    """

    source_ids: Tensor
    source_lengths: Tensor
    target_ids: Tensor
    labels: Tensor
    alignment: Tensor | None = None

    @property
    def tokens(self) -> int:
        """The number of target tokens, without padding."""
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device. The copy to a CUDA device is asynchronous."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        alignment = None if self.alignment is None else move(self.alignment)
        return Batch(
            move(self.source_ids), move(self.source_lengths), move(self.target_ids), move(self.labels), alignment
        )


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Token ids of parallel sentences, without special tokens, and their alignments if training is guided.

    after: source tokens after the end token of each pair, as a model of several languages may have them, empty if
        none has any
    source_end: whether each source ends with the end token
    """

    sources: list[list[int]]
    targets: list[list[int]]
    alignments: PieceAlignments | None = None
    after: Sequence[tuple[int, ...]] = ()
    source_end: bool = True

    def lengths(self) -> NDArray[np.int64]:
        """Return source and target lengths (pairs, 2), the end token counted on both sides."""
        pairs = zip(self.sources, self.targets, strict=True)
        found = np.array([(len(source) + 1, len(target) + 1) for source, target in pairs], np.int64).reshape(-1, 2)
        if self.after:
            found[:, 0] += [len(tokens) for tokens in self.after]
        return found

    def batch(self, rows: Sequence[int]) -> Batch:
        """Return the pairs at these indices, padded."""
        ends = (ended(self.sources[row], source_end=self.source_end) for row in rows)
        sources = [[*each, *(self.after[row] if self.after else ())] for row, each in zip(rows, ends, strict=True)]
        targets = [self.targets[row] for row in rows]
        return Batch(
            pad(sources),
            torch.tensor([len(source) for source in sources]),
            pad([[BOS, *target] for target in targets]),
            pad([[*target, EOS] for target in targets]),
            None if self.alignments is None else self.alignments.batch(rows, sources, targets),
        )


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Stack rows of ids, with PAD after the shorter ones: (rows, longest)."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    padded = np.full((len(rows), lengths.max()), PAD, np.int64)
    # One assignment for all rows: a tensor for each takes longer than a GPU needs for the update.
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
    return torch.from_numpy(padded)


class EpochEncoder:
    """An encoder of the same pairs in every epoch, with the same segmentation or, if alpha is not 0, with sampled
    ones.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizer: Tokenizer,
        alpha: float = 0.0,
        max_tokens: int = sys.maxsize,
        *,
        linked: bool = False,
        others: Mapping[LanguagePair, Tokenizer] = NO_OTHERS,
    ) -> None:
        """Prepare the pairs.

        pairs: pairs of at most max_tokens tokens on each side, the end token counted. No epoch exceeds this limit
        alpha: the exponent of the sampling distribution (see SegmentationSampler); 0 samples nothing
        linked: make batches with the alignments of the pairs
        others: see `encode_pairs`
        """
        self._encoded: EncodedPairs | None = None
        self._source_end = tokenizer.source_end
        self._alignments = PieceAlignments(pairs, tokenizer) if linked else None
        if alpha == 0:
            self._encoded = replace(encode_pairs(pairs, tokenizer, others), alignments=self._alignments)
            return
        sources, targets = sides(pairs)
        source, target = tokenizer.sentencepieces("tokenizer.sampling_alpha")
        self._sources = SegmentationSampler(source, sources, alpha, max_tokens - 1)
        self._targets = SegmentationSampler(target, targets, alpha, max_tokens - 1)

    def encode(self, seed: Sequence[int]) -> EncodedPairs:
        """Return the token ids of one epoch, a function of its seed."""
        if self._encoded is not None:
            return self._encoded
        sources, targets = self._sources.sample((*seed, 1)), self._targets.sample((*seed, 2))
        return EncodedPairs(sources, targets, self._alignments, source_end=self._source_end)


def encode_pairs(
    pairs: Sequence[Pair], tokenizer: Tokenizer, others: Mapping[LanguagePair, Tokenizer] = NO_OTHERS
) -> EncodedPairs:
    """Return the token ids of pairs, with the best segmentation and the tokens of their languages.

    tokenizer: of the pairs without languages
    others: those of the other pairs of languages. All have the same pieces
    """
    sources, targets = sides(pairs)
    encoded = EncodedPairs(
        tokenizer.source.encode(sources), tokenizer.target.encode(targets), source_end=tokenizer.source_end
    )
    if tokenizer.languages == LanguageTokens() and not others:
        return encoded
    tokens = [(others[pair.languages] if pair.languages else tokenizer).languages for pair in pairs]
    return EncodedPairs(
        [[*each.before, *source] for each, source in zip(tokens, encoded.sources, strict=True)],
        [[*each.forced, *target] for each, target in zip(tokens, encoded.targets, strict=True)],
        after=[each.after for each in tokens],
        source_end=tokenizer.source_end,
    )


def derive_seed(*numbers: int) -> int:
    """Return a seed of 32 bits. Different numbers give independent draws, but for zeros at their end."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def filter_by_length(
    pairs: Sequence[Pair], tokenizer: Tokenizer, max_tokens: int, others: Mapping[LanguagePair, Tokenizer] = NO_OTHERS
) -> list[Pair]:
    """Return the pairs of at most max_tokens tokens on each side, the end token counted; others: see `encode_pairs`."""
    longest = encode_pairs(pairs, tokenizer, others).lengths().max(axis=1, initial=0)
    return [pair for pair, length in zip(pairs, longest, strict=True) if length <= max_tokens]


def drop_long(
    text: TrainingText, tokenizer: Tokenizer, max_tokens: int, others: Mapping[LanguagePair, Tokenizer] = NO_OTHERS
) -> TrainingText:
    """Drop the pairs of more than max_tokens tokens on a side, and count them as dropped by length.

    others: see `encode_pairs`
    """
    corpora = [filter_by_length(pairs, tokenizer, max_tokens, others) for pairs in text.corpora]
    if not any(corpora):
        raise CorpusError(f"no pair has at most data.max_tokens = {max_tokens} tokens on each side; raise it")
    dropped = sum(map(len, text.corpora)) - sum(map(len, corpora))
    counts = FilterCounts(text.counts.read, {**text.counts.dropped, "length": dropped})
    return TrainingText(corpora, text.repeats, counts)


def plan_batches(lengths: NDArray[np.int64], batch_tokens: int, seed: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the indices of the pairs of each batch: pairs of similar length together, batches in random order.

    lengths: (pairs, 2), with at least one pair. Every pair is in one batch. A batch has at most batch_tokens padded
    tokens on each side, or a single pair that is longer.
    """
    random = np.random.default_rng(list(seed))
    order = random.permutation(len(lengths))
    order = order[np.lexsort((lengths[order, 0], lengths[order, 1]))]
    batches: list[NDArray[np.int64]] = []
    first, longest = 0, 0
    for position, length in enumerate(lengths[order].max(axis=1).tolist()):
        longest = max(longest, length)
        if position > first and (position - first + 1) * longest > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, length
    batches.append(order[first:])
    return [batches[index] for index in random.permutation(len(batches))]


# From the links of words to a distribution over the source pieces of each target piece, for guided alignment.

SPACE = "\u2581"


class PieceAlignments:
    """The alignments of pairs, for any segmentation of their texts."""

    def __init__(self, pairs: Sequence[Pair], tokenizer: Tokenizer) -> None:
        """pairs: with links between their words."""
        self._links = [pair.links for pair in pairs]
        source, target = tokenizer.sentencepieces("guided alignment")
        sources, targets = sides(pairs)
        self._source_words, self._target_words = _PieceWords(source, sources), _PieceWords(target, targets)

    def batch(self, rows: Sequence[int], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """Return (batch, target_length, source_length): entry (t, j) is the share of source piece j in target piece t.

        All pieces of two linked words are linked. The shares of a target piece are equal for all its links, and their
        sum is 1. It is 0 for pieces without links, for the end token and for padding.

        rows: the pairs
        sources: their token ids, each with the end token if the model reads one
        targets: their token ids without special tokens
        """
        lengths = max(len(target) + 1 for target in targets), max(map(len, sources))
        alignment = torch.zeros(len(rows), *lengths)
        for position, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True)):
            source_pieces = self._source_words.pieces(row, without_end(source))
            target_pieces = self._target_words.pieces(row, target)
            for source_word, target_word in self._links[row]:
                for piece in target_pieces[target_word]:
                    alignment[position, piece, source_pieces[source_word]] = 1.0
        return alignment / alignment.sum(dim=-1, keepdim=True).clamp(min=1.0)


class _PieceWords:
    """Which pieces the words of texts become.

    A piece is of the word in which it ends, as in `word_at`. Words are counted by the spaces that begin pieces, which
    are those of the text unless the model normalises it ("´" becomes a space and a combining accent), or the text has
    the character that pieces have for a space.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str]) -> None:
        """texts: normalised by `lingon.text.normalise`."""
        self._spaces = [processor.id_to_piece(token).count(SPACE) for token in range(processor.get_piece_size())]
        written = zip(texts, processor.normalize(texts), strict=True)
        changed = [
            row
            for row, (text, found) in enumerate(written)
            if SPACE in text or found != SPACE + text.replace(" ", SPACE)
        ]
        self._words = {row: self._words_after_spaces(processor, texts[row]) for row in changed}

    def pieces(self, row: int, ids: Sequence[int]) -> defaultdict[int, list[int]]:
        """Return the positions of the pieces of each word; ids: of the pieces of a text."""
        found, spaces, words = defaultdict[int, list[int]](list), 0, self._words.get(row)
        for position, token in enumerate(ids):
            spaces += self._spaces[token]
            found[spaces - 1 if words is None else words[spaces]].append(position)
        return found

    def _words_after_spaces(self, processor: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
        """Return the word of the text after each number of spaces, from 0 on."""
        words, end = [0], 0
        for piece in processor.encode(text, return_type="proto").pieces:
            end += len(piece.surface)
            word = word_at(text, end)
            words += [word] * self._spaces[piece.id]
            words[-1] = word
        return words
