"""The text data of a bundle: mined at export, or added to a bundle that was exported without it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lingon.bundle import CARD, FORMAT, Bundle, TextData, open_bundle, versions, write_bundle
from lingon.errors import SettingsError
from lingon.export.text_data.words import self_translating_words

OLDEST = 4  # format; the graphs of older bundles mean something else, so that they cannot become newer ones


def text_data(pairs: Iterable[tuple[str, str]]) -> TextData:
    """Return what pairs of source and target, such as those of training, tell about the texts of a model."""
    return TextData(tuple(each.word for each in self_translating_words(pairs)))


def card_section(text: TextData) -> str:
    """Return the section of the model card about text data."""
    words = ", ".join(text.words) or "none"
    return f"""## Words that translate to themselves

They stand for placeholders, URLs and other strings that a translation keeps: {words}.
"""


def add_text_data(path: Path, pairs: Iterable[tuple[str, str]]) -> Bundle:
    """Write the next version of a bundle, with text data and otherwise the same files; return it.

    path: a bundle, or the folder of its versions, of which the highest is read

    Raises BundleError if the bundle is damaged, and SettingsError if it is too old or has text data already.
    """
    bundle = open_bundle(path)
    manifest, folder = bundle.manifest, bundle.folder.absolute().parent
    if manifest.format < OLDEST:
        raise SettingsError(
            f"{bundle.folder}: has format {manifest.format}, at least {OLDEST} is needed; export it anew"
        )
    if manifest.text is not None:
        raise SettingsError(f"{bundle.folder}: has text data already")
    bundle.verify()
    text = text_data(pairs)
    files = {name: bundle.read(name) for name in manifest.checksums}
    version = max(versions(folder)) + 1
    card = re.sub(r"(?<=, version )\d+", str(version), files[CARD].decode(), count=1)
    files[CARD] = f"{card.rstrip()}\n\n{card_section(text)}".encode()
    return write_bundle(folder / str(version), replace(manifest, version=version, text=text, format=FORMAT), files)
