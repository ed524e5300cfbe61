"""The codes of Google's translation APIs that are no language tags of today."""

from __future__ import annotations

CODES = {"zh-cn": "zh-Hans", "zh-tw": "zh-Hant", "iw": "he", "jw": "jv", "tl": "fil"}
"""Language tags by the code, in lower case."""


def tag_of_google(code: str) -> str:
    """Return the language tag of a code of Google's APIs. Another code is its own tag."""
    return CODES.get(code.lower(), code)
