"""Messages with several texts, for numbers or genders: the skeletons are kept, and each text is translated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lingon.segments.kept_forms import ANYTHING, TEXTS, KeptForm, Kind, ProtectedSpan

MESSAGES = (
    KeptForm(
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
    KeptForm(
        name="select expression of Fluent",
        kind=Kind.SKELETON,
        examples=(
            "{ $n -> [one] red car *[other] { $n } red cars }",
            "{ $n ->\n    [one] red car\n   *[other] blue car\n}",
        ),
        changes=TEXTS,
        around=ANYTHING,
    ),
    KeptForm(
        name="complex message of MessageFormat 2",
        kind=Kind.SKELETON,
        examples=(".input {$n :number} .match $n one {{red car}} * {{{$n} red cars}}", ".local $x = {|a|} {{red car}}"),
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
    """Return the position of the closing brace of each opening one that has one."""
    opened: list[int] = []
    closing = {}
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closing[opened.pop()] = brace.start()
    return closing


# The skeleton of ICU messages: `{n, plural, one {# file} other {# files}}` without the texts of its arms.
# The syntax is that of MessageFormat in the ICU user guide, "Formatting Messages". Quoted braces count as braces.

_ICU_HEAD = re.compile(
    r"\{\s{0,20}+[\w.\-]{1,80}+\s{0,20}+,\s{0,20}+(plural|selectordinal|select)\s{0,20}+,(?:\s{0,20}+offset:\d{1,9}+)?"
)
_ARM = re.compile(r"\s*+(?:=\d{1,9}+|[\w\-]{1,80}+)\s*+\{")
_END = re.compile(r"\s*+\}")


def arms_apart(text: str, closing: Mapping[int, int]) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeletons, and each `#` in an arm of a plural.

    A message whose braces do not match, or without arms, has no skeleton.
    closing: the position of the closing brace for each opening one
    """
    counted_to = 0  # each # is yielded once, although messages nest
    for head in _ICU_HEAD.finditer(text):
        spans = _skeleton(text, head, closing)
        yield from spans
        if spans and head[1] != "select":
            for found in re.compile("#").finditer(text, max(head.end(), counted_to), spans[-1].end):
                yield ProtectedSpan(*found.span(), Kind.PLACEHOLDER)
            counted_to = max(counted_to, spans[-1].end)


def _skeleton(text: str, head: re.Match[str], closing: Mapping[int, int]) -> list[ProtectedSpan]:
    """Return the parts of one message around its arms, or none if it is no message."""
    spans, begin, at = [], head.start(), head.end()
    while arm := _ARM.match(text, at):
        opening = arm.end() - 1
        if opening not in closing:
            return []
        spans.append(ProtectedSpan(begin, arm.end(), Kind.SKELETON))
        begin = closing[opening]
        at = begin + 1
    end = _END.match(text, at)
    return [*spans, ProtectedSpan(begin, end.end(), Kind.SKELETON)] if spans and end else []


# The skeleton of select expressions of Fluent: `{ $n -> [one] file *[other] files }` without the texts of variants.
# The syntax is that of Project Fluent, version 1.0.

_FLUENT_HEAD = re.compile(
    r"\{\s{0,20}+(?:\$[\w\-]{1,80}+|-[\w.\-]{1,80}+|[A-Z][A-Z0-9_\-]{0,40}+)(?:\([^(){}]{0,200}+\))?\s{0,20}+->\s{0,200}+"
    r"(?=\*?\[)"
)
_FIRST = re.compile(r"\*?\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\]\s*+")
_VARIANT = re.compile(
    r"(?:(?<=\s)(?:\*\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\]|\[\s{0,9}+(?:zero|one|two|few|many|other|\d{1,9}+)\s{0,9}+\])"
    r"|(?<=\n)[ \t]*+\[\s{0,9}+[\w.\-]{1,80}+\s{0,9}+\])\s*+"
)


def variants_apart(text: str, closing: Mapping[int, int]) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeletons of all select expressions; closing: the position of the brace for each opening
    one.

    One whose braces do not match has no skeleton.
    """
    last = 0
    for head in _FLUENT_HEAD.finditer(text):
        if head.start() not in closing:
            continue
        end = closing[head.start()]
        first = _FIRST.match(text, head.end(), end)
        if first is None:
            continue
        yield ProtectedSpan(head.start(), first.end(), Kind.SKELETON)
        yield ProtectedSpan(end, end + 1, Kind.SKELETON)
        if end > last:  # variants of an expression within another one are found with those of the outer one
            begin = max(head.start(), last)
            for variant in _VARIANT.finditer(text, begin, end):
                yield ProtectedSpan(*variant.span(), Kind.SKELETON)
            last = end


# The skeleton of complex messages of MessageFormat 2: `.match $n one {{# file}} * {{files}}` without its patterns.
# The syntax is that of Unicode Technical Standard 35, part 9: a message that begins with a declaration or a matcher
# has its texts in doubled braces. A text has one at most.

_BEGIN = re.compile(r"(?<!\S)\.(?:input\s{0,9}+\{|local\s{1,9}+\$|match\s{1,9}+[$|{])")
_BRACE = re.compile(r"\\[\\{}|]|\{\{|\}\}|[{}]")
_KEYS = re.compile(r"\s*+(?:(?:[\w.*+\-]{1,80}+|\|[^|{}]{0,80}+\|)\s++)*+(?=\{\{)")
_BLANKS = re.compile(r"\s*+")


def patterns_apart(text: str) -> Iterator[ProtectedSpan]:
    """Yield the spans of the skeleton of the first such message of a text, or none if its braces do not match."""
    head = _BEGIN.search(text)
    patterns = _patterns(text, head.start()) if head is not None else []
    if head is None or not patterns:
        return
    at = head.start()
    for first, last in patterns:
        blanks = _BLANKS.match(text, first, last)
        yield ProtectedSpan(at, blanks.end() if blanks and blanks.end() < last else first, Kind.SKELETON)
        at = last
    yield ProtectedSpan(at, at + 2, Kind.SKELETON)


def _patterns(text: str, begin: int) -> list[tuple[int, int]]:
    """Return the spans of the patterns of a message, or none if its braces do not match.

    The message ends with the last pattern before which there are only keys.
    """
    patterns, depth, opened, inside = list[tuple[int, int]](), 0, 0, False
    for brace in _BRACE.finditer(text, begin):
        mark = brace[0]
        if mark[0] == "\\":
            continue
        if not inside:
            if mark == "{{" and depth == 0:
                inside, opened = True, brace.end()
            else:
                depth += {"{": 1, "}": -1}.get(mark, 0)
        elif mark == "}}" and depth == 0:
            patterns.append((opened, brace.start()))
            inside = False
            if not _KEYS.match(text, brace.end()):
                break
        elif mark == "}}" and depth == 1:  # the end of a placeholder, and a brace that belongs to none
            return []
        else:
            depth += {"{": 1, "}": -1, "{{": 2, "}}": -2}[mark]
        if depth < 0:
            return []
    return [] if inside or depth else patterns
