"""Batches: pairs padded to one width, of a prepared corpus or of text in memory, with alignments if they are guided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingon.alignment import WordLink, word_at
from lingon.text import BOS, EOS, PAD, LanguageTokens, Tokenizer, ended
from lingon.training.config import Config, LanguagePair
from lingon.training.corpus import Pair, sides
from lingon.training.epochs import mixed
from lingon.training.prepared import PreparedCorpus
from lingon.training.shard_tasks import framing
from lingon.training.terms import ROOM, TermAnnotator
from lingon.training.tokenizer import SPACE, SegmentationSampler

MEASURED = 1000  # pairs of which sampled segmentations are compared with the best ones
Ids: TypeAlias = Sequence[int] | NDArray[Any]
"""Token ids of a text."""

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

    @classmethod
    def of(cls, sources: Sequence[Ids], targets: Sequence[Ids], alignment: Tensor | None = None) -> Self:
        """Return a batch of sources as the model reads them, and of targets without begin and end tokens."""
        lengths = np.fromiter(map(len, sources), np.int64, len(sources))
        begin, end = np.array([BOS]), np.array([EOS])
        return cls(
            pad(sources),
            torch.from_numpy(lengths),
            pad([np.concatenate((begin, target)) for target in targets]),
            pad([np.concatenate((target, end)) for target in targets]),
            alignment,
        )

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


def pad(rows: Sequence[Ids]) -> Tensor:
    """Stack rows of ids, with PAD after the shorter ones: (rows, longest)."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    padded = np.full((len(rows), lengths.max()), PAD, np.int64)
    # One assignment for all rows: a tensor for each takes longer than a GPU needs for the update.
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(padded)


CACHED = ("_samplers", "_alignments", "_source_model")
"""What a maker of batches makes again in another process."""


