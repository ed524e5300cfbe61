"""The target language that a file says, beside the one that it is translated to."""

from __future__ import annotations

from lingon.language_tags import is_same_language


def notes_of_language(language: str, target: str) -> list[str]:
    """Return a line for a file that says another language than that of its new translations; none without languages."""
    if not target or not any(map(str.isalpha, language)) or is_same_language(language, target):
        return []
    return [
        f"the file says that its target language is {language[:40]}, and stays so; new translations are in {target}"
    ]
