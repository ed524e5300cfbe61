"""Where the sentences of a text are: paragraphs are cut first, then sentencex reads them in short blocks.

sentencex has rules for 244 languages and reads up to 40 MB a second, but only short texts are safe for it: its time is
quadratic in a paragraph of CJK full stops or open quotes (16,000 characters take 0.3 s), and past 10,000 characters it
loses some. Hence the blocks, and only its offsets are used, never its strings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

from lingon.text import INVISIBLE

# Where a sentence goes on although a full stop or a closing bracket comes: after initials, titles and quotations.
# sentencex cuts there in many languages: "M. Dupont" into "M." and "Dupont" at the begin of a paragraph in all of
# them.

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
    """Return whether a sentence that is said to be text[begin:end] goes on at `following`.

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
    """Return whether a word is a title, or initials: one letter with a stop, or several of them without blanks."""
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


Span = tuple[int, int]  # code points; the end is exclusive

BLOCK = 1000  # characters of a paragraph that sentencex reads at once: at most 1 ms
LONGEST = 4000  # characters of a sentence; a longer one is cut after a word
WITHOUT_LETTERS = 100  # characters; sentencex does not read more of them, since they end no sentence
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # the characters at which str.splitlines ends a line

_VISIBLE = re.compile(f"[^\\s{INVISIBLE}]")
_SPACE = re.compile(r"\s")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS = re.compile(r"[^\W\d_]{1,64}+")  # or numerals that are no decimal digits, such as ½ and Ⅳ
_LINE_BREAK = re.compile(f"[{LINE_BREAKS}]")
_END = f"(?>\r\n|[{LINE_BREAKS}])"
_BLANKS_IN_LINE = f"[ \t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000{INVISIBLE}]*+"
_PARAGRAPH_BREAK = re.compile(f"{_END}{_BLANKS_IN_LINE}{_END}|\u2029")
_CLOSING = re.compile("[」』】》〉〕）]+")  # belong to the sentence before them; sentencex knows only some
_PLAIN = re.compile(r"[\w ,'’-]*+.?")  # nothing that ends a sentence before the last character
_BLANKS = "".join(each for each in map(chr, (*range(0x3001), 0xFEFF)) if not _VISIBLE.match(each))  # no others exist
_ENDS_WITHOUT_SPACE = "।॥།༎။៕።፧"  # Devanagari, Tibetan, Burmese, Khmer, Ethiopic


def lines(text: str) -> Iterator[Span]:
    """Yield the lines of a text that have a visible character, from the first to the last such character."""
    return _between(text, _LINE_BREAK)


def paragraphs(text: str) -> Iterator[Span]:
    """Yield what blank lines or paragraph separators (U+2029) separate. A single line break is white space."""
    return _between(text, _PARAGRAPH_BREAK)


def sentences(text: str, paragraph: Span, language: str) -> Iterator[Span]:
    """Yield the sentences of a paragraph, without the blanks around them.

    language: BCP-47, of the text. Sentencex has rules for languages of the same kind if it does not know this one
    A number or a mark without letters belongs to the sentence after it, or before it at the end of a paragraph: a model
    makes up words for "1." alone.
    """
    begin, end = paragraph
    if end - begin <= BLOCK and _PLAIN.fullmatch(text, begin, end):
        yield paragraph
        return
    whole: Span | None = None  # a sentence with letters
    marks: Span | None = None  # what follows it without letters
    for begin, end in _candidates(text, paragraph, language.partition("-")[0].lower()):
        if marks is not None and end - marks[0] > LONGEST:
            yield from filter(None, (whole, marks))
            whole = marks = None
        first = begin if marks is None else marks[0]
        if _LETTER.search(text, begin, min(end, begin + LONGEST)) is None:
            marks = first, end
            continue
        if whole is not None:
            yield whole
        whole, marks = (first, end), None
    if whole is not None and marks is not None and marks[1] - whole[0] <= LONGEST:
        whole, marks = (whole[0], marks[1]), None
    yield from filter(None, (whole, marks))


