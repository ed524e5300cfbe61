"""The toolkits that a model is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lingon.errors import SettingsError
from lingon.importers.source import ForeignModel
from lingon.importers.witness import ctranslate2, marian, transformers
from lingon.training.checkpoint import Checkpoint

COMPARED = {transformers.TOOLKIT: transformers, ctranslate2.TOOLKIT: ctranslate2, marian.TOOLKIT: marian}
EXTRA = "the extra lingon[bench] has it"
REMEDIES = {marian.TOOLKIT: marian.REMEDY}
"""How to install a toolkit, where it is not EXTRA."""


def compare_with_toolkits(
    checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str], *, wanted: bool | None
) -> Iterator[str]:
    """Compare a model with the toolkit that its files are of, and a model of Transformers with CTranslate2 too.

    texts: normalised, in the source language
    wanted: None compares with what is installed; True raises SettingsError if the toolkit is missing

    Yields a line for each comparison, and one for each that is left out. Raises ParityError.
    """
    toolkit = source.facts.toolkit
    known = COMPARED.get(toolkit)
    if wanted and known is None:
        raise SettingsError(f"--compare: there is nothing to compare a model of {toolkit} with")
    if wanted and known is not None and not known.is_installed():
        raise SettingsError(f"--compare: {toolkit} is not installed; {REMEDIES.get(toolkit, EXTRA)}")
    if known is None or wanted is False:
        yield f"not compared with {toolkit}"
        return
    if not known.is_installed():
        remedy = f", so not confirmed; {REMEDIES[toolkit]}" if toolkit in REMEDIES else ""
        yield f"not compared with {toolkit}, which is not installed{remedy}"
        return
    yield from known.compare(checkpoint, source, folder, texts)
    if known is transformers and ctranslate2.is_installed():
        yield from ctranslate2.compare_converted(checkpoint, source, folder, texts)
