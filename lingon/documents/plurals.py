"""The categories of numbers that the plurals of a language have, by the Unicode locale data."""

from __future__ import annotations

from lingon.errors import InvalidRequest
from lingon.language_tags import canonical

ORDER = ("zero", "one", "two", "few", "many", "other")
"""All categories, as files have them one after the other."""


def plural_categories(language: str) -> list[str]:
    """Return the categories of a language in their order; none for a language that the locale data lacks."""
    from babel import Locale, UnknownLocaleError  # 60 ms, which most files do not need

    try:
        found = Locale.parse(canonical(language, "the target"), sep="-")
    except (InvalidRequest, UnknownLocaleError, ValueError):
        return []
    return [category for category in ORDER if category in found.plural_form.tags or category == "other"]
