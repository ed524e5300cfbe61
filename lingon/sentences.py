"""Splits a text that a model cannot read whole: after sentences, else between words, else in a word. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

# The quantifiers are possessive: with backtracking, a run of n full stops without a space takes n * n steps.
_SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»›)\]]*+(?= )|[。！？]++["'”’»›」』）)\]]*+""")
_CLAUSE_END = re.compile(r"[,;:–—] ")
_COMMA = re.compile(r"[、，；：]")
_OPENING = "\"'“„‚‘«‹([¿¡"
_ABBREVIATION = re.compile(
    "mr|mrs|ms|dr|prof|st|jr|sr|gen|col|sen|rep|rev|hon|hr|fr"
    "|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez"
    "|no|nr|vs|etc|usw|e\\.g|i\\.e|cf|vgl|al|approx|ca|inc|ltd|co|corp|fig|abs|str|bzw|bsp|evtl|ggf|inkl|zzgl",
    re.IGNORECASE,
)


SURE = 4096  # characters of a sentence from which on a doubtful end is one: looking on in a megabyte takes long
LONGEST = 16_384  # characters of a sentence; it is cut between words: reading a megabyte at once takes 40 ms
CLAUSE_REACH = 2048  # characters from the middle in which a clause is looked for: reading a megabyte takes long


def split(text: str, fits: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield spans that fit and together cover the text, except the spaces between them.

    text: normalised, so white space is single spaces
    fits: true for a single character
    """
    for begin, end in sentences(text):
        yield from _halves(text, begin, end, fits)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the sentences of a normalised text; in doubt, two stay one, up to SURE characters.

    A sentence of more than LONGEST characters is cut after a word, so that the time of each step has a bound.
    """
    begin = 0
    while begin < len(text):
        end = _sentence_end(text, begin)
        yield begin, end
        begin = end + (text[end : end + 1] == " ")


def _sentence_end(text: str, begin: int) -> int:
    """Return where the sentence at begin ends."""
    reach = begin + LONGEST
    for found in _SENTENCE_END.finditer(text, begin, reach):
        if found.end() < len(text) and (found.end() - begin > SURE or _ends(text, begin, found)):
            return found.end()
    if len(text) <= reach:
        return len(text)
    space = text.rfind(" ", begin, reach)
    if space <= begin:
        space = text.find(" ", reach)
    return len(text) if space < 0 else space


def _ends(text: str, begin: int, found: re.Match[str]) -> bool:
    """Whether punctuation ends a sentence: no abbreviation, initial or ordinal before it, no lower case after it."""
    if text[found.end()] != " ":
        return True  # the script puts no space between sentences
    after = text[found.end() + 1 : found.end() + 4].lstrip(_OPENING)
    if after[:1].islower():
        return False
    if text[found.start()] != "." or found.group()[:2] == "..":
        return True
    word = text[max(begin, text.rfind(" ", begin, found.start()) + 1) : found.start()].lstrip(_OPENING)
    initial = len(word) == 1 and word.isalpha()
    ordinal = len(word) <= 2 and word.isdecimal()
    return not (initial or ordinal or _ABBREVIATION.fullmatch(word))


def _halves(text: str, begin: int, end: int, fits: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Halve a span between words until every piece fits: pieces of equal length translate better than a short rest."""
    if end - begin <= 1 or fits(text[begin:end]):
        yield begin, end
        return
    cut = _middle(text, begin, end)
    spaced = cut >= 0
    if not spaced:
        cut = _middle_of_word(text, begin, end)
    yield from _halves(text, begin, cut, fits)
    yield from _halves(text, cut + spaced, end, fits)


def _middle(text: str, begin: int, end: int) -> int:
    """Return the space to cut at: after a clause in the middle third, else nearest to the middle; -1 without one."""
    middle, reach = (begin + end) // 2, min((end - begin) // 6, CLAUSE_REACH)
    clauses = [found.end() - 1 for found in _CLAUSE_END.finditer(text, middle - reach, middle + reach)]
    spaces = clauses or [place for place in (text.rfind(" ", begin, middle), text.find(" ", middle, end)) if place >= 0]
    return min(spaces, key=lambda place: abs(place - middle), default=-1)


def _middle_of_word(text: str, begin: int, end: int) -> int:
    """Return where to cut a word, or a clause in a script without spaces: after a comma, else before a letter."""
    middle, reach = (begin + end) // 2, min((end - begin) // 6, CLAUSE_REACH)
    commas = [found.end() for found in _COMMA.finditer(text, middle - reach, middle + reach)]
    if commas:
        return min(commas, key=lambda place: abs(place - middle))
    letters = range(middle, min(end, middle + CLAUSE_REACH))
    return next((place for place in letters if not unicodedata.combining(text[place])), middle)
