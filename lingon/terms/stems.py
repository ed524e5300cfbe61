"""Stems of words by Snowball, for the languages that it knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from threading import Lock

from lingon.extras import name_missing_extra
from lingon.language_tags import canonical, primary

REMEMBERED = 2**14  # words of a language whose stems are remembered: one takes 10 to 60 µs

ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "st": "sesotho",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
"""The names of Snowball's algorithms by language."""


def has_stems(language: str) -> bool:
    """Return whether there are stems for the words of a language; language: BCP-47, empty if it is not known."""
    return _code(language) in ALGORITHMS


def stemmer(language: str) -> Callable[[str], str]:
    """Return what gives the stem of a word in small letters; any thread may call it. See `has_stems`."""
    return _stemmer(ALGORITHMS[_code(language)])


@cache
def _stemmer(algorithm: str) -> Callable[[str], str]:
    with name_missing_extra("terms whose inflected forms are found: Lingon", ["serve"]):
        from snowballstemmer import stemmer as make

    snowball, lock = make(algorithm), Lock()  # it keeps the word that it works on

    @lru_cache(maxsize=REMEMBERED)
    def stem(word: str) -> str:
        with lock:
            return str(snowball.stemWord(word)) or word

    return stem


def _code(language: str) -> str:
    return primary(canonical(language, "the language")) if language else ""
