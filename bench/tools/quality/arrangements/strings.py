"""Strings of all forms that a translation keeps: examples, and random strings that are like them."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping

from lingon.segments.protection import find_protected

FORMS: Mapping[str, tuple[str, ...]] = {
    "URL": ("https://example.org/a_(b)?q=1&r=%20#top", "www.example.org"),
    "e-mail address": ("user@example.org", "first.last+tag@mail.example.org"),
    "path": ("/usr/share/doc.txt", "C:\\Users\\Tom\\a.txt", "src/main.py"),
    "braces": ("{name}", "{0}", "{}", "{0, date}", "{x:.2f}", "{user_name}"),
    "double braces": ("{{name}}", "{{ name }}", "{% if x %}"),
    "sign and braces": ("${name}", "#{name}", "%{name}"),
    "printf": ("%s", "%d", "%1$s", "%-5.2f", "%@", "%(name)s"),
    "underscores": ("__1__", "__name__"),
    "colon": (":name", ":user_id"),
    "tag": ('<x id="1"/>', "<ph name='a'>"),
    "number": ("47110815", "2019", "2024-05-17"),
    "emoji": ("\U0001f600", "\U0001f44d\U0001f3fd"),
    "line": ("________", "------------"),
    "code": ("f3a8" * 12, "A1b2C3d4E5" * 5),
}
"""Examples of each form. A string like an example has its punctuation, with other letters and figures."""

_RUN = re.compile(r"[A-Za-z]+|[0-9]+")
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

    return _RUN.sub(other, example)


def is_found(text: str) -> bool:
    """Whether a string is kept as a whole, between words."""
    before = "see "
    return [span[:2] for span in find_protected(f"{before}{text} now")] == [(len(before), len(before) + len(text))]


def _others(character: str) -> str:
    """Return what may be in the place of a letter or figure; a figure of base 16 stays one."""
    kinds = string.digits, "abcdef", "ABCDEF", string.ascii_lowercase
    return next((kind for kind in kinds if character in kind), string.ascii_uppercase)
