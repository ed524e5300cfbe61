"""Where a sentence goes on although a full stop or a closing bracket comes: after initials, titles and quotations.

sentencex cuts there in many languages: "M. Dupont" into "M." and "Dupont" at the begin of a paragraph in all of them.
"""

from __future__ import annotations

import re
from functools import cache

_LONGEST = 64  # characters of initials and titles
_OPENING = "\"'“”„‟‚‘’«»‹›([{¿¡「『（《〈-–—―"
_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"  # in which one letter may be a word
_INITIAL = re.compile(rf"[^\W\d_{_WIDE}][\u0300-\u036f\u0591-\u05c7\u064b-\u065f]{{0,3}}\.")
_QUOTED = re.compile(r"[」』）”]\Z")
_GOES_ON = re.compile("と(?!ても|ころ|にかく|もかく|りあえず|もだち|なり|き)|って|なんて|など|を")

TITLES = {
    "": "Dr Prof St",  # of all languages
    "af": "Mnr Mev Mej Ds Adv",
    "ar": "د أ م أ.د م.م",
    "az": "Cən Xan",
    "be": "сп праф акад д-р вул",
    "bg": "г-н г-жа проф акад д-р инж доц ул гр",
    "bs": "g gđa gđica dr prof mr ul",
    "ca": "Sr Sra Srta Dra Il·lm Av",
    "cs": "p pí sl Ing Mgr Bc MUDr JUDr PhDr RNDr MVDr ThDr PaedDr doc prof sv ul",
    "cy": "Mr Mrs Ms Parch",
    "da": "hr fr frk dr prof cand Hr Fr Frk",
    "de": "Hr Fr Frl Hrn Dipl Ing Mag Str Sr Hl Nr Msgr",
    "el": "κ κα κος Δρ δρ Καθ καθ Αγ αγ οδ",
    "en": "Mr Mrs Ms Mx Messrs Mmes Rev Hon Gen Col Maj Capt Cpt Lt Sgt Cpl Adm Gov Sen Rep Pres Supt Msgr Fr Mt Ft",
    "eo": "S-ro S-ino d-ro prof",
    "es": "Sr Sra Srta Sres Sras D Dª Dña Dra Drs Lic Ing Arq Profa Mons Ud Uds Gral Av Sto Sta",
    "et": "hr pr dr prof hra prl",
    "eu": "jn and jaun dk",
    "fi": "hra rva nti tri prof fil maist toht",
    "fo": "hr fr frk",
    "fr": "M MM Mme Mmes Mlle Mlles Mgr Me Mes Dre Pr Pre Sr Ste Vve Mr",
    "ga": "Uas an tUas",
    "gl": "Sr Sra Srta D Dna Dra Prof",
    "gu": "શ્રી ડૉ ડો પ્રો",
    "he": "ד״ר פרופ׳ פרופ מר גב׳ עו״ד",
    "hi": "श्री डॉ डा प्रो पं",
    "hr": "g gđa gđica dr prof mr ing sv ul",
    "hu": "dr Dr özv id ifj prof Prof szt Szt br gr",
    "hy": "պրն տկն դոկ պրոֆ",
    "id": "Bpk Ibu Sdr Sdri Tn Ny Nn Ir Drs Dra H Hj KH Jl",
    "is": "hr sr dr próf",
    "it": "Sig Sigg Sig.ra Sig.na Sra Dott Dott.ssa Prof Prof.ssa Avv Ing Arch Geom Rag On Mons Egr Spett Gent Sen Gen",
    "kk": "проф акад к",
    "kn": "ಶ್ರೀ ಡಾ ಪ್ರೊ",
    "la": "S SS",
    "lb": "Hr Mme Mr",
    "lt": "p pon g dr prof doc inž šv",
    "lv": "kgs kdze dr prof g k",
    "mk": "г-дин г-ѓа проф д-р ул",
    "ml": "ശ്രീ ഡോ പ്രൊ",
    "mr": "श्री सौ डॉ प्रा कु",
    "ms": "En Pn Cik Tn Hj Hjh Sdr Prof Jl",
    "mt": "Sur Sra Dott Onor",
    "nb": "hr fr frk dr prof Hr Fru",
    "nl": "dhr mevr mw Dhr Mevr Mw ir drs mr ing ds prof dr H Mr Jhr Ir Drs Ing",
    "nn": "hr fr frk dr prof",
    "no": "hr fr frk dr prof Hr Fru",
    "pa": "ਸ ਡਾ ਪ੍ਰੋ",
    "pl": "p pp prof dr hab inż mgr lek adw św ks o ul al gen płk mjr kpt por red Inż Mgr Ks Św Ul Gen",
    "pt": "Sr Sra Srta Srs Sras D Dª Dra Drs Profa Eng Arq Exmo Exma Ilmo Pe Gen Av",
    "rm": "Sgr Dna",
    "ro": "Dl Dna Dra Dlui D-l D-na dl dna dra d-l d-na conf ing av sf str",
    "ru": "г г-н г-жа гр проф акад доц д-р инж св ул пр им тов ген о",
    "sk": "p pí sl Ing Mgr Bc MUDr JUDr PhDr RNDr MVDr ThDr PaedDr doc prof sv ul",
    "sl": "g ga gdč gospa dr prof mag inž sv ul",
    "sq": "z znj zt Z Znj Zt",
    "sr": "g gđa gđica dr prof mr ul г гђа гђица др проф мр ул",
    "sv": "hr fr frk dr prof Hr Fru jur kand ing",
    "sw": "Bw Bi Bibi Mhe",
    "ta": "திரு டாக்டர் பேரா",
    "te": "శ్రీ డా ప్రొ",
    "tl": "G Gng Bb Atty Engr",
    "tr": "Sn Av Doç Yrd Uzm Op Müh Öğr Gör Hz",
    "uk": "п пп пан проф акад доц д-р інж св вул",
    "ur": "ڈاکٹر پروفیسر",
    "vi": "TP Tp TS ThS Ths GS PGS BS KS LS CN TX TT Q P",
}
"""Words that a full stop shortens and a name follows, by language, without the stop."""


def goes_on(text: str, begin: int, end: int, following: int, language: str) -> bool:
    """Whether a sentence that is said to be text[begin:end] goes on at `following`.

    language: as BCP-47 writes it, without script and region
    Reads at most some dozens of characters.
    """
    if text[end - 1] == ".":
        words = text[max(begin, end - _LONGEST) : end].split()
        if _without_stop(words[-1]) in _titles(language):
            return True
        return end - begin <= _LONGEST and all(_is_short(word, language) for word in words)
    return end == following and _QUOTED.search(text, end - 1, end) is not None and bool(_GOES_ON.match(text, following))


def _is_short(word: str, language: str) -> bool:
    """Whether a word is a title, or initials: one letter with a stop, or several of them without blanks."""
    if _without_stop(word) in _titles(language):
        return True
    word = word.lstrip(_OPENING)
    at = 0
    while found := _INITIAL.match(word, at):
        at = found.end()
    return 0 < at == len(word)


def _without_stop(word: str) -> str:
    """Return a word without what opens a quotation before it and the stop after it."""
    return word.lstrip(_OPENING).removesuffix(".")


@cache
def _titles(language: str) -> frozenset[str]:
    """Return the titles of a language, and those of all."""
    words = f"{TITLES['']} {TITLES.get(language, '')}".split()
    return frozenset([*words, *(word[0].upper() + word[1:] for word in words if len(word) > 1)])
