"""The other target languages of a model of several, which the gates of 8-bit products try as well."""

from __future__ import annotations

from lingon.export.gates.translations.golden import MOST_PAIRS
from lingon.text import Tokenizer
from lingon.training.checkpoint import Checkpoint


def gate_languages(checkpoint: Checkpoint) -> dict[str, Tokenizer]:
    """Return a tokenizer for each further target language, from the source language of the gates; MOST_PAIRS in all."""
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    if config.languages is None:
        return {}
    languages, own = config.languages.resolve(tokenizer), (config.data.source_language, config.data.target_language)
    others = [pair for pair in languages.pairs() if pair[0] == own[0] and pair != own]
    return {pair[1]: tokenizer.for_languages(languages.tokens(*pair)) for pair in others[: MOST_PAIRS - 1]}
