"""Greedy translations by a checkpoint, each of which is searched for once; into several languages in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lingon.export.gates.translations.languages import gate_languages
from lingon.export.graphs.quantisation import Sentence
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings, translate

Ids = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a source, and those that its translation begins with."""


def translate_once(checkpoint: Checkpoint, texts: Sequence[str], known: dict[Ids, Hypothesis]) -> list[Hypothesis]:
    """Return the greedy translation of each text.

    texts: normalised
    known: translations by this model; those that are not there are added
    """
    forced = checkpoint.tokenizer.languages.forced
    keys = [(tuple(checkpoint.tokenizer.encode_source(text)), forced) for text in texts]
    new = [key for key in dict.fromkeys(keys) if key not in known]
    found = translate(checkpoint.model, [source for source, _ in new], SearchSettings(forced=forced))
    known.update(zip(new, (best for best, *_ in found), strict=True))
    return [known[key] for key in keys]


def own_sentences(checkpoint: Checkpoint, texts: Sequence[str], known: dict[Ids, Hypothesis]) -> list[Sentence]:
    """Return texts with their greedy translations, in ids with the tokens of the languages.

    A model of several languages translates the texts into them in turns: each has its own activations.
    texts: normalised, in the source language of the gates
    known: see `translate_once`
    """
    ways = [checkpoint.tokenizer, *gate_languages(checkpoint).values()]
    found: list[Sentence] = []
    most = checkpoint.model.settings.max_positions - 1  # after the start token; a search that ends there reads no more
    for place, tokenizer in enumerate(ways):
        longest = checkpoint.config.max_source_tokens
        own = [text for text in texts[place :: len(ways)] if len(tokenizer.encode_source(text)) <= longest]
        best = translate_once(replace(checkpoint, tokenizer=tokenizer), own, known)
        forced = tokenizer.languages.forced
        found += [
            (tokenizer.encode_source(text), [*forced, *each.tokens][:most])
            for text, each in zip(own, best, strict=True)
        ]
    return found
