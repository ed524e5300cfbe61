"""Strings of all forms that a translation keeps: examples, and random strings that are like them."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping

from lingon.segments.protection.find import find_protected
from lingon.segments.protection.spans import Kind
from lingon.segments.protection.table import TABLE, kept_of

FORMS: Mapping[str, tuple[str, ...]] = {
    form.name: form.examples
    for form in TABLE
    if form.kind is not Kind.BORDER and all(kept_of(example) == [example] for example in form.examples)
}
"""Examples of each form. A string like an example has its punctuation, with other letters and figures."""

_LETTERS_OR_FIGURES = re.compile(r"[A-Za-z]+|[0-9]+")
_FIXED = re.compile(
    r"https?|www|%[-.\d$]*[a-z](?![a-z])|\)[a-z]\Z|if\b|date\b|\.\d?[a-z]\}\Z|\.(?:txt|py|org)\b|<x|<ph"
)
_TRIES = 20


def random_string(form: str, rng: random.Random) -> str:
    """Return a string of a form: one of its examples, or one that is like it and found as a whole in a text too."""
    example = rng.choice(FORMS[form])
    for _ in range(_TRIES):
        found = like(example, rng)
        if is_found(found):
            return found
    return example


def like(example: str, rng: random.Random) -> str:
    """Return a string with the punctuation of an example, and other letters and figures in the place of its own."""
    fixed = [found.span() for found in _FIXED.finditer(example)]

    def other(run: re.Match[str]) -> str:
        if any(begin < run.end() and run.start() < end for begin, end in fixed):
            return run[0]
        return "".join(rng.choice(_others(character)) for character in run[0])

    return _LETTERS_OR_FIGURES.sub(other, example)


def is_found(text: str) -> bool:
    """Whether a string is kept as a whole, between words."""
    before = "see "
    return [span[:2] for span in find_protected(f"{before}{text} now")] == [(len(before), len(before) + len(text))]


def _others(character: str) -> str:
    """Return what may be in the place of a letter or figure; a figure of base 16 stays one."""
    kinds = string.digits, "abcdef", "ABCDEF", string.ascii_lowercase
    return next((kind for kind in kinds if character in kind), string.ascii_uppercase)
