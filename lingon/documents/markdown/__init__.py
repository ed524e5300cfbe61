"""Markdown: text is translated, code, addresses and HTML stay; imports `markdown_it`, and `documents` as others do."""

from __future__ import annotations

from lingon.documents.document import Document

__all__ = ["read_markdown"]


def read_markdown(content: bytes) -> Document:
    """Return a Markdown file (CommonMark with tables); raises UnreadableDocument."""
    from lingon.documents.markdown.blocks import read_blocks  # loads the parser, which takes a while

    return read_blocks(content)
