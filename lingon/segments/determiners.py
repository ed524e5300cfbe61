"""Words before a noun that change with it, and their other forms: der and das, le and la.

A term that replaces another noun may have another gender. The forms are only offered: the model's probability of the
whole translation chooses among them. A language without an entry offers none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from lingon.segments.boundaries import Span


def _german() -> Iterator[str]:
    """Yield the forms of the singular in one case: a form that is in several cases changes into those of each."""
    yield from ("der die das", "den die das", "dem der", "des der")
    for word in ("dies", "jen", "jed", "welch", "manch"):
        for endings in (("er", "e", "es"), ("en", "e", "es"), ("em", "er")):
            yield " ".join(word + ending for ending in endings)
    for word in ("ein", "kein", "mein", "dein", "sein", "ihr", "unser"):
        for endings in (("", "e"), ("en", "e", ""), ("em", "er"), ("es", "er")):
            yield " ".join(word + ending for ending in endings)
    yield from ("euer eure", "euren eure euer", "eurem eurer", "eures eurer")
    yield from ("im in_der", "ins in_die in_den", "am an_der", "ans an_die an_den")
    yield from ("zum zur", "vom von_der", "beim bei_der", "aufs auf_die auf_den")


# Forms of a word that change into each other are in one line. An underscore is a blank within a form. One that ends
# with an apostrophe touches its noun.
_FORMS: dict[str, tuple[str, ...]] = {
    "ca": ("el la l' els les", "un una uns unes", "del de_la de_l' dels de_les", "al a_la a_l' als a_les"),
    "da": ("en et", "den det de", "min mit mine", "din dit dine", "sin sit sine"),
    "de": tuple(_german()),
    "en": ("a an",),
    "es": (
        "el la los las",
        "un una unos unas",
        "del de_la de_los de_las",
        "al a_la a_los a_las",
        "este esta estos estas",
        "ese esa esos esas",
        "nuestro nuestra nuestros nuestras",
    ),
    "fr": (
        "le la l' les",
        "un une des",
        "du de_la de_l' des",
        "au à_la à_l' aux",
        "ce cet cette ces",
        "mon ma mes",
        "ton ta tes",
        "son sa ses",
        "notre nos",
        "votre vos",
        "leur leurs",
        "quel quelle quels quelles",
        "de d'",
    ),
    "it": (
        "il lo la l' i gli le",
        "un uno una un'",
        "del dello della dell' dei degli delle",
        "al allo alla all' ai agli alle",
        "nel nello nella nell' nei negli nelle",
        "dal dallo dalla dall' dai dagli dalle",
        "sul sullo sulla sull' sui sugli sulle",
        "questo questa questi queste",
    ),
    "nl": ("de het", "dit deze", "dat die", "ons onze"),
    "no": ("en ei et", "den det de", "min mi mitt mine"),
    "pt": (
        "o a os as",
        "um uma uns umas",
        "do da dos das",
        "no na nos nas",
        "ao à aos às",
        "pelo pela pelos pelas",
        "este esta estes estas",
        "meu minha meus minhas",
        "seu sua seus suas",
    ),
    "sv": ("en ett", "den det de", "min mitt mina", "din ditt dina", "sin sitt sina"),
}


def other_forms(text: str, end: int, language: str) -> tuple[Span, list[str]] | None:
    """Return the determiner that ends at a position of a text, with the blank after it, and its other forms.

    language: BCP-47. The forms have the blank that they need, and the determiner's capital. None without a determiner.
    """
    pattern, groups = _table(language.split("-")[0].lower())
    found = pattern.search(text, max(end - _LONGEST, 0), end) if pattern is not None else None
    if found is None:
        return None
    written = found[1]
    own = _plain(written)
    forms = dict.fromkeys(form for group in groups.get(own, ()) for form in group if form != own)
    if written[0].isupper():
        forms = dict.fromkeys(form[0].upper() + form[1:] for form in forms)
    return found.span(1), [*forms]


_LONGEST = 24  # characters; no form with its blank is longer


def _plain(form: str) -> str:
    return form.casefold().replace("’", "'")


@cache
def _table(language: str) -> tuple[re.Pattern[str] | None, dict[str, list[tuple[str, ...]]]]:
    """Return what finds a form before a position, and the groups that each form is in."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for line in _FORMS.get("no" if language in ("nb", "nn") else language, ()):
        forms = tuple(each.replace("_", " ") + ("" if each.endswith("'") else " ") for each in line.split())
        for form in forms:
            groups.setdefault(form, []).append(forms)
    if not groups:
        return None, groups
    # The longest form first: "in der" and not "der".
    either = "|".join(re.escape(form).replace("'", "['’]") for form in sorted(groups, key=len, reverse=True))
    return re.compile(rf"(?<!\w)({either})\Z", re.IGNORECASE), groups
