"""Which language texts are translated from if their request does not say: decided by what was detected in each.

A text is translated from the likeliest language that a model translates, however little it says: "Cancel" fits French.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from lingon.errors import InvalidRequest, LingonError, SettingsError, first_of
from lingon.language_tags import canonical, primary
from lingon.translation.v1 import translation_pb2 as pb

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

Latn has those of the other lists that are written in Latin letters too. Languages in no list have no other letters.
"""


def written_in(text: str, tags: Sequence[str]) -> list[str]:
    """Return the languages of these, as BCP-47 tags, in whose scripts a text is; all if that leaves none.

    A script counts if a fifth of the letters are of it.
    """
    found = scripts_of(text)
    return [tag for tag in tags if not found or not (known := scripts_of_language(tag)) or known & found] or list(tags)


def scripts_of(text: str) -> frozenset[str]:
    """Return the scripts (ISO 15924) of at least a fifth of the letters at the start of a text, empty without letters.

    Letters of other scripts than those of living languages do not count.
    """
    start = unicodedata.normalize("NFKC", text[:LOOKED_AT])  # full-width Latin letters are Latin letters
    counts = Counter(filter(None, map(script_of_letter, filter(str.isalpha, start))))
    return frozenset(script for script, count in counts.items() if count >= SHARE * counts.total())


@functools.lru_cache(maxsize=4096)
def script_of_letter(letter: str) -> str:
    """Return the script (ISO 15924) of a letter, empty for one of no script of living languages."""
    return _CODES.get(re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0], "")


@functools.lru_cache(maxsize=1024)
def scripts_of_language(tag: str) -> frozenset[str]:
    """Return the scripts that a language is written in, empty if they are not known."""
    try:
        language, *subtags = canonical(tag, "the language").split("-")
    except InvalidRequest:
        return frozenset()
    named = next((subtag for subtag in subtags if len(subtag) == 4 and subtag.isalpha()), "")
    if named:
        return frozenset(_SEVERAL.get(named, (named,)))
    found = {script for script, codes in _LANGUAGES.items() if language in codes}
    return frozenset(found or ({"Latn"} if len(language) == 2 else ()))


AUTO = "auto"  # in place of a language: detect it
DECIDED = 0.85  # probability from which on the language of a text is decided; of 500 short ones 1.6 % are wrong then
CERTAIN = 0.999  # probability from which on a text is not translated: it is in the target language, or no model fits
FEWEST_LETTERS = 40  # of what is refused for its language: a text, or all texts of a request
MOST_SHOWN = 20  # languages in a message
LEAST = 1e-6  # the probability that a language has at least in one of several texts

DETECTED_CHARACTERS = 2000  # of a text that the detection looks at: more of them make no difference
SHORT_CHARACTERS = 16_384  # of texts with markup, which take 5 ms to read
READ_CHARACTERS = 65_536, 1_048_576  # of a text with markup that are read for its language: if the first have no text
READ_SIGNS = 100_000  # signs < and & of markup that are read in all texts of a request, 5 µs each
Probabilities = Sequence[tuple[str, float]]
"""The languages of a text with their probabilities, the likeliest first."""


class NotTranslated(LingonError):
    """No model translates a request: none into its target or from the language of its texts, or that is unknown.

    side: "source" or "target", of which the language is the reason
    """

    def __init__(self, message: str, side: Literal["source", "target"] = "source") -> None:
        super().__init__(message)
        self.side = side


class TextLanguage(NamedTuple):
    """The language that a text is translated from.

    confidence: its probability, or 0 if none of the languages that are translated was detected
    stays: whether the text is in the target language already, and stays as it is
    refusal: why the text is not translated, or None if it is
    """

    language: str
    confidence: float
    stays: bool = False
    refusal: NotTranslated | None = None

    def tag_for(self, target: str) -> str:
        """Return the language, or the target itself for a text that is in it already."""
        return target if self.stays else self.language


def check_named(language: str | None, work: str) -> None:
    """Raise SettingsError for AUTO; work: what translates all texts with one model."""
    if language == AUTO:
        raise SettingsError(f'{work} has one model for all texts; name their language, got the source "{AUTO}"')


def starts_of(texts: Sequence[str], text_format: pb.TextFormat.ValueType) -> list[str]:
    """Return what is to be looked at of each text, see `readable`."""
    signs = READ_SIGNS // max(len(texts), 1) + 2
    return [readable(text, text_format, signs) for text in texts]


def takes_long(texts: Sequence[str], text_format: pb.TextFormat.ValueType) -> bool:
    """Return whether an event loop would stand still for too long in `starts_of`."""
    return text_format in (pb.TEXT_FORMAT_HTML, pb.TEXT_FORMAT_XML) and sum(map(len, texts)) >= SHORT_CHARACTERS


