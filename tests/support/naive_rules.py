"""The rules of requests, checked on whole texts: slow, and without any code of `lingon.serving.decoding`.

It imports no PyTorch, so that the tests of serving can use it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any


def text_of(pieces: Any, tokens: Sequence[int]) -> bytes:
    """Return the bytes of tokens, with single spaces and none at the beginning."""
    return re.sub(rb" +", b" ", b"".join(pieces.texts[token] for token in tokens)).lstrip(b" ")


def is_valid(pieces: Any, tokens: Sequence[int]) -> bool:
    """Return whether tokens spell UTF-8 without U+FFFD."""
    try:
        return "\ufffd" not in text_of(pieces, tokens).decode()
    except UnicodeDecodeError:
        return False


def naive_permits(pieces: Any, tokens: Sequence[int], words: Sequence[str], remaining: int) -> bool:
    """Return whether these tokens, or at most `remaining` bytes more, are valid text without any of the words."""
    if any(word.encode() in text_of(pieces, tokens) for word in words):
        return False
    if is_valid(pieces, tokens):
        return True
    if remaining == 0 or not _may_become_valid(text_of(pieces, tokens)):
        return False
    return any(naive_permits(pieces, [*tokens, token], words, remaining - 1) for token in pieces.bytes_of)


@functools.cache
def _may_become_valid(data: bytes) -> bool:
    """Return whether the data ends within a character that Python's decoder still waits for."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and "\ufffd" not in data[: error.start].decode()
    return False
