"""A tiny bundle of three languages with random weights, whose tokens of languages take every place there is."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from lingon.bundle import GOLDEN, MANY, Bundle, Defaults, Languages, SourceLanguage, TargetLanguage, write_bundle
from lingon.bundle.golden import Golden
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.text import LanguageTokens, Tokenizer
from lingon.training.models.transformer import Transformer
from tests.support.random_models import VOCAB, manifest_of, random_model
from tests.support.tokenizers import train_sentencepiece

CODES = ["<2en>", "<2de>", "<2fr>"]  # control pieces with the ids 4, 5 and 6
LANGUAGES = Languages(
    (SourceLanguage("en", (4,), ()), SourceLanguage("de", (), (5,)), SourceLanguage("fr", (6, 4), ())),
    (TargetLanguage("en", (), (4,)), TargetLanguage("de", (), (5,)), TargetLanguage("fr", (6,), (6, 4))),
)
PAIRS = list(LANGUAGES.pairs())
TEXTS = [
    "the quick brown fox",
    "jumps over",
    "the lazy dog",
    "pack my box with five dozen jugs",
    "sphinx of black quartz",
    "judge my vow",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@functools.cache
def tokenizer_model() -> bytes:
    lines = [f"{word}{LETTERS[place:]} {LETTERS[:place]}" for place, word in enumerate(" ".join(TEXTS).split() * 3)]
    return train_sentencepiece(lines, VOCAB, control_symbols=CODES)


def model() -> Transformer:
    """Return a model that generates no code of a language by itself."""
    return random_model(never_generated=(4, 5, 6))


def tokens_of(source: str, target: str) -> LanguageTokens:
    return LANGUAGES.tokens(source, target)


def tokenizer_of(source: str, target: str) -> Tokenizer:
    return Tokenizer(tokenizer_model()).for_languages(tokens_of(source, target))


def write_multilingual_bundle(folder: Path, golden: Golden | None = None) -> Bundle:
    """Write version 1 of the model `many` at folder, which ends in 1."""
    graphs, reads = _built()
    files = {**graphs, "tokenizer.model": tokenizer_model()}
    manifest = replace(
        manifest_of(model(), reads=reads),
        name="many",
        source_language=MANY,
        target_language=MANY,
        languages=LANGUAGES,
        defaults=Defaults(length_penalty=0),  # with one, beams find other translations than greedy search
    )
    return write_bundle(folder, manifest, files if golden is None else {**files, GOLDEN: golden.to_bytes()})


@functools.cache
def _built() -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the graphs with their weights, and the names of the weight files."""
    weights = WeightFiles()
    built = build(model(), "fp32", weights, [], shortlist=False)
    return {**built.graphs, **weight_files(weights)}, built.reads