def _between(text: str, separator: re.Pattern[str]) -> Iterator[Span]:
    """Yield what is between separators, without the blanks around it, unless it is blank."""
    begin = next_visible(text, 0, len(text))
    while begin < len(text):
        found = separator.search(text, begin)
        end = found.start() if found else len(text)
        yield begin, trimmed_end(text, begin, end)
        begin = next_visible(text, end, len(text))


def has_letters(text: str, begin: int, end: int) -> bool:
    """Return whether a span has a letter. Numerals of any script are none."""
    return any(any(map(str.isalpha, found[0])) for found in _LETTERS.finditer(text, begin, end))


def is_blank(text: str) -> bool:
    """Return whether a text has only white space and invisible characters."""
    return _VISIBLE.search(text) is None


def has_space(separator: str) -> bool:
    """Return whether a separator has white space. Invisible characters are none."""
    return _SPACE.search(separator) is not None


def ends_without_space(text: str) -> bool:
    """Return whether the script of the last character puts no space after the end of a sentence."""
    return unicodedata.east_asian_width(text[-1]) in "WFH" or text[-1] in _ENDS_WITHOUT_SPACE


def trimmed_end(text: str, begin: int, end: int) -> int:
    """Return the end of a span without the blanks at its end."""
    return begin + len(text[begin:end].rstrip(_BLANKS))


def without_blanks_around(text: str) -> str:
    """Return a text without the white space and the invisible characters at its begin and its end."""
    begin = next_visible(text, 0, len(text))
    return text[begin : trimmed_end(text, begin, len(text))]


def next_visible(text: str, begin: int, end: int) -> int:
    """Return the position of the first visible character; end without one."""
    found = _VISIBLE.search(text, begin, end)
    return found.start() if found else end


def _candidates(text: str, paragraph: Span, language: str) -> Iterator[Span]:
    """Yield spans that begin and end with a visible character, with blanks or nothing between them."""
    begin, last = paragraph
    while begin < last:
        for end in _ends(text, begin, last, language):
            yield begin, trimmed_end(text, begin, end)
            begin = next_visible(text, end, last)


def _ends(text: str, begin: int, last: int, language: str) -> Iterable[int]:
    """Return where the next sentences end, at least one. The longer the sentence, the longer the block."""
    stop = min(begin + BLOCK, last)
    letter = _LETTER.search(text, begin, stop)
    stop = letter.start() if letter else stop
    if stop - begin > WITHOUT_LETTERS:
        return [_after_word(text, begin, stop, stop)]
    for size in (BLOCK, 2 * BLOCK, LONGEST):
        stop = min(begin + size, last)
        found = [*_ends_in_block(text, begin, stop, last, language), *([last] if stop == last else [])]
        if found:
            return found
    return [_after_word(text, begin, stop, last)]


def _ends_in_block(text: str, begin: int, stop: int, last: int, language: str) -> Iterator[int]:
    """Yield the ends of the sentences in a block, except the last one, which may go on after it."""
    from sentencex import get_sentence_boundaries  # not at the top: clients read markup, and do not install it

    block = _LINE_BREAK.sub(" ", text[begin:stop])
    visible = after = first = begin  # several ends may be within one run of blanks, which is read once
    for each in get_sentence_boundaries(language, block)[:-1]:
        end = begin + each["end_index"]
        if end > after:
            visible, after = trimmed_end(text, begin, end), next_visible(text, end, last)
            if visible == after and (closing := _CLOSING.match(text, after, last)):
                end = visible = closing.end()
                after = next_visible(text, end, last)
        is_end = has_space(text[visible:after]) or ends_without_space(text[visible - 1])
        if after < last and is_end and not goes_on(text, first, visible, after, language):
            yield end
            first = after


def _after_word(text: str, begin: int, stop: int, last: int) -> int:
    """Return the end of the last word before `stop`, or if that is the first one, its own end."""
    words = text[begin:stop].rsplit(None, 1)
    if text[stop - 1].isspace():
        return stop
    if len(words) == 2:
        return stop - len(words[1])
    found = _SPACE.search(text, stop, last)
    return found.start() if found else last
