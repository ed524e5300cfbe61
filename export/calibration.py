"""The sentences on which the ranges of 8-bit products are measured, and greedy translations for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lingon.export.gates_text import MOST_PAIRS
from lingon.export.graphs.quantisation import SentenceIds
from lingon.text import Tokenizer
from lingon.training.batches import filter_by_length
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.search import Hypothesis, PairIds, SearchSettings, translate

# The other target languages of a model of several, which the gates of 8-bit products try as well.


def gate_languages(checkpoint: Checkpoint) -> dict[str, Tokenizer]:
    """Return a tokenizer for each further target language, from the source language of the gates; MOST_PAIRS in all."""
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    if config.languages is None:
        return {}
    languages, own = config.languages.resolve(tokenizer), (config.data.source_language, config.data.target_language)
    others = [pair for pair in languages.pairs() if pair[0] == own[0] and pair != own]
    return {pair[1]: tokenizer.for_languages(languages.tokens(*pair)) for pair in others[: MOST_PAIRS - 1]}


# Greedy translations by a checkpoint. Each is searched for once. A model of several languages translates into them
# alternately.


def translate_once(checkpoint: Checkpoint, texts: Sequence[str], known: dict[PairIds, Hypothesis]) -> list[Hypothesis]:
    """Return the greedy translation of each text.

    texts: normalised
    known: translations by this model. Those that are not there are added
    """
    forced = checkpoint.tokenizer.languages.forced
    keys = [(tuple(checkpoint.tokenizer.encode_source(text)), forced) for text in texts]
    new = [key for key in dict.fromkeys(keys) if key not in known]
    found = translate(checkpoint.model, [source for source, _ in new], SearchSettings(forced=forced))
    known.update(zip(new, (best for best, *_ in found), strict=True))
    return [known[key] for key in keys]


def own_sentences(checkpoint: Checkpoint, texts: Sequence[str], known: dict[PairIds, Hypothesis]) -> list[SentenceIds]:
    """Return texts with their greedy translations, in ids with the tokens of the languages.

    A model of several languages translates the texts into them alternately: each has its own activations.
    texts: normalised, in the source language of the gates
    known: see `translate_once`
    """
    ways = [checkpoint.tokenizer, *gate_languages(checkpoint).values()]
    found: list[SentenceIds] = []
    most = checkpoint.model.settings.max_positions - 1  # after the start token; a search that ends there reads no more
    for position, tokenizer in enumerate(ways):
        longest = checkpoint.config.max_source_tokens
        own = [text for text in texts[position :: len(ways)] if len(tokenizer.encode_source(text)) <= longest]
        best = translate_once(replace(checkpoint, tokenizer=tokenizer), own, known)
        forced = tokenizer.languages.forced
        found += [
            (tokenizer.encode_source(text), [*forced, *each.tokens][:most])
            for text, each in zip(own, best, strict=True)
        ]
    return found


# The sentences on which the ranges of 8-bit products are measured.


def calibration_sentences(checkpoint: Checkpoint, training: Sequence[Pair], count: int) -> list[SentenceIds]:
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


def _encoded(pair: Pair, tokenizer: Tokenizer) -> SentenceIds:
    """Return the ids of a pair, with the tokens of the tokenizer's languages."""
    target = [*tokenizer.languages.forced, *tokenizer.encode_target(pair.target)]
    return tokenizer.encode_source(pair.source), target


def _evenly_spaced(pairs: Sequence[Pair], count: int) -> Sequence[Pair]:
    """Return at most `count` pairs, evenly spaced in the text."""
    if len(pairs) <= count:
        return pairs
    return [pairs[position * len(pairs) // count] for position in range(count)]
