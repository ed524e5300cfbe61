"""The target language that a file says, beside the one that it is translated to."""

from __future__ import annotations

from lingon.errors import InvalidRequest
from lingon.language_tags import canonical


def differs(language: str, target: str) -> bool:
    """Whether two tags name different languages, not varieties of one; not if one is empty or no tag."""
    try:
        primaries = {canonical(tag.replace("_", "-"), "the language").partition("-")[0] for tag in (language, target)}
    except InvalidRequest:
        return False
    return len(primaries) > 1


def note_of_language(language: str, target: str) -> str:
    """Return the line about a file that says another language than that of its new translations."""
    return f"the file says that its target language is {language[:40]}, and stays so; new translations are in {target}"
