"""The categories of numbers that the plurals of a language have, by the Unicode locale data."""

from __future__ import annotations

from lingon.documents.errors import UnreadableDocument
from lingon.extras import name_missing_extra

ORDER = ("zero", "one", "two", "few", "many", "other")
"""All categories, as files have them one after the other."""


def plural_categories(language: str) -> list[str]:
    """Return the categories of a language in their order; raises UnreadableDocument for an unknown language."""
    with name_missing_extra("a file with plurals", ("documents",)):
        from babel import Locale, UnknownLocaleError

    try:
        found = Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        raise UnreadableDocument(f"the plurals of the language {language[:40]!r} are not known") from None
    tags = {*found.plural_form.tags, "other"}
    return [category for category in ORDER if category in tags]
