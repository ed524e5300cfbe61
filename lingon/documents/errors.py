"""The error of documents."""

from __future__ import annotations

from lingon.errors import LingonError


class UnreadableDocument(LingonError):
    """A file is not a document of its kind, or is too large."""
