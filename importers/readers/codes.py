"""The language codes of published models, and the BCP-47 tags that a server knows them by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from lingon.bundle.manifest import MANY
from lingon.language_tags import canonical, primary
from lingon.training.config import LanguageSettings

_M2M_100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
M2M_100 = tuple(_M2M_100.split())
"""The languages of M2M-100 in the order of their ids (Fan et al., 2020)."""

_MBART_25 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
MBART_25 = tuple(_MBART_25.split())
"""The languages of mBART in the order of their ids (Liu et al., 2020)."""

WMT21 = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
"""The languages of the model of WMT 2021 that is built as M2M-100, in the order of their ids."""

_CODE = re.compile(r"(?:__|>>)?([A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*?)(?:__|<<)?")
_COMMON = "Latn"


class _Code(NamedTuple):
    """A code, the tag that it writes, and the canonical form of that."""

    code: str
    written: str
    tag: str


def tags_of(codes: Iterable[str]) -> dict[str, str]:
    """Return the code of each tag. A code that has the form of no tag is left out.

    The forms are __de__, >>deu<<, deu_Latn and de_DE. A script or a region is left out of the tag of the language's
    only code; of several codes of a language, that in Latin script, else the first one, has the short tag. Two codes
    may have one canonical tag, as ara and arb, which are ar: then one of them keeps the tag that it writes.
    """
    by_language: dict[str, list[_Code]] = {}
    for code in codes:
        if found := _CODE.fullmatch(code):
            written = found[1].replace("_", "-")
            tag = canonical(written, "a language code")
            by_language.setdefault(primary(tag), []).append(_Code(code, written, tag))
    tags: dict[str, str] = {}
    for language, own in by_language.items():
        short = min(own, key=lambda each: _preference(each, language))  # the first of equals
        tags[language] = short.code
        writings = Counter(each.tag for each in own)
        for each in own:
            if each is not short:
                alone = writings[each.tag] == 1 and each.tag not in tags
                tags.setdefault(each.tag if alone else each.written, each.code)
    return tags


def languages_by_code(codes: set[str], pair: tuple[str, str]) -> LanguageSettings | None:
    """Return the target languages that a code before the source chooses, or None for a model of one pair.

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


def _preference(code: _Code, language: str) -> int:
    """Return the rank of a code for the short tag of its language. The lowest has it."""
    if code.written.lower() == language:
        return 0
    return 1 if code.tag in (language, f"{language}-{_COMMON}") else 2


def languages_of_one_target(codes: Iterable[str], first: str, place: str) -> LanguageSettings:
    """Return the languages of a model whose decoder reads the code of its only target language first.

    first: that code
    place: of the code of the source language: before or after
    """
    tags = tags_of(codes)
    sources = [{"language": tag, place: [code]} for tag, code in tags.items() if code != first]
    (target,) = (tag for tag, code in tags.items() if code == first)
    return LanguageSettings.model_validate({"sources": sources, "targets": [{"language": target}]})
