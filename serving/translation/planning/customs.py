"""The separators of numbers in the languages of a pair, by the Unicode Common Locale Data Repository."""

from __future__ import annotations

from functools import cache

from lingon.segments.protection.separators import Custom, Separators


@cache
def custom_of(source: str, target: str) -> Custom | None:
    """Return how numbers of a language are written in another, BCP-47; None if it is the same way or not known."""
    separators = _separators(source), _separators(target)
    if separators[0] is None or separators[1] is None or separators[0] == separators[1]:
        return None
    return Custom(separators[0], separators[1])


def _separators(language: str) -> Separators | None:
    """Return those of a language with Latin figures; without data for its region, those of the language alone."""
    from babel import Locale, UnknownLocaleError  # only here: few requests need it, and it takes a tenth of a second
    from babel.numbers import get_decimal_symbol, get_group_symbol

    parts = language.split("-")
    for count in range(len(parts), 0, -1):
        try:
            locale = Locale.parse("-".join(parts[:count]), sep="-")
        except (UnknownLocaleError, ValueError):
            continue
        return Separators(
            get_group_symbol(locale, numbering_system="latn"), get_decimal_symbol(locale, numbering_system="latn")
        )
    return None
