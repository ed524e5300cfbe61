"""Markdown for generated parts of pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Text of the code as Markdown: one line in which no character has a meaning, apart from `code`."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts).replace("|", "\\|")


def code(text: str) -> str:
    """Text as inline code, for a table too."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def fence(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def _escaped(text: str) -> str:
    return re.sub(r"([\\*<>\[\]])", r"\\\1", text)
