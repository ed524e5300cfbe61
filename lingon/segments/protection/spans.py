"""What a protected span is, and how spans that overlap become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Why a span is protected."""

    URL = "url"
    EMAIL = "email"
    PATH = "path"
    PLACEHOLDER = "placeholder"
    TAG = "tag"
    SKELETON = "skeleton"  # of an ICU message: all but the texts of its arms
    NUMBER = "number"
    FIGURE = "figure"  # a number of one or two figures, which the model translates
    ESCAPE = "escape"  # a letter as HTML or a programming language writes it
    SIGN = "sign"  # another character, written so
    BORDER = "border"  # between texts that are translated apart: a written tab, or a sign that the model cannot read
    OPENING = "opening"  # of a pair of marks: what is between both is translated, and stays between them
    CLOSING = "closing"
    EMOJI = "emoji"
    LINE = "line"  # eight or more equal signs, as under a heading or in a form
    CODE = "code"  # a long run of letters and figures: a hash, a key, base64
    KEEP = "keep"
    UNKNOWN = "unknown"  # has characters that the model cannot read


DIVIDING = frozenset({Kind.SKELETON, Kind.BORDER})
"""What the texts on both sides of are translated apart."""


class ProtectedSpan(NamedTuple):
    """A part of a text, in code points, that its translation keeps as it is."""

    begin: int
    end: int
    kind: Kind


def merge(spans: Iterable[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the spans in order; those that overlap are one, with the kind of the one that begins first.

    Of several that begin there, it is that of the longest.
    """
    merged: list[ProtectedSpan] = []
    last = 0
    for span in sorted(spans):  # as tuples, which is three times faster than by a key
        if span[0] >= last:
            merged.append(span)
            last = span[1]
        elif span[1] > last:
            last = span[1]
            merged[-1] = span if span[0] == merged[-1][0] else merged[-1]._replace(end=last)
    return merged


def replaced(text: str, spans: Iterable[ProtectedSpan | tuple[int, int]], by: Callable[[str], str]) -> str:
    """Return a text with something else in place of each span.

    spans: in order, of which the first two values count; by: returns what stands for the text of a span
    """
    parts, at = list[str](), 0
    for begin, end in (span[:2] for span in spans):
        parts += [text[at:begin], by(text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def without(text: str, spans: Iterable[ProtectedSpan | tuple[int, int]]) -> str:
    """Return a text with a space in place of each span; spans: see `replaced`."""
    return replaced(text, spans, lambda kept: " ")
