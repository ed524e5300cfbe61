"""From the links of words to a distribution over the source pieces of each target piece, for guided alignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import sentencepiece
import torch
from torch import Tensor

from lingon.alignment import WordLink
from lingon.text import Tokenizer

SPACE = "\u2581"


class PieceAlignments:
    """The alignments of pairs, for any segmentation of their texts."""

    def __init__(self, links: Sequence[Sequence[WordLink]], tokenizer: Tokenizer) -> None:
        """links: between the words of each pair, whose texts are normalised."""
        self._links = links
        self._source_spaces, self._target_spaces = map(_spaces, tokenizer.sentencepieces("guided alignment"))

    def batch(self, rows: Sequence[int], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """Return (batch, target_length, source_length): entry (t, j) is the share of source piece j in target piece t.

        All pieces of two linked words are linked. The shares of a target piece are equal for all its links, and their
        sum is 1; it is 0 for pieces without links, for the end token and for padding.

        rows: the pairs
        sources: their token ids, each with the end token
        targets: their token ids without special tokens
        """
        lengths = max(len(target) + 1 for target in targets), max(map(len, sources))
        alignment = torch.zeros(len(rows), *lengths)
        for place, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True)):
            source_pieces = _pieces_of_words(source[:-1], self._source_spaces)
            target_pieces = _pieces_of_words(target, self._target_spaces)
            for source_word, target_word in self._links[row]:
                for piece in target_pieces[target_word]:
                    alignment[place, piece, source_pieces[source_word]] = 1.0
        return alignment / alignment.sum(dim=-1, keepdim=True).clamp(min=1.0)


def _spaces(processor: sentencepiece.SentencePieceProcessor) -> list[int]:
    """Return how many words begin in each piece of a vocabulary; more than one only if pieces span words."""
    return [processor.id_to_piece(token).count(SPACE) for token in range(processor.get_piece_size())]


def _pieces_of_words(ids: Sequence[int], spaces: Sequence[int]) -> defaultdict[int, list[int]]:
    """Return the places of the pieces of each word; a piece that spans words belongs to the last, as in `word_at`."""
    found, words = defaultdict[int, list[int]](list), 0
    for place, token in enumerate(ids):
        words += spaces[token]
        found[words - 1].append(place)
    return found