class BatchRequest(NamedTuple):
    """What a batch is made of.

    rows: of its pairs in the prepared corpus
    keys: of what is drawn for them, segmentations and terms, (pairs)
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.uint64]


class BatchMaker:
    """What makes the batches of a run from its prepared corpus. It can be sent to another process."""

    def __init__(self, corpus: PreparedCorpus, config: Config, tokenizer: Tokenizer) -> None:
        self._corpus, self._source_end = corpus, config.tokenizer.source_end
        self._frames = config.corpus_tokens(tokenizer)
        self._alpha, self._most = config.tokenizer.sampling_alpha, config.data.max_tokens - 1
        self._batch_tokens, self._linked = config.training.batch_tokens, bool(config.training.guided_alignment)
        self._annotator = None if config.data.terms is None else TermAnnotator(config.data.terms)
        self._files = tokenizer.files()
        self.growth = self._growth() if self._alpha else 1.0

    def _growth(self) -> float:
        """Return how much longer than the best segmentation a sampled one is, at most, of 99 of 100 texts.

        Raises SettingsError if the tokenizer cannot sample.
        """
        rows = np.arange(min(len(self._corpus), MEASURED))
        found = []
        for sampler, lines, best in zip(self._samplers, self._corpus.texts(rows), self._corpus.ids(rows), strict=True):
            sampler.check(lines)
            sampled = sampler.sample(lines, mixed(rows.astype(np.uint64)))
            found += [len(one) / len(other) for one, other in zip(sampled, best, strict=True) if len(other)]
        return max(float(np.quantile(found, 0.99)), 1.0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in CACHED}

    @cached_property
    def _samplers(self) -> list[SegmentationSampler]:
        models = Tokenizer(*self._files.values()).sentencepieces("tokenizer.sampling_alpha")
        return [SegmentationSampler(model, self._alpha, self._most) for model in models]

    @cached_property
    def _alignments(self) -> PieceAlignments:
        return PieceAlignments(Tokenizer(*self._files.values()))

    @cached_property
    def _source_model(self) -> sentencepiece.SentencePieceProcessor:
        return Tokenizer(*self._files.values()).sentencepieces("data.terms")[0]

    def planned_lengths(self, rows: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the source and target lengths (pairs, 2) that batches of these pairs are planned with; see `batch`."""
        lengths: NDArray[Any] = self._corpus.lengths[rows]
        if self.growth > 1:
            lengths = np.ceil(lengths * self.growth)
        if self._annotator is not None:
            lengths = lengths.astype(np.int64)
            lengths[:, 0] += ROOM * self._annotator.counts(keys)
        return lengths

    def batch(self, request: BatchRequest) -> Batch:
        """Return the pairs at these rows, padded."""
        rows, corpus = request.rows, self._corpus
        texts = corpus.texts(rows) if self._alpha or self._linked or self._annotator else ([], [])
        annotated = self._annotated(texts, request)
        for place, text in annotated.items():
            texts[0][place] = text
        if self._alpha:
            sources, targets = self._sampled(texts, request, annotated)
        else:
            sources, targets = corpus.ids(rows)
            for place, text in annotated.items():
                sources[place] = np.array(self._source_model.encode(text))
        frames = [self._frames[number] for number in corpus.corpora_of(rows).tolist()]
        framed = [self._framed(source, frame) for source, frame in zip(sources, frames, strict=True)]
        forced = [
            np.concatenate((frame.forced, target)) if frame.forced else target
            for target, frame in zip(targets, frames, strict=True)
        ]
        alignment = None
        if self._linked:  # a model of one pair: its tokens are the pieces
            # The words of an annotated source are others than those that the links count.
            links = [() if place in annotated else each for place, each in enumerate(corpus.links(rows))]
            alignment = self._alignments.batch(texts, links, framed, forced)
        return Batch.of(framed, forced, alignment)

    def _framed(self, pieces: NDArray[Any], frame: LanguageTokens) -> NDArray[Any]:
        end = (EOS,) if self._source_end or not len(pieces) else ()
        return np.concatenate([np.array((*frame.before,), np.int64), pieces, np.array((*end, *frame.after), np.int64)])

    def _annotated(self, texts: tuple[list[str], list[str]], request: BatchRequest) -> dict[int, str]:
        """Return the sources that are annotated with terms, by their places in the batch."""
        if self._annotator is None:
            return {}
        counts = self._annotator.counts(request.keys)
        places = np.flatnonzero(counts).tolist()
        links = self._corpus.links(request.rows[places])
        keys = mixed(request.keys[places] + np.uint64(4)).tolist()
        found = {}
        for place, count, own, key in zip(places, counts[places].tolist(), links, keys, strict=True):
            fits = partial(self._fits, self._most_pieces(request.rows[place], ROOM * count))
            text = self._annotator.annotated((texts[0][place], texts[1][place]), own, count, key, fits)
            if text is not None:
                found[place] = text
        return found

    def _fits(self, most: int, source: str) -> bool:
        return len(self._source_model.encode(source)) <= most

    def _most_pieces(self, row: np.int64, room: int) -> int:
        """Return how many pieces an annotated source may have: so many were planned, and the model reads."""
        framed = int(framing(self._frames[int(self._corpus.corpora_of(np.array([row]))[0])])[0])
        return min(int(self._corpus.lengths[row, 0]) + room, self._most + 1) - framed

    def _sampled(
        self, texts: tuple[list[str], list[str]], request: BatchRequest, annotated: Mapping[int, str]
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Return sampled segmentations, but the best ones of pairs that would make the batch too large."""
        source, target = self._samplers
        sources = source.sample(texts[0], mixed(request.keys + np.uint64(1)))
        targets = target.sample(texts[1], mixed(request.keys + np.uint64(2)))
        longest = self._batch_tokens // len(request.rows)
        for place, pair in enumerate(zip(sources, targets, strict=True)):
            if max(map(len, pair)) >= longest:
                best = self._corpus.ids(request.rows[place : place + 1])
                sources[place], targets[place] = best[0][0], best[1][0]
                if place in annotated:
                    sources[place] = np.array(self._source_model.encode(annotated[place]))
        return sources, targets


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Token ids of parallel sentences in memory, without special tokens.

    after: source tokens after the end token of each pair, as a model of several languages may have them, empty if
        none has any
    source_end: whether each source ends with the end token
    """

    sources: list[list[int]]
    targets: list[list[int]]
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
        return Batch.of(sources, targets)


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


# From the links of words to a distribution over the source pieces of each target piece, for guided alignment.


class PieceAlignments:
    """The alignments of pairs, for any segmentation of their texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        source, target = tokenizer.sentencepieces("guided alignment")
        self._source_words, self._target_words = _PieceWords(source), _PieceWords(target)

    def batch(
        self,
        texts: tuple[Sequence[str], Sequence[str]],
        links: Sequence[Sequence[WordLink]],
        sources: Sequence[Ids],
        targets: Sequence[Ids],
    ) -> Tensor:
        """Return (batch, target_length, source_length): entry (t, j) is the share of source piece j in target piece t.

        All pieces of two linked words are linked. The shares of a target piece are equal for all its links, and their
        sum is 1. It is 0 for pieces without links, for the end token and for padding.

        texts: the normalised sources and targets
        links: between their words
        sources: their token ids, each with the end token if the model reads one
        targets: their token ids without special tokens
        """
        lengths = max(len(target) + 1 for target in targets), max(map(len, sources))
        alignment = torch.zeros(len(links), *lengths)
        for position, (of_pair, source, target) in enumerate(zip(links, sources, targets, strict=True)):
            if not of_pair:
                continue
            source_pieces = self._source_words.pieces(texts[0][position], source[:-1] if source[-1] == EOS else source)
            target_pieces = self._target_words.pieces(texts[1][position], target)
            for source_word, target_word in of_pair:
                for piece in target_pieces[target_word]:
                    alignment[position, piece, source_pieces[source_word]] = 1.0
        return alignment / alignment.sum(dim=-1, keepdim=True).clamp(min=1.0)


class _PieceWords:
    """Which pieces the words of texts become.

    A piece is of the word in which it ends, as in `word_at`. Words are counted by the spaces that begin pieces, which
    are those of the text unless the model normalises it ("´" becomes a space and a combining accent), or the text has
    the character that pieces have for a space.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self._spaces = [processor.id_to_piece(token).count(SPACE) for token in range(processor.get_piece_size())]

    def pieces(self, text: str, ids: Ids) -> defaultdict[int, list[int]]:
        """Return the positions of the pieces of each word.

        text: normalised by `lingon.text.normalise`; ids: of its pieces
        """
        found, spaces, words = defaultdict[int, list[int]](list), 0, None
        if SPACE in text or self._processor.normalize(text) != SPACE + text.replace(" ", SPACE):
            words = self._words_after_spaces(text)
        for position, token in enumerate(ids.tolist() if isinstance(ids, np.ndarray) else ids):
            spaces += self._spaces[token]
            found[spaces - 1 if words is None else words[spaces]].append(position)
        return found

    def _words_after_spaces(self, text: str) -> list[int]:
        """Return the word of the text after each number of spaces, from 0 on."""
        words, end = [0], 0
        for piece in self._processor.encode(text, return_type="proto").pieces:
            end += len(piece.surface)
            word = word_at(text, end)
            words += [word] * self._spaces[piece.id]
            words[-1] = word
        return words
