"""Language tags (BCP 47): their canonical form, which are one, which language serves another, and pairs of them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from lingon.errors import InvalidRequest
from lingon.translation.v1 import translation_pb2 as pb

MAX_CHARACTERS = 256  # of a tag; real ones have at most about 35, and the time to match one is quadratic in its subtags
_TAG = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")

_ISO_639_1 = dict(
    re.findall(
        r"(\w{3}):(\w{2})",
        "aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba bam:bm bel:be "
        "ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu chv:cv cor:kw cos:co cre:cr "
        "cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi "
        "fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv grn:gn guj:gu hat:ht hau:ha hbs:sh heb:he her:hz hin:hi "
        "hmo:ho hrv:hr hun:hu hye:hy ibo:ig ido:io iii:ii iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv "
        "jpn:ja kal:kl kan:kn kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko kua:kj "
        "kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk mlg:mg "
        "mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb nor:no "
        "nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa pli:pi pol:pl por:pt pus:ps que:qu roh:rm ron:ro run:rn "
        "rus:ru sag:sg san:sa sin:si slk:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc "
        "srp:sr ssw:ss sun:su swa:sw swe:sv tah:ty tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn "
        "tso:ts tuk:tk tur:tr twi:tw uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi "
        "yor:yo zha:za zho:zh zul:zu ",
    )
)
"""The codes of ISO 639-3 that ISO 639-1 has in two letters."""

_MEMBERS = dict(
    re.findall(
        r"(\w{3}):(\w{2})",
        "als:sq arb:ar ayr:ay azj:az cmn:zh ekk:et fuv:ff gaz:om gug:gn khk:mn kmr:ku lvs:lv npi:ne ory:or pbt:ps "
        "pes:fa plt:mg quy:qu swh:sw uzn:uz ydd:yi zsm:ms ",
    )
)
"""Members of the macrolanguages of ISO 639-3 that have the two letters of the whole: those in FLORES and NLLB-200.

Arabic is arb there, and so ar. Other members, such as ary for Moroccan Arabic, keep their three letters.
"""

_SHORT: dict[str, str] = _ISO_639_1 | _MEMBERS
"""Three-letter codes (ISO 639-3) to two-letter codes, so that FLORES codes such as eng_Latn are accepted."""

_TWO_LETTERS = frozenset(_ISO_639_1.values())


def canonical(tag: str, field: str) -> str:
    """Return the canonical form of a tag, such as de-AT or zh-Hant. Raises InvalidRequest, which names the field."""
    if len(tag) > MAX_CHARACTERS or not _TAG.fullmatch(tag):
        raise InvalidRequest(field, f"{field} must be a BCP-47 language tag such as en or de-AT, got {tag[:64]!r}")
    language, *others = re.split("[-_]", tag)
    language = language.lower()
    return "-".join([_SHORT.get(language, language), *(_subtag(other) for other in others)])


def primary(tag: str) -> str:
    """Return the language of a tag as it is written, in lower case: arb of arb-EG."""
    return re.split("[-_]", tag, maxsplit=1)[0].lower()


def has_two_letters(tag: str) -> bool:
    """Return whether a text is a tag whose language has two letters in ISO 639-1, such as en or pt_BR."""
    return len(tag) <= MAX_CHARACTERS and _TAG.fullmatch(tag) is not None and primary(tag) in _TWO_LETTERS


def is_same_tag(tag: str, other: str) -> bool:
    """Return whether two tags are one, however they are written: pt_BR is pt-br, and deu is de. They need not be
    valid.
    """
    return _parts(tag) == _parts(other)


def is_same_language(tag: str, other: str) -> bool:
    """Return whether two tags name one language, whatever the regions and scripts: pt_BR and pt-PT, sr@latin and
    srp_Cyrl.

    They need not be valid: a name of a locale such as de_DE.UTF-8 counts.
    """
    return _parts(tag)[0] == _parts(other)[0]


def distance(requested: str, served: str) -> int | None:
    """Return how many subtags to drop from the end of a requested tag to get the served one, or None if it does not
    match.

    Both are canonical. "en" serves a request for "en-US", but "en-US" serves none for "en" (RFC 4647, lookup).
    """
    subtags = requested.split("-")
    for dropped in range(len(subtags)):
        if "-".join(subtags[: len(subtags) - dropped]) == served:
            return dropped
    return None


def _parts(tag: str) -> list[str]:
    """Return the language of a tag or of a locale by its short code, and what follows, in lower case."""
    language, *others = re.split("[-_@.]", tag.lower())
    return [_SHORT.get(language, language), *others]


def _subtag(subtag: str) -> str:
    if len(subtag) == 4 and subtag.isalpha():
        return subtag.title()  # a script
    return subtag.upper() if len(subtag) == 2 else subtag.lower()  # a region, or a variant


@dataclass(frozen=True, slots=True)
class ServedPairs:
    """The pairs of languages that are served, as tags of the models."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, models: pb.ListModelsResponse) -> ServedPairs:
        """Return the pairs of all models, and then those that are translated through a pivot language."""
        direct = cls(tuple(dict.fromkeys(pair for model in models.models for pair in pairs_of(model))))
        found = dict.fromkeys(direct.pairs)
        for pivot in pivots_of(models):
            sources, targets = direct.sources_of(pivot), direct.targets_of(pivot)
            found |= {(one, other): None for one in sources for other in targets if not is_one_language(one, other)}
        return cls(tuple(found))

    @property
    def sources(self) -> list[str]:
        """The source languages, each once."""
        return list(dict.fromkeys(source for source, _ in self.pairs))

    @property
    def targets(self) -> list[str]:
        """The target languages, each once."""
        return list(dict.fromkeys(target for _, target in self.pairs))

    def sources_of(self, target: str) -> list[str]:
        """Return the languages that are translated into this one, or into the language that it is a variety of."""
        return list(dict.fromkeys(source for source, each in self.pairs if serves(each, target)))

    def targets_of(self, source: str) -> list[str]:
        """Return the languages into which this one is translated."""
        return list(dict.fromkeys(target for each, target in self.pairs if serves(each, source)))


def pivots_of(models: pb.ListModelsResponse) -> list[str]:
    """Return the languages through which a server translates; an older server names at most one."""
    return list(models.pivot_language_codes) or list(filter(None, [models.pivot_language_code]))


def pairs_of(model: pb.Model) -> list[tuple[str, str]]:
    """Return the pairs that a model translates."""
    if not model.source_language_codes:
        return [(model.source_language_code, model.target_language_code)]
    sources, targets = model.source_language_codes, model.target_language_codes
    return [(source, target) for source in sources for target in targets if source != target]


def is_one_language(source: str, target: str) -> bool:
    """Return whether two tags name one language, or varieties of one."""
    return serves(source, target) or serves(target, source)


def serves(served: str, wanted: str) -> bool:
    """Return whether a served language is the wanted one or what that is a variety of: en serves en-GB, and
    eng_Latn.
    """
    return max(len(served), len(wanted)) <= MAX_CHARACTERS and _serves(served, wanted)


@functools.lru_cache(maxsize=4096)
def _serves(served: str, wanted: str) -> bool:
    """See `serves`. A model of 200 languages has 40,000 pairs, and this takes some microseconds."""
    try:
        return distance(canonical(wanted, "the language"), canonical(served, "the language")) is not None
    except InvalidRequest:
        return False
