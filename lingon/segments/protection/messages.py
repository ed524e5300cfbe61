"""Messages with several texts, for numbers or genders: the skeletons are kept, and each text is translated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.protection.fluent import variants_apart
from lingon.segments.protection.form import ANYTHING, TEXTS, Form
from lingon.segments.protection.icu import arms_apart
from lingon.segments.protection.message_format import patterns_apart
from lingon.segments.protection.spans import Kind, ProtectedSpan

MESSAGES = (
    Form(
        name="message of ICU",
        kind=Kind.SKELETON,
        examples=(
            "{n, plural, one {# red car} other {# red cars}}",
            "{who, select, female {red car} other {blue car}}",
            "{n, selectordinal, one {red car} other {blue car}}",
        ),
        changes=TEXTS,
        around=ANYTHING,
    ),
    Form(
        name="select expression of Fluent",
        kind=Kind.SKELETON,
        examples=(
            "{ $n -> [one] red car *[other] { $n } red cars }",
            "{ $n ->\n    [one] red car\n   *[other] blue car\n}",
        ),
        changes=TEXTS,
        around=ANYTHING,
    ),
    Form(
        name="complex message of MessageFormat 2",
        kind=Kind.SKELETON,
        examples=(
            ".input {$n :number} .match $n one {{red car}} * {{{$n} red cars}}",
            ".local $x = {|a|} {{red car}}",
        ),
        changes=TEXTS,
        around="a blank, or nothing",
    ),
)


def skeletons(text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeletons, in time linear in the text."""
    has_arms, has_variants = "{" in text and "," in text, "->" in text
    if "{{" in text:
        yield from patterns_apart(text)
    if has_arms or has_variants:
        closing = _matching_braces(text)
        if has_variants:
            yield from variants_apart(text, closing)
        if has_arms:
            yield from arms_apart(text, closing)


def _matching_braces(text: str) -> dict[int, int]:
    """Return the place of the closing brace of each opening one that has one."""
    opened: list[int] = []
    closing = {}
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closing[opened.pop()] = brace.start()
    return closing
