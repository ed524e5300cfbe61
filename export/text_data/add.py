"""The text data of a bundle that was exported without it, or is calibrated again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from lingon.bundle import CARD, PROFILES, Bundle, TextData, all_versions, open_bundle, write_bundle
from lingon.errors import SettingsError
from lingon.export.text_data.build import Pairs, TranslationSearch, fit_confidence, text_data
from lingon.export.text_data.card import card_section, without_section
from lingon.export.text_data.lengths import LEAST_PAIRS
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.text import normalise


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """Pairs of source and target.

    training: what the model was trained on, or text of that kind
    held_out: text that it was not trained on, of the kind that the bundle is for; without it the confidence stays
    other: held-out text of other kinds, so that the confidence is low where the model is not at home
    """

    training: Pairs
    held_out: Pairs = ()
    other: Pairs = ()

    @classmethod
    def of(
        cls,
        training: Iterable[tuple[str, str]],
        held_out: Iterable[tuple[str, str]] = (),
        other: Iterable[tuple[str, str]] = (),
    ) -> CalibrationText:
        """The pairs as a model gets them, without those that have an empty side."""
        return cls(_normalised(training), _normalised(held_out), _normalised(other))


def add_text_data(path: Path, text: CalibrationText, log: Callable[[str], None] = lambda line: None) -> Bundle:
    """Write the next version of a bundle, with text data and otherwise the same files; return it.

    path: a bundle, or the folder of its versions, of which the highest is read

    Raises BundleError if the bundle is damaged, and SettingsError if it serves several languages, is not in the folder
    of a version, or there is too little text.
    """
    bundle = open_bundle(path)
    manifest, folder = bundle.manifest, bundle.folder.resolve().parent
    _check_bundle(bundle)
    if len(text.training) < LEAST_PAIRS:
        raise SettingsError(
            f"the training text must have {LEAST_PAIRS:,} pairs of sentences or more, has {len(text.training):,}"
        )
    bundle.verify()
    tokenizer = bundle.tokenizer()
    found, profiles = text_data(text.training, tokenizer)
    if manifest.text is not None:
        found = replace(found, confidence=manifest.text.confidence)
    if text.held_out:
        defaults, runner = manifest.defaults, load_runner(bundle, "fp32", threads=0)
        search = TranslationSearch(runner, tokenizer, defaults.beam_size, defaults.length_penalty)
        found = replace(found, confidence=fit_confidence(search, text.held_out, text.other, log))
    files = {name: bundle.read(name) for name in manifest.checksums if name != PROFILES}
    version = max(all_versions(folder)) + 1
    files[PROFILES] = profiles
    files[CARD] = _card(files[CARD].decode(), version, found).encode()
    return write_bundle(folder / str(version), replace(manifest, version=version, text=found), files)


def _check_bundle(bundle: Bundle) -> None:
    """Raise SettingsError if there can be no next version of a bundle, or none with text data."""
    manifest, name = bundle.manifest, bundle.folder.resolve().name
    if manifest.languages is not None:
        raise SettingsError(
            f"{bundle.folder}: serves several languages, but text data is of one pair; a bundle of one pair can have it"
        )
    if not re.fullmatch(r"[1-9]\d*", name):
        raise SettingsError(
            f"{bundle.folder}: its name must be a number, the version, got {name!r}; name models/NAME/VERSION, or "
            f"models/NAME for the highest version"
        )


def _card(card: str, version: int, text: TextData) -> str:
    card = without_section(re.sub(r"(?<=, version )\d+", str(version), card, count=1))
    return f"{card.rstrip()}\n\n{card_section(text)}"


def _normalised(pairs: Iterable[tuple[str, str]]) -> Pairs:
    every = ((normalise(source), normalise(target)) for source, target in pairs)
    return [pair for pair in every if all(pair)]
