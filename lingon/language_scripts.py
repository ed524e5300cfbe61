"""Which languages a text may be in by the scripts of its letters: one in Latin letters is not in Arabic."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from lingon.errors import InvalidRequest
from lingon.language_tags import canonical

SHARE = 0.2  # of the letters of a text, from which on a script counts: other texts have names and symbols of it
LOOKED_AT = 400  # characters of a text

_CODES = {
    "ARABIC": "Arab",
    "ARMENIAN": "Armn",
    "BENGALI": "Beng",
    "BOPOMOFO": "Bopo",
    "CANADIAN": "Cans",
    "CJK": "Hani",
    "CYRILLIC": "Cyrl",
    "DEVANAGARI": "Deva",
    "ETHIOPIC": "Ethi",
    "GEORGIAN": "Geor",
    "GREEK": "Grek",
    "GUJARATI": "Gujr",
    "GURMUKHI": "Guru",
    "HANGUL": "Hang",
    "HEBREW": "Hebr",
    "HIRAGANA": "Kana",
    "KANNADA": "Knda",
    "KATAKANA": "Kana",
    "KHMER": "Khmr",
    "LAO": "Laoo",
    "LATIN": "Latn",
    "MALAYALAM": "Mlym",
    "MONGOLIAN": "Mong",
    "MYANMAR": "Mymr",
    "OL": "Olck",
    "ORIYA": "Orya",
    "SINHALA": "Sinh",
    "TAMIL": "Taml",
    "TELUGU": "Telu",
    "THAANA": "Thaa",
    "THAI": "Thai",
    "TIBETAN": "Tibt",
    "TIFINAGH": "Tfng",
    "YI": "Yiii",
}
"""The codes of scripts (ISO 15924) by the first word of the Unicode names of their letters; of both kana one code."""

_SEVERAL = {
    "Hans": ("Hani",),
    "Hant": ("Hani", "Bopo"),
    "Hrkt": ("Kana",),
    "Jpan": ("Kana", "Hani"),
    "Kore": ("Hang", "Hani"),
}
"""The codes of tags that stand for other ones."""

_LANGUAGES = {
    script: frozenset(codes.split())
    for script, codes in {
        "Arab": "ar ary arz azb az ckb fa ha kk ks ku ky lrc ms mzn pa pnb ps sd sdh tg ug ur uz uzs",
        "Armn": "hy",
        "Beng": "as bn bpy mni",
        "Bopo": "zh",
        "Cans": "cr iu oj",
        "Cyrl": "ab av az ba be bg bs bxr ce crh cu cv kk krc ku kv ky lez mhr mk mn mrj myv os ru rue sah sh sr tg tk "
        "tt tyv udm uk uz xal",
        "Deva": "awa bh bho dty gom hi hif hne ks mag mai mr ne new sa sat sd",
        "Ethi": "am ti",
        "Geor": "ka xmf",
        "Grek": "el grc",
        "Gujr": "gu",
        "Guru": "pa",
        "Hang": "ko",
        "Hani": "ja ko wuu yue zh",
        "Hebr": "hbo he iw ji yi",
        "Kana": "ja",
        "Khmr": "km",
        "Knda": "kn",
        "Laoo": "lo",
        "Latn": "az ber bs crh cr gom ha hif iu kab kk ks ku mni ms sh sr taq tk tt tzm uz zgh",
        "Mlym": "ml",
        "Mong": "mn",
        "Mymr": "my shn",
        "Olck": "sat",
        "Orya": "or",
        "Sinh": "si",
        "Taml": "ta",
        "Telu": "te",
        "Tfng": "ber kab taq tzm zgh",
        "Thaa": "dv",
        "Thai": "th",
        "Tibt": "bo dz",
        "Yiii": "ii",
    }.items()
}
"""The languages of each script, by the likely subtags of CLDR, and those that use it as well.

Latn has those of the other lists that are written in Latin letters too; languages in no list have no other letters.
"""


def written_in(text: str, tags: Sequence[str]) -> list[str]:
    """Return the languages of these, as BCP-47 tags, in whose scripts a text is; all if that leaves none.

    A script counts if a fifth of the letters are of it.
    """
    found = scripts_of(text)
    return [tag for tag in tags if not found or not (known := _scripts_of_tag(tag)) or known & found] or list(tags)


def scripts_of(text: str) -> frozenset[str]:
    """Return the scripts (ISO 15924) of at least a fifth of the letters at the start of a text; empty without letters.

    Letters of other scripts than those of living languages do not count.
    """
    start = unicodedata.normalize("NFKC", text[:LOOKED_AT])  # full-width Latin letters are Latin letters
    counts = Counter(filter(None, map(_script, filter(str.isalpha, start))))
    return frozenset(script for script, count in counts.items() if count >= SHARE * counts.total())


@functools.lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return _CODES.get(re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0], "")


@functools.lru_cache(maxsize=1024)
def _scripts_of_tag(tag: str) -> frozenset[str]:
    """Return the scripts that a language is written in; empty if they are not known."""
    try:
        language, *subtags = canonical(tag, "the language").split("-")
    except InvalidRequest:
        return frozenset()
    named = next((subtag for subtag in subtags if len(subtag) == 4 and subtag.isalpha()), "")
    if named:
        return frozenset(_SEVERAL.get(named, (named,)))
    found = {script for script, codes in _LANGUAGES.items() if language in codes}
    return frozenset(found or ({"Latn"} if len(language) == 2 else ()))
