"""Packages of Argos Translate, which LibreTranslate uses: a folder of CTranslate2, its pieces, and the languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lingon.errors import SourceModelError
from lingon.importers.files.fields import Fields
from lingon.importers.readers.ctranslate2.folder import is_ctranslate2, read_ctranslate2
from lingon.importers.source import ForeignModel

ARGOS_METADATA, ARGOS_MODEL, ARGOS_PIECES, ARGOS_MERGES = "metadata.json", "model", "sentencepiece.model", "bpe.model"
TAGS = {"pb": "pt-BR", "zt": "zh-Hant"}
"""The codes of Argos Translate that are no language tags."""
LENGTH_PENALTY = 0.2  # with which Argos Translate searches


def is_argos(folder: Path) -> bool:
    """Whether a folder is a package of Argos Translate, unpacked."""
    return (folder / ARGOS_METADATA).is_file() and is_ctranslate2(folder / ARGOS_MODEL)


def ctranslate2_folder(folder: Path) -> Path:
    """Return the folder of CTranslate2 in a package, or the folder itself if it is no package."""
    return folder / ARGOS_MODEL if is_argos(folder) else folder


def read_argos(
    folder: Path, longest: int | None, source_end: bool | None = None, targets: Sequence[str] = ()
) -> ForeignModel:
    """Read a package. Raises SourceModelError. The arguments are those of `read_ctranslate2`.

    Argos Translate gives CTranslate2 the pieces of a text and nothing else.
    """
    metadata = Fields.read(folder / ARGOS_METADATA)
    for name, wanted in (("type", "translate"), ("target_prefix", "")):
        if metadata.text(name, wanted) != wanted:
            raise metadata.error(name, f"must be {wanted!r}")
    if not (folder / ARGOS_PIECES).is_file():
        merges = (folder / ARGOS_MERGES).is_file()
        has = f"has {ARGOS_MERGES} in the place of {ARGOS_PIECES}" if merges else f"has no {ARGOS_PIECES}"
        raise SourceModelError(f"{folder}: {has}; only packages with sentencepiece models are read")
    pieces = folder / ARGOS_PIECES, folder / ARGOS_PIECES
    source = read_ctranslate2(folder / ARGOS_MODEL, longest, pieces, targets, source_end, callers_end=False)
    languages = [TAGS.get(code, code) for code in (metadata.text("from_code", ""), metadata.text("to_code", ""))]
    facts = replace(
        source.facts,
        form="Argos Translate",
        languages=(languages[0], languages[1]),
        length_penalty=LENGTH_PENALTY,
        files=(folder / ARGOS_METADATA, *source.facts.files),
    )
    return replace(source, facts=facts)
