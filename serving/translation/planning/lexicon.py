"""The words that the text layer needs of a model's languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lingon.bundle import Manifest
from lingon.segments.capitals import names_of
from lingon.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of a model's languages that the text layer needs.

    words: those that the model translates to themselves, the surest first; they stand for strings that are kept
    names: those that are written with capitals, by their form in lower case
    """

    words: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


def lexicon(manifest: Manifest, tokenizer: Tokenizer) -> Lexicon:
    """Return the lexicon of a bundle."""
    pieces = tokenizer.source
    names = names_of((pieces.id_to_piece(token), pieces.get_score(token)) for token in range(pieces.get_piece_size()))
    return Lexicon(manifest.text.words if manifest.text is not None else (), names)
