"""Models that cases need: two versions of the shipped one, and one of the size of a Transformer base.

The latter has random weights and a tokenizer, so that `lingon serve` takes it. Each piece is one made-up word, so that
a text of n words has n tokens. The end token is never likely, so that every translation reaches its limit.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lingon.bundle.names import GOLDEN, MANIFEST
from lingon.bundle.store import Bundle, is_bundle, open_bundle

VOCAB = 32_000  # pieces, with the special ones
SPECIAL_PIECES = 4
MAX_SOURCE, MAX_TARGET = 128, 256  # tokens
VERSION = 1  # of the bundle that this file writes, to be raised if it changes
CALIBRATION = 8  # random pairs on which the 8-bit ranges are measured

BEAMS = {"1": 4, "2": 1}
"""The default beam size of each version, so that both translate the same request differently."""


def words() -> list[str]:
    """Return the made-up words, one for each piece of the vocabulary: "baba", "babe", ..."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
    return ["".join(parts) for parts in itertools.islice(_counted(syllables), VOCAB - SPECIAL_PIECES)]


def _counted(syllables: list[str]) -> Iterator[tuple[str, ...]]:
    for count in itertools.count(2):
        yield from itertools.product(syllables, repeat=count)


def text_of(tokens: int, first: int = 0) -> str:
    """Return a text of this many tokens, without the end token. first: the index of its first word."""
    every = words()
    return " ".join(every[(first + place) % len(every)] for place in range(tokens))


def base_model(cache: Path) -> Bundle:
    """Return the bundle in int8. It is written below cache when it is first needed, in about half a minute."""
    folder = cache / f"base-words-{VERSION}" / "base" / "1"
    if not is_bundle(folder):
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder)
    return open_bundle(folder)


def tokenizer() -> bytes:
    """Return a sentencepiece model with one piece for each word."""
    from tests.support.tokenizers import train_sentencepiece

    lines = (" ".join(words()[at : at + 100]) for at in range(0, VOCAB, 100))
    return train_sentencepiece(lines, VOCAB, model_type="word")


def _write(folder: Path) -> None:
    import numpy as np
    import torch

    from lingon.bench.synthetic import Shape, random_transformer
    from lingon.bundle.manifest import Alignment, Defaults, Limits, Manifest, Precision
    from lingon.bundle.store import write_bundle
    from lingon.export.graphs.onnx_writer import WeightFiles
    from lingon.export.graphs.precisions import PRECISION_KINDS, build, weight_files
    from lingon.export.graphs.transformer import states
    from lingon.text import BOS, EOS, PAD, UNK, Tokenizer

    shape = Shape(vocab=VOCAB, positions=MAX_TARGET)
    with torch.random.fork_rng():
        model, weights = random_transformer(shape), WeightFiles()
    draw = np.random.default_rng(1)
    pairs = draw.integers(SPECIAL_PIECES, VOCAB, (CALIBRATION, 2, 24)).tolist()
    built = build(model, "int8", weights, [([*source, EOS], target) for source, target in pairs], shortlist=False)
    manifest = Manifest(
        name="base",
        version=1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language="qaa",
        target_language="qab",
        architecture="transformer",
        source_vocab=VOCAB,
        target_vocab=VOCAB,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(MAX_SOURCE, MAX_TARGET, output_factor=2.0, output_extra=16, max_beam_size=8),
        defaults=Defaults(),
        candidates=16,
        states=states(model),
        precisions={
            "int8": Precision(PRECISION_KINDS["int8"].provider, "not run: the weights are random", built.reads)
        },
        alignment=Alignment(shape.layers - 2, tuple(range(shape.heads))),
    )
    files = Tokenizer(tokenizer()).files() | built.graphs | weight_files(weights)
    write_bundle(folder, manifest, files)


def two_versions(model: Path, folder: Path) -> list[Path]:
    """Copy a bundle as versions 1 and 2 of a model, which differ in their default beam size."""
    made, original = [], open_bundle(model)
    for version, beam_size in BEAMS.items():
        target = folder / version
        shutil.copytree(original.folder, target)
        (target / GOLDEN).unlink(missing_ok=True)  # they were translated with the beam size of the original
        sums = {name: value for name, value in original.manifest.checksums.items() if name != GOLDEN}
        defaults = replace(original.manifest.defaults, beam_size=beam_size)
        manifest = replace(original.manifest, version=int(version), defaults=defaults, checksums=sums)
        (target / MANIFEST).write_bytes(Bundle(target, manifest).manifest.to_bytes())
        made.append(target)
    return made
