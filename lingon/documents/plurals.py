"""The categories of numbers that the plurals of a language have, by the locale data of Unicode (CLDR)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from lingon.errors import InvalidRequest
from lingon.language_tags import canonical

if TYPE_CHECKING:
    from babel.plural import PluralRule

CATEGORIES = ("zero", "one", "two", "few", "many", "other")
"""All categories, as files have them one after the other."""


@lru_cache(maxsize=512)
def categories(language: str, kind: str = "plural") -> Sequence[str]:
    """Return the categories of a language in their order; none for a language that the locale data lacks.

    language: BCP-47, or with low lines
    kind: plural, or selectordinal for those of first, second, third
    """
    rule = rule_of(language, kind)
    return tuple(each for each in CATEGORIES if each in rule.tags or each == "other") if rule else ()


def rule_of(language: str, kind: str = "plural") -> PluralRule | None:
    """Return what tells the category of a number in a language; None if it is not known."""
    from babel import Locale, UnknownLocaleError  # 60 ms, which most files do not need

    try:
        locale = Locale.parse(canonical(language.replace("_", "-"), "the language"), sep="-")
    except (InvalidRequest, UnknownLocaleError, ValueError):
        return None
    return locale.ordinal_form if kind == "selectordinal" else locale.plural_form
