"""Text for the gates in any language, made from the locale data of Unicode (CLDR), which the package Babel has.

A user who gets a model by its name has no text in its language at hand. CLDR has dates, lists, amounts of units and of
money, and the names of countries and languages, as speakers of some 200 languages write them. The texts are real, but
narrower than prose: gates on them show graphs that compute wrongly and 8-bit integers that cost much, and they measure
less well what a precision costs on the texts of a user.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_timedelta
from babel.lists import format_list
from babel.numbers import format_currency, format_percent
from babel.units import UnknownUnitError, format_unit

SEED = 1
FIRST_DAY, DAYS = date(1990, 1, 1), 20_000
UNITS = (
    "length-kilometer",
    "length-meter",
    "length-centimeter",
    "mass-kilogram",
    "mass-gram",
    "volume-liter",
    "duration-day",
    "duration-hour",
    "duration-minute",
    "duration-week",
    "duration-year",
    "temperature-celsius",
    "area-square-kilometer",
    "digital-megabyte",
    "speed-kilometer-per-hour",
)
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CNY", "INR", "CHF", "CAD", "BRL", "SEK", "TRY", "UAH")
LEAST_NAMES = 20  # countries, below which a locale is a stub that has hardly any words of its language
MOST_TRIES = 2000  # rounds, one text of each kind in each; some locales have few different texts

Make = Callable[["_Words"], str]


class _Words:
    """A source of random words of a language. The same language gives the same texts."""

    def __init__(self, locale: Locale) -> None:
        self.locale, self.random = locale, random.Random(SEED)
        self.countries = [name for code, name in sorted(locale.territories.items()) if len(code) == 2]
        self.languages = [name for code, name in sorted(locale.languages.items()) if len(code) == 2]

    def several(self, names: Sequence[str]) -> str:
        """Return one to five names as a list is written: A, B and C."""
        return format_list(self.random.sample(names, self.random.randint(1, 5)), locale=self.locale)

    def day(self) -> date:
        return FIRST_DAY + timedelta(days=self.random.randrange(DAYS))


def made_sentences(language: str, count: int) -> list[str]:
    """Return texts in a language, at most `count`, each once; none if CLDR has hardly any words of it.

    language: a BCP 47 tag
    """
    locale = _locale(language)
    if locale is None or len(locale.territories) < LEAST_NAMES:
        return []
    words, found = _Words(locale), dict[str, None]()
    for _ in range(MOST_TRIES):
        found |= dict.fromkeys(_texts(words))
        if len(found) >= count:
            break
    return list(found)[:count]


def _texts(words: _Words) -> Iterator[str]:
    """Yield one text of each kind, and one that joins several, because models read longer texts too."""
    single = [made for each in KINDS if (made := each(words))]
    yield from single
    joined = words.random.sample(single, min(len(single), words.random.randint(2, 4)))
    yield ". ".join(joined) + "."


def _date(words: _Words) -> str:
    style = words.random.choice(("full", "long", "medium"))
    return format_date(words.day(), style, locale=words.locale)


def _time_ago(words: _Words) -> str:
    unit = words.random.choice(("days", "hours", "weeks", "minutes"))
    span = timedelta(**{unit: words.random.randint(1, 40) * words.random.choice((1, -1))})
    return format_timedelta(span, threshold=2, add_direction=True, locale=words.locale)


def _amount(words: _Words) -> str:
    unit = words.random.choice(UNITS)
    try:
        text = format_unit(words.random.randint(1, 3000), unit, "long", locale=words.locale)
    except UnknownUnitError:
        return ""
    return "" if unit in text else text  # a locale without a name for the unit shows its code


def _money(words: _Words) -> str:
    value = words.random.randint(1, 100_000) / words.random.choice((1, 100))
    return format_currency(value, words.random.choice(CURRENCIES), format_type="name", locale=words.locale)


def _countries(words: _Words) -> str:
    return words.several(words.countries)


def _languages(words: _Words) -> str:
    return words.several(words.languages)


def _dated(words: _Words) -> str:
    return f"{_date(words)}: {_countries(words)}"


def _explained(words: _Words) -> str:
    return f"{words.random.choice(words.countries)} ({_languages(words)}): {_money(words)}, {_share(words)}"


def _share(words: _Words) -> str:
    return format_percent(words.random.randint(1, 1000) / 1000, "#,##0.0 %", locale=words.locale)


KINDS: tuple[Make, ...] = (_countries, _date, _amount, _languages, _dated, _time_ago, _money, _explained)


def _locale(language: str) -> Locale | None:
    """Return the locale of a tag, or that of its language without script and region, or None."""
    for tag in (language, language.partition("-")[0]):
        try:
            return Locale.parse(tag, sep="-")
        except (UnknownLocaleError, ValueError):
            continue
    return None
