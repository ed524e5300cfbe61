"""The alphabet of a model: what its tokenizer cuts into pieces that are neither bytes nor unknown."""

from __future__ import annotations

import unicodedata

from lingon.moses import WORD_END, MosesPieces
from lingon.segments.characters.alphabet import Alphabet
from lingon.text import Tokenizer

_BEGINS_WORD = "\u2581"


def alphabet_of(tokenizer: Tokenizer) -> Alphabet:
    """Return the alphabet of a model. What it has learned of bytes is not counted: it is too little to be relied on."""

    def reads(text: str) -> bool:
        ids = tokenizer.source.encode(text)
        if not tokenizer.unreadable.isdisjoint(ids):
            return False
        return any(
            piece.strip(_BEGINS_WORD) not in ("", WORD_END) for piece in tokenizer.source_pieces(ids)
        ) or not any(map(_is_seen, text))

    return Alphabet(
        reads,
        tokenizer.source_pieces(range(tokenizer.source_vocab)),
        by_words=isinstance(tokenizer.source, MosesPieces),
    )


def _is_seen(character: str) -> bool:
    """Whether a normalisation that drops a character loses something; control characters and formats are none."""
    return not character.isspace() and unicodedata.category(character)[0] != "C"
