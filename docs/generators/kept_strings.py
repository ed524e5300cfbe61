"""The table of the strings that a translation keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable

from docs.generators.markdown import plain, table
from lingon.segments.protection.spans import Kind
from lingon.segments.protection.table import TABLE

_HEADINGS: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("Addresses and paths", frozenset({Kind.URL, Kind.EMAIL, Kind.PATH})),
    ("Placeholders", frozenset({Kind.PLACEHOLDER})),
    ("Numbers", frozenset({Kind.NUMBER})),
    ("Marks around words, and messages", frozenset({Kind.OPENING, Kind.SKELETON})),
    ("Tags, escapes, code and signs", frozenset(Kind) - {Kind.KEEP, Kind.FIGURE, Kind.CLOSING}),
)


def forms() -> str:
    """The table of forms under its headings: name, examples, what may change, what may stand around."""
    parts, done = list[str](), set[Kind]()
    for heading, kinds in _HEADINGS:
        own = [form for form in TABLE if form.kind in kinds - done]
        done |= kinds
        rows = [(plain(form.name), _examples(form.examples), form.changes, form.around) for form in own]
        parts.append(f"## {heading}\n\n{table(('form', 'examples', 'what may change', 'right beside it'), rows)}")
    return "\n\n".join(parts)


def _examples(examples: Iterable[str]) -> str:
    """The examples as code; the lines of one are joined."""
    return ", ".join(_example_code(" ".join(example.split("\n"))) for example in examples)


def _example_code(example: str) -> str:
    """An example as inline code of a table, between more backticks than it has in a row."""
    fence = "`" * (max(map(len, re.findall("`+", example)), default=0) + 1)
    blank = " " if "`" in example else ""
    return f"{fence}{blank}{example}{blank}{fence}".replace("|", "\\|")
