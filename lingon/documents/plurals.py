"""The categories of numbers that the plurals of a language have (Unicode CLDR), and how files name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from lingon.documents.document import UnreadableDocument
from lingon.errors import InvalidRequest
from lingon.language_tags import canonical

if TYPE_CHECKING:
    from babel.plural import PluralRule

# The categories of numbers that the plurals of a language have, by the locale data of Unicode (CLDR).

CATEGORIES = ("zero", "one", "two", "few", "many", "other")
"""All categories, as files have them one after the other."""


@lru_cache(maxsize=512)
def categories(language: str, kind: str = "plural") -> Sequence[str]:
    """Return the categories of a language in their order, or none for a language that the locale data lacks.

    language: BCP-47, or with low lines
    kind: plural, or selectordinal for those of first, second, third
    """
    rule = rule_of(language, kind)
    return tuple(each for each in CATEGORIES if each in rule.tags or each == "other") if rule else ()


def rule_of(language: str, kind: str = "plural") -> PluralRule | None:
    """Return what tells the category of a number in a language, or None if it is not known."""
    from babel import Locale, UnknownLocaleError  # 60 ms, which most files do not need

    try:
        locale = Locale.parse(canonical(language.replace("_", "-"), "the language"), sep="-")
    except (InvalidRequest, UnknownLocaleError, ValueError):
        return None
    return locale.ordinal_form if kind == "selectordinal" else locale.plural_form


# The forms of plurals that files of keys and texts have, and the languages that their keys name.

MOST_LANGUAGES = 100  # at the root of a file: more keys are those of texts
SHOWN = 5  # languages that an error names
_SINGULAR_IS_SECOND = frozenset(["ar", "sl"])  # i18next 3 numbers the forms of most languages from the singular on
_MOST_WHOLE = 200  # numbers that are tried to find the categories of whole numbers


def is_plural(keys: Mapping[str, object] | Sequence[str]) -> bool:
    """Return whether keys are those of the forms of one text: categories alone, `other` and one more at least."""
    return len(keys) > 1 and "other" in keys and all(key in CATEGORIES for key in keys)


def lacking(present: Mapping[str, object] | Sequence[str], language: str, kind: str = "plural") -> list[str]:
    """Return the categories of a language that are not there."""
    return [each for each in categories(language, kind) if each not in present]


@lru_cache(maxsize=512)
def numbered(language: str) -> tuple[int, int]:
    """Return how many forms i18next 3 numbers in a language, and the number of the singular; (0, 0) if not known."""
    rule = rule_of(language)
    if rule is None:
        return 0, 0
    forms = {rule(number) for number in range(_MOST_WHOLE)}
    return len(forms), 1 if language.partition("-")[0].lower() in _SINGULAR_IS_SECOND else 0


def is_language(code: str) -> bool:
    """Return whether a key such as `de` or `pt_BR` is the code of a language."""
    return bool(categories(code)) if 2 <= len(code) <= 20 else False


def language_of(keys: Sequence[str]) -> str:
    """Return the key of a file that says its language at its root, empty if it does not.

    Raises UnreadableDocument if the file has several languages: which of them is to be translated is not clear.
    """
    if len(keys) > MOST_LANGUAGES or not all(map(is_language, keys)):
        return ""
    if len(keys) > 1:
        shown = ", ".join(keys[:SHOWN])
        raise UnreadableDocument(f"a file of texts must be in one language, got {len(keys)}: {shown}")
    return keys[0] if keys else ""
