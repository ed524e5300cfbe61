"""The language codes of published models, and the BCP-47 tags that a server knows them by."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lingon.bundle import MANY
from lingon.serving.models.languages import canonical
from lingon.training.config import LanguageSettings

_M2M_100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
M2M_100 = tuple(_M2M_100.split())
"""The languages of M2M-100 in the order of their ids (Fan et al., 2020)."""

WMT21 = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
"""The languages of the model of WMT 2021 that is built as M2M-100, in the order of their ids."""

_CODE = re.compile(r"(?:__|>>)?([A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*?)(?:__|<<)?")
_COMMON = "Latn"


def tags_of(codes: Iterable[str]) -> dict[str, str]:
    """Return the code of each tag. A code that has the form of no tag is left out.

    The forms are __de__, >>deu<<, deu_Latn and de_DE. A script or a region is left out of the tag of the language's
    only code; of several codes of a language, that in Latin script, else the first one, has the short tag.
    """
    by_language: dict[str, list[tuple[str, str]]] = {}
    for code in codes:
        if found := _CODE.fullmatch(code):
            tag = canonical(found[1].replace("_", "-"), "a language code")
            by_language.setdefault(tag.partition("-")[0], []).append((tag, code))
    tags: dict[str, str] = {}
    for language, own in by_language.items():
        short = next((code for tag, code in own if tag in (language, f"{language}-{_COMMON}")), own[0][1])
        tags |= {language if code == short else tag: code for tag, code in own}
    return tags


def languages_by_code(codes: set[str], pair: tuple[str, str]) -> LanguageSettings | None:
    """Return the target languages that a code before the source chooses; None for a model of one pair.

    Several published models of one pair have the code of a dialect that they do not need.
    """
    tags = tags_of(sorted(codes))
    if len(tags) < 2 and pair[1] not in tags:
        return None
    return LanguageSettings.model_validate(
        {
            "sources": [{"language": pair[0] or MANY}],
            "targets": [{"language": tag, "source": [code]} for tag, code in tags.items()],
        }
    )
