"""Language tags (BCP 47): their canonical form, and whether a served language matches a requested one."""

from __future__ import annotations

import re

from lingon.errors import InvalidRequest

MAX_CHARACTERS = 256  # of a tag; real ones have at most about 35, and the time to match one is quadratic in its subtags
_TAG = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")

_SHORT: dict[str, str] = dict(
    re.findall(
        r"(\w{3}):(\w{2})",
        "afr:af amh:am arb:ar ara:ar aze:az bel:be ben:bn bos:bs bul:bg cat:ca ces:cs cym:cy dan:da deu:de ell:el "
        "eng:en epo:eo est:et eus:eu fas:fa pes:fa fin:fi fra:fr gle:ga glg:gl guj:gu heb:he hin:hi hrv:hr hun:hu "
        "hye:hy ind:id isl:is ita:it jpn:ja kan:kn kat:ka kaz:kk khm:km kor:ko lao:lo lat:la lav:lv lvs:lv lit:lt "
        "ltz:lb mal:ml mar:mr mkd:mk mlt:mt msa:ms zsm:ms mya:my nld:nl nno:nn nob:nb nor:no npi:ne pan:pa pol:pl "
        "por:pt ron:ro rus:ru sin:si slk:sk slv:sl som:so spa:es sqi:sq srp:sr swe:sv swh:sw tam:ta tel:te tgl:tl "
        "tha:th tur:tr ukr:uk urd:ur uzb:uz vie:vi zho:zh cmn:zh zul:zu ",
    )
)
"""Three-letter codes (ISO 639-3) to two-letter codes, so that FLORES codes such as eng_Latn are accepted."""


def canonical(tag: str, field: str) -> str:
    """The canonical form of a tag, such as de-AT or zh-Hant; raises InvalidRequest, which names the field."""
    if len(tag) > MAX_CHARACTERS or not _TAG.fullmatch(tag):
        raise InvalidRequest(field, f"{field} must be a BCP-47 language tag such as en or de-AT, got {tag[:64]!r}")
    language, *others = re.split("[-_]", tag)
    language = language.lower()
    return "-".join([_SHORT.get(language, language), *(_subtag(other) for other in others)])


def distance(requested: str, served: str) -> int | None:
    """How many subtags to drop from the end of a requested tag to get the served one; None if it does not match.

    Both are canonical. "en" serves a request for "en-US", but "en-US" serves none for "en" (RFC 4647, lookup).
    """
    subtags = requested.split("-")
    for dropped in range(len(subtags)):
        if "-".join(subtags[: len(subtags) - dropped]) == served:
            return dropped
    return None


def _subtag(subtag: str) -> str:
    if len(subtag) == 4 and subtag.isalpha():
        return subtag.title()  # a script
    return subtag.upper() if len(subtag) == 2 else subtag.lower()  # a region, or a variant
