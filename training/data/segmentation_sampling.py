"""Subword regularisation (Kudo, 2018): every epoch cuts the text into other pieces, drawn from the unigram model.

sentencepiece samples by itself, but seeds its generator anew in every process: no seed makes two processes, or a run
and its resumption, draw the same. So it is done here, word by word, which is exact because no piece spans two words,
and costs less: the segmentations of a word are found once and drawn from in every epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from lingon.errors import SettingsError

SPACE = "\u2581"
NBEST = 64  # segmentations of a word that are drawn from, as many as the paper takes of a sentence


class SegmentationSampler:
    """Lines of text whose segmentations can be drawn again and again.

    A segmentation of a word is drawn with the probability P(segmentation) ** alpha, normalised over the NBEST ones.
    """

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        lines: Sequence[str],
        alpha: float,
        longest: int = sys.maxsize,
    ) -> None:
        """lines: normalised text; alpha: 1 draws as the unigram model has it, less draws more evenly.

        longest: the most tokens of a line; where more are drawn, the line is cut as it would be without sampling
        """
        self._processor, self._lines, self._longest = processor, lines, longest
        index: dict[str, int] = {}
        self._words = [[index.setdefault(word, len(index)) for word in line.split(" ")] for line in lines]
        found = _segmentations(processor, list(index))
        self._segmentations = [ids for segmentations in found for ids in segmentations]
        self._cumulative = _cumulative(processor, found, alpha)

    def sample(self, seed: Sequence[int]) -> list[list[int]]:
        """Token ids of every line, a function of the seed."""
        words = np.array([word for line in self._words for word in line], np.int64)
        drawn = words + np.random.default_rng(list(seed)).random(len(words))
        chosen = np.searchsorted(self._cumulative, drawn, side="right").tolist()
        encoded, first = [], 0
        for text, line in zip(self._lines, self._words, strict=True):
            parts = chosen[first : first + len(line)]
            tokens = [token for part in parts for token in self._segmentations[part]]
            # The pairs were kept for their unsampled segmentation; a draw may be twice as long.
            encoded.append(tokens if len(tokens) <= self._longest else list(self._processor.encode(text)))
            first += len(line)
        return encoded


def _segmentations(processor: sentencepiece.SentencePieceProcessor, words: list[str]) -> list[list[tuple[int, ...]]]:
    """The best segmentations of every word, likeliest first."""
    pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
    if any(SPACE in piece[1:] for piece in pieces):
        raise SettingsError("tokenizer.sampling_alpha: this tokenizer has pieces that span words; train it here")
    try:
        return [[tuple(ids) for ids in processor.nbest_encode(word, nbest_size=NBEST)] for word in words]
    except RuntimeError:
        raise SettingsError(
            "tokenizer.sampling_alpha needs tokenizer.kind = 'unigram'; bpe has no likelihoods"
        ) from None


def _cumulative(
    processor: sentencepiece.SentencePieceProcessor, found: list[list[tuple[int, ...]]], alpha: float
) -> NDArray[np.float64]:
    """Of the k-th segmentation of word w: w plus the probability of the first k, so that it never falls.

    w + u, u drawn from [0, 1), then finds a segmentation of w.
    """
    scores = np.array([processor.get_score(token) for token in range(processor.get_piece_size())])
    parts: list[NDArray[np.float64]] = []
    for word, segmentations in enumerate(found):
        likelihood = alpha * np.array([scores[list(ids)].sum() for ids in segmentations])
        share = np.exp(likelihood - likelihood.max())
        cumulative = np.cumsum(share / share.sum())
        cumulative[-1] = 1.0
        parts.append(word + cumulative)
    return np.concatenate(parts)
