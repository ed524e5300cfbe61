"""Small sentencepiece models, and merges of pairs of pieces (Sennrich et al., 2016) by their definition."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import sentencepiece

from lingon.text import BOS, EOS, PAD, UNK


def train_sentencepiece(lines: Iterable[str], vocab_size: int, **options: Any) -> bytes:
    """Return a model trained on lines, with the special ids of lingon.text. options: of sentencepiece's trainer."""
    model = io.BytesIO()
    special_ids = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "unk_id": UNK}
    unchanged = {"normalization_rule_name": "identity"}  # lingon.text.normalise alone changes text
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        **{**special_ids, **unchanged, **options},
        minloglevel=2,
    )
    return model.getvalue()


END = "</w>"


def learn_merges(tokens: Counter[str], count: int) -> list[tuple[str, str]]:
    """Return the merges of the most frequent pairs (Sennrich et al., 2016, algorithm 1)."""
    words = {(*token[:-1], token[-1] + END): number for token, number in tokens.items()}
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, number in words.items():
            for pair in pairwise(word):
                pairs[pair] += number
        if not pairs:
            break
        merges.append(min(pairs, key=lambda pair: (-pairs[pair], pair)))
        words = {merge_all(word, merges[-1]): number for word, number in words.items()}
    return merges


def merge_all(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """Return a word with every occurrence of a pair merged, from left to right."""
    found: list[str] = []
    position = 0
    while position < len(word):
        both = word[position : position + 2] == pair
        found.append(word[position] + word[position + 1] if both else word[position])
        position += 2 if both else 1
    return tuple(found)


def slow_pieces(token: str, merges: list[tuple[str, str]]) -> list[str]:
    """Return the pieces of a token by the definition: the first merge that applies, everywhere, again and again."""
    word = (*token[:-1], token[-1] + END)
    while True:
        there = set(pairwise(word))
        first = next((pair for pair in merges if pair in there), None)
        if first is None:
            return list(word)
        word = merge_all(word, first)


def pieces_of(tokens: Counter[str], merges: list[tuple[str, str]]) -> list[str]:
    """Return the pieces that these tokens are cut into, sorted."""
    return sorted({piece for token in tokens for piece in slow_pieces(token, merges)})