def readable(text: str, text_format: pb.TextFormat.ValueType, signs: int = READ_SIGNS) -> str:
    """Return the start of a text whose language is to be detected, without its markup, scripts and attributes.

    Of a text in pieces it is the words that they spell.

    signs: < and & that are read
    """
    if text_format not in (pb.TEXT_FORMAT_HTML, pb.TEXT_FORMAT_XML):
        start = text[:DETECTED_CHARACTERS]
        in_pieces = text_format == pb.TEXT_FORMAT_PIECES
        return start.replace(" ", "").replace("\u2581", " ") if in_pieces else start
    from lingon.segments.markup import read_html
    from lingon.segments.markup_blocks import STAND_IN

    beyond = next(islice(re.finditer("[<&]", text), signs, None), None)
    text = text[: beyond.start()] if beyond else text
    for characters in READ_CHARACTERS:
        found = " ".join(block.text for block in read_html(text[:characters]).blocks).replace(STAND_IN, " ")
        if len(found) >= DETECTED_CHARACTERS or characters >= len(text):
            break
    return found[:DETECTED_CHARACTERS]


def sources_of(
    texts: Sequence[str],
    detected: Iterable[Probabilities],
    served: Sequence[str],
    target: str,
    is_target: Callable[[str], bool],
    *,
    may_refuse_each: bool = False,
) -> list[TextLanguage]:
    """Return the source language of each text of a request. Raises NotTranslated.

    texts: what was looked at, see `readable`
    served: the languages that are translated into the target
    is_target: whether a language is the target or a variety of it
    may_refuse_each: whether each text in a language that is not translated is refused; else all are, if they together
        are in such a language
    """
    detected = [list(languages) for languages in detected]
    if not served:
        return [_untranslated(languages, target, is_target) for languages in detected]
    # A variety of the target is a source only if there is no other one.
    possible = list(dict.fromkeys(tag for tag in served if not is_target(tag))) or list(served)
    letters = [sum(map(str.isalpha, text)) for text in texts]
    if not any(detected):
        _check_told_apart([text for text, count in zip(texts, letters, strict=True) if count], possible)
    refuse = partial(_refusal, served=served, target=target, is_target=is_target)
    found = [_source_of(*each, possible, is_target) for each in zip(texts, detected, strict=True)]
    if may_refuse_each:
        refusals = [
            refuse([each]) if count >= FEWEST_LETTERS else None for each, count in zip(detected, letters, strict=True)
        ]
        return [source._replace(refusal=each) for source, each in zip(found, refusals, strict=True)]
    if sum(letters) >= FEWEST_LETTERS and (together := refuse(detected)) is not None:
        raise together
    return found


def by_way(sources: Sequence[TextLanguage]) -> dict[tuple[str, bool], list[int]]:
    """Return the positions of the texts that are translated from each language, and of those in it that stay."""
    positions: dict[tuple[str, bool], list[int]] = {}
    for position, source in enumerate(sources):
        if source.refusal is None:
            positions.setdefault((source.language, source.stays), []).append(position)
    return positions


def assumed(text: str, served: Sequence[str]) -> str:
    """Return the language of a text of which nothing was detected, by its script: English, or else the first one."""
    possible = written_in(text, served)
    return next((tag for tag in possible if primary(tag) in ("en", "eng")), possible[0])


def _check_told_apart(texts: Iterable[str], possible: Sequence[str]) -> None:
    """Raise NotTranslated if no model tells languages apart, and their scripts do not either."""
    for text in texts:
        if len(fitting := written_in(text, possible)) > 1:
            tags = first_of(fitting, MOST_SHOWN)
            raise NotTranslated(f"the source language must be named: no served model tells {tags} apart")


def _source_of(
    text: str, languages: Probabilities, possible: Sequence[str], is_target: Callable[[str], bool]
) -> TextLanguage:
    if languages and is_target(languages[0][0]) and languages[0][1] >= CERTAIN:
        return TextLanguage(*languages[0], stays=True)
    likeliest = next((each for each in languages if each[0] in possible), None)
    return TextLanguage(*likeliest) if likeliest else TextLanguage(assumed(text, possible), 0.0)


def _untranslated(languages: Probabilities, target: str, is_target: Callable[[str], bool]) -> TextLanguage:
    """Return the target for a text that is in it, or may be."""
    if not languages or not is_target(languages[0][0]):
        raise NotTranslated(f"no model translates into {target[:40]!r}", "target")
    return TextLanguage(*languages[0], stays=True)


def _refusal(
    detected: Sequence[Probabilities], served: Sequence[str], target: str, is_target: Callable[[str], bool]
) -> NotTranslated | None:
    """Return why texts are not translated, if together they are certainly in a language without a model."""
    fits: dict[str, float] = {}  # by how much more likely a language makes the texts than one that is in no list
    for languages in detected:
        for tag, probability in languages:
            fits[tag] = fits.get(tag, 0.0) + math.log(max(probability, LEAST) / LEAST)
    if not fits:
        return None
    best = max(fits.values())
    weights = {tag: math.exp(fit - best) for tag, fit in fits.items()}
    foreign = {tag: weight for tag, weight in weights.items() if tag not in served and not is_target(tag)}
    if sum(foreign.values()) < CERTAIN * sum(weights.values()):
        return None
    tag = max(foreign, key=foreign.__getitem__)
    return NotTranslated(f"the language was detected to be {tag!r}, and no model translates from it to {target[:40]!r}")
