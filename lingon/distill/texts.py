"""The texts that a teacher translates: the unique lines of corpora, with their human translations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingon.errors import CorpusError
from lingon.lines import read_lines, read_parallel


@dataclass(frozen=True, slots=True)
class Text:
    """A text to translate.

    references: its human translations, each once, in the order of the corpora; none if only sources were given
    """

    source: str
    references: tuple[str, ...] = ()


def unique_texts(sources: Sequence[Path], targets: Sequence[Path]) -> list[Text]:
    """Return the lines of all sources that are not blank, each once, in the order of their first place.

    targets: line-parallel with the sources, or empty

    Raises CorpusError if a file cannot be read, or if there is no text.
    """
    found: dict[str, dict[str, None]] = {}
    for source, target in _pairs(sources, targets):
        if source.strip():
            references = found.setdefault(source, {})
            if target is not None and target.strip():
                references[target] = None
    if not found:
        raise CorpusError(f"{', '.join(map(str, sources))}: no text")
    return [Text(source, tuple(references)) for source, references in found.items()]


def _pairs(sources: Sequence[Path], targets: Sequence[Path]) -> Iterator[tuple[str, str | None]]:
    if targets:
        for source, target in zip(sources, targets, strict=True):
            yield from read_parallel(source, target)
    else:
        for source in sources:
            yield from ((line, None) for line in read_lines(source))


def digest(texts: Sequence[Text]) -> str:
    """Return the SHA-256 of texts and references, in hexadecimal."""
    found = hashlib.sha256()
    for text in texts:
        found.update(json.dumps([text.source, *text.references]).encode() + b"\n")
    return found.hexdigest()
