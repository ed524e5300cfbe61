"""What segments are compared by: a form without case and with single blanks, 64-bit hashes of it, and scores."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from unicodedata import normalize

EXACT: Final = 100
"""The score of a segment with the text."""
IN_CONTEXT: Final = 101
"""The score of one with the neighbours of the text, too."""
NO_CONTEXT: Final = 0
"""The hash of neighbours that are not known."""


def comparable(text: str) -> str:
    """Return a text as scores compare it: in NFC, without case, runs of white space as one blank, none at its ends."""
    folded = text.lower() if text.isascii() else normalize("NFC", normalize("NFC", text).casefold())
    return " ".join(folded.split())


def key_of(form: str) -> int:
    """Return the 64-bit hash of a comparable text, the same in every process."""
    return int.from_bytes(blake2b(form.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def context_key(before: str, after: str) -> int:
    """Return the 64-bit hash of the neighbours of a segment, NO_CONTEXT if neither is known."""
    if not before and not after:
        return NO_CONTEXT
    return key_of(f"{comparable(before)}\0{comparable(after)}") or 1


def identity(source: str, before: str, after: str) -> bytes:
    """Return the 128-bit hash of what makes a segment another one than those that are stored."""
    return blake2b("\0".join((source, before, after)).encode(), digest_size=16).digest()
