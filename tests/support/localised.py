"""Localisation files in tests: texts that strain what a format writes, and files with other texts in their places."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from lingon.documents import read_document

OTHER = '\u00f6"\\ #: n/\u4e2d\U0001f600;,|-'  # what formats escape, and quotes, comments and delimiters of theirs
TOKENS = [
    "q",
    "q",
    " ",
    "a",
    "\u00e9",
    "<b>",
    "</b>",
    "{name}",
    "%s",
    '"',
    "\\",
    "# ",
    ": ",
    "/",
    "&amp;",
    "=",
    ",",
    "!",
]


def values(*more: str) -> st.SearchStrategy[str]:
    """Texts with signs of all kinds; more: further parts, such as a line break. Each `q` may become another text."""
    return st.lists(st.sampled_from([*TOKENS, *more]), max_size=8).map(lambda parts: "Tom " + "".join(parts) + "q.")


def other(text: str) -> str:
    """Return the value of a file after `rewritten`."""
    return text.replace("q", OTHER)


def rewritten(name: str, content: str | bytes, target: str = "", column: str = "") -> bytes:
    """Return a file with other texts than its own, which have all signs that the format might not write."""
    escaped = OTHER.replace("&", "&amp;").replace("<", "&lt;")
    return translated(name, content, lambda text: text.replace("q", escaped), target, column=column)


def translated(
    name: str,
    content: str | bytes,
    translate: Callable[[str], str] = str,
    target: str = "",
    column: str = "",
) -> bytes:
    """Return a file with translations of its texts, which are as they were unless `translate` says otherwise."""
    document = read_document(name, content.encode() if isinstance(content, str) else content, target, column=column)
    return document.write(list(map(translate, document.texts)))


def texts_of(name: str, content: str | bytes, target: str = "", column: str = "") -> list[str]:
    """Return the texts of a file that are translated."""
    return list(
        read_document(name, content.encode() if isinstance(content, str) else content, target, column=column).texts
    )
