"""From the links of words to a distribution over the source pieces of each target piece, for guided alignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import sentencepiece
import torch
from torch import Tensor

from lingon.alignment import word_at
from lingon.text import Tokenizer, without_end
from lingon.training.data.corpus import Pair, sides

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
        sum is 1; it is 0 for pieces without links, for the end token and for padding.

        rows: the pairs
        sources: their token ids, each with the end token if the model reads one
        targets: their token ids without special tokens
        """
        lengths = max(len(target) + 1 for target in targets), max(map(len, sources))
        alignment = torch.zeros(len(rows), *lengths)
        for place, (row, source, target) in enumerate(zip(rows, sources, targets, strict=True)):
            source_pieces = self._source_words.pieces(row, without_end(source))
            target_pieces = self._target_words.pieces(row, target)
            for source_word, target_word in self._links[row]:
                for piece in target_pieces[target_word]:
                    alignment[place, piece, source_pieces[source_word]] = 1.0
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
        """Return the places of the pieces of each word; ids: of the pieces of a text."""
        found, spaces, words = defaultdict[int, list[int]](list), 0, self._words.get(row)
        for place, token in enumerate(ids):
            spaces += self._spaces[token]
            found[spaces - 1 if words is None else words[spaces]].append(place)
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
