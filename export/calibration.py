"""The sentences on which the ranges of 8-bit products are measured."""

from __future__ import annotations

from collections.abc import Sequence

from lingon.export.gates.translations.languages import gate_languages
from lingon.export.graphs.quantisation import Sentence
from lingon.export.greedy import own_sentences
from lingon.text import Tokenizer
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.batches import filter_by_length
from lingon.training.data.corpus import Pair


def calibration_sentences(checkpoint: Checkpoint, training: Sequence[Pair], count: int) -> list[Sentence]:
    """Return ids of at most `count` pairs of training text, with those that every translation begins with.

    Of the pair of the gates the sources alone are taken for a model of several target languages, which translates
    them into all: see `own_sentences`.
    """
    tokenizer, chosen = checkpoint.tokenizer, _evenly_spaced(training, count)
    others = checkpoint.config.tokenizers_of_others(tokenizer)
    kept = filter_by_length(chosen, tokenizer, checkpoint.config.data.max_tokens, others)
    own = [pair for pair in kept if pair.languages is None]
    if gate_languages(checkpoint):
        found = own_sentences(checkpoint, [pair.source for pair in own], {})
    else:
        found = [_encoded(pair, tokenizer) for pair in own]
    return found + [_encoded(pair, others[pair.languages]) for pair in kept if pair.languages is not None]


def _encoded(pair: Pair, tokenizer: Tokenizer) -> Sentence:
    """Return the ids of a pair, with the tokens of the tokenizer's languages."""
    target = [*tokenizer.languages.forced, *tokenizer.encode_target(pair.target)]
    return tokenizer.encode_source(pair.source), target


def _evenly_spaced(pairs: Sequence[Pair], count: int) -> Sequence[Pair]:
    """Return at most `count` pairs, evenly spaced in the text."""
    if len(pairs) <= count:
        return pairs
    return [pairs[place * len(pairs) // count] for place in range(count)]
