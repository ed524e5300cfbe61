"""A task whose words have many translations: only a model that has learnt terms writes the wanted ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lingon.training.config import Config, load_config
from tests.support.training_runs import tiny_config_text

WORDS, MEANINGS = "abcdefghij", "klmnopqrstuvwxyz"
TermCase = tuple[list[str], int, str]
"""The words of a source, the number of one of them, and its wanted translation."""


def meanings() -> dict[str, list[str]]:
    """Return half of the words of the target for each word of the source, any of which may translate it."""
    draw = random.Random(1)
    return {word: draw.sample(MEANINGS, len(MEANINGS) // 2) for word in WORDS}


def sentences(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Return sources and their translations, word by word, each by one of its meanings."""
    draw, known = random.Random(seed), meanings()
    sources = [[draw.choice(WORDS) for _ in range(draw.randint(2, 6))] for _ in range(count)]
    return [(source, [draw.choice(known[word]) for word in source]) for source in sources]


def write_ambiguous_corpus(folder: Path, pairs: int = 2000) -> None:
    """Write training text with its links, and validation text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", pairs, 2), ("valid", 50, 3)):
        found = sentences(count, seed)
        for side, suffix in enumerate(("source", "target")):
            lines = "".join(" ".join(pair[side]) + "\n" for pair in found)
            (folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8")
        links = "".join(" ".join(f"{word}-{word}" for word in range(len(source))) + "\n" for source, _ in found)
        (folder / f"{name}.align").write_text(links, encoding="utf-8")


def terms_config(folder: Path, terms: dict[str, Any] | None, **blocks: dict[str, Any]) -> Config:
    """Return the settings of a run on the text in folder; terms: None for a run without."""
    settings: dict[str, dict[str, Any]] = {
        "data": {"max_tokens": 48},
        "model": {"max_positions": 64},
        "tokenizer": {"vocab_size": 310},
        "training": {"max_steps": 500, "valid_every": 500, "cooldown_steps": 100},
    }
    merged = {name: {**settings.get(name, {}), **blocks.get(name, {})} for name in {**settings, **blocks}}
    text = tiny_config_text(**merged)
    text = text.replace('target = "train.target"\n', 'target = "train.target"\nalignment = "train.align"\n')
    if terms is not None:
        values = {"min_letters": 1, **terms}
        text += "\n[data.terms]\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return load_config(folder / "config.toml")


def unknown_terms(count: int) -> list[TermCase]:
    """Return sources of which one word is to be translated as no pair of the training text translates it."""
    draw, known, cases = random.Random(5), meanings(), list[TermCase]()
    for words, _ in sentences(count, seed=4):
        number = draw.randrange(len(words))
        cases.append((words, number, draw.choice([each for each in MEANINGS if each not in known[words[number]]])))
    return cases
