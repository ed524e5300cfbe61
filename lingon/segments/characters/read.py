"""Finds what a model cannot read of a text: what it reads in the place of it, and what it does not get to see.

A character that the model lacks is read as its twin, if it has one that the model reads. Other letters are kept with
their word; signs are kept with the number or the word that they belong to, and those that separate are kept alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.characters.alphabet import LONGEST, Alphabet
from lingon.segments.characters.reading import Reading
from lingon.segments.protection import Kind, ProtectedSpan, merge, without
from lingon.text import to_nfc

_WORD = re.compile(r"\S+")
_REACH = 40  # characters in which a number beside a sign is looked for
_NUMBER = r"(?:[-+−–]?\d[\d.,'’/:]{0,30}(?<![.,'’/:])(?!\d))"
_LEFT = re.compile(rf"(?:(?<![\w.,]){_NUMBER}|(?<![\w'’-])[^\W\d_])[ \xa0\u202f]?\Z")
_RIGHT = re.compile(rf"[ \xa0\u202f]?(?:{_NUMBER}(?!\w)|[^\W\d_](?![\w'’-]))")
_LEFT_NUMBER = re.compile(rf"(?<![\w.,]){_NUMBER}[ \xa0\u202f]?\Z")
_RIGHT_NUMBER = re.compile(rf"[ \xa0\u202f]?{_NUMBER}")
_SEPARATING = frozenset("|¦‖│┃•·‣◦⁃∙●○■□▪▫«»‹›→←↑↓⇒⇐➔➜►▶◄◀⟩⟨&\\`{}")
_NAMED = frozenset("™®©℠℗#♯")  # belong to the word before them
_TAGGED = frozenset("#@")  # belong to the word after them
_SUPERSCRIPT = frozenset("⁰¹²³⁴⁵⁶⁷⁸⁹")
_ELLIPSIS = "…"  # at an end of a sentence the model need not see it; of its twin it often loses a full stop or two
_NOTED = 4  # letters of a word after which a superscript figure is the mark of a note and no exponent
_UNIT = 4  # letters and signs of a unit of measurement, at most
_QUOTED = re.compile(r"([«‹「『])[^«»‹›「」『』]{1,300}+([»›」』])")
_QUOTES = {"«»": ("“", "”"), "‹›": ("‘", "’"), "「」": ("“", "”"), "『』": ("“", "”")}
_SPACELESS = "\u0e00"  # scripts from here on have no blanks between words: Thai, Chinese, Japanese


class _Unit(NamedTuple):
    """A character that is not read, with its marks; twin: what is read in its place."""

    begin: int
    end: int
    twin: str | None


def read_characters(
    text: str, spans: Sequence[ProtectedSpan], alphabet: Alphabet, *, keeps: bool, lowers: bool = False
) -> Reading | None:
    """Return a text as the model reads it; None if that is the text as it is, with these spans.

    spans: what is kept of the text in any case, in order and without overlap; the model does not see it
    keeps: whether what the model cannot read is kept
    lowers: whether the model gets the text in lower case
    Takes time linear in the text.
    """
    lacking = alphabet.lacking(text)
    if lowers:
        lacking = {each for each in lacking if not alphabet.reads(each.lower())}
    if not lacking and (not keeps or alphabet.reads_sentence(text)):
        return None
    arrows = [_arrow(text, span, lacking) for span in spans] if keeps else spans
    units = list(_units(text, _unread(text, spans, lacking, alphabet, lowers=lowers), alphabet))
    own = list(_kept(text, units)) if keeps else []
    every = merge([*arrows, *own]) if own else arrows
    if own and not any(map(str.isalpha, without(text, every))):
        every = [_whole(text)]
    twins = [unit for unit in _outside(units, every) if unit.twin is not None]
    if not own and not twins and arrows == list(spans):
        return None
    return Reading.of(text, ((begin, end, twin or "") for begin, end, twin in twins), every)


def _arrow(text: str, span: ProtectedSpan, lacking: AbstractSet[str]) -> ProtectedSpan:
    """Return a span of an emoji as one of a sign if it separates what is beside it, as arrows do."""
    begin, end, kind = span
    if kind is not Kind.EMOJI or not set(text[begin:end]) <= lacking or _SEPARATING.isdisjoint(text[begin:end]):
        return span
    return span._replace(kind=Kind.SIGN)


def _whole(text: str) -> ProtectedSpan:
    """Return a text in which the model could read no word, without the blanks around it."""
    begin = next_visible(text, 0, len(text))
    return ProtectedSpan(begin, trimmed_end(text, begin, len(text)), Kind.UNKNOWN)


def _unread(
    text: str, spans: Sequence[ProtectedSpan], lacking: AbstractSet[str], alphabet: Alphabet, *, lowers: bool
) -> Iterator[int]:
    """Yield the places of characters that are not read, outside of the spans and of words that are read as a whole."""
    at = 0
    for word in _WORD.finditer(text):
        if lacking.isdisjoint(word[0]) and not alphabet.by_words:
            continue
        begin, end = word.span()
        while at < len(spans) and spans[at].end <= begin:
            at += 1
        is_whole = at == len(spans) or spans[at].begin >= end
        if is_whole and end - begin <= LONGEST and alphabet.reads(word[0].lower() if lowers else word[0]):
            continue
        inside, is_known = at, lacking.isdisjoint(word[0])
        if is_known and not (is_whole and end - begin <= LONGEST):
            continue
        for place in range(begin, end):
            while inside < len(spans) and spans[inside].end <= place:
                inside += 1
            is_outside = inside == len(spans) or place < spans[inside].begin
            if is_outside and (text[place] in lacking or (is_known and text[place].isalnum())):
                yield place


def _units(text: str, places: Iterable[int], alphabet: Alphabet) -> Iterator[_Unit]:
    """Yield the characters at these places with their marks, but for those that are read with their marks."""
    last, quoted = 0, _quoted(text)
    for place in places:
        if place < last:
            continue
        begin, end = place, place + 1
        while begin > last and _is_mark(text[begin]) and not text[begin - 1].isspace():
            begin -= 1
        while end < len(text) and _is_mark(text[end]):
            end += 1
        last = end
        unit = text[begin:end]
        if end - begin > 1 and end - begin <= LONGEST and alphabet.reads(to_nfc(unit)):
            continue
        twin = quoted.get(begin)
        if twin is None or not alphabet.reads(twin):
            beside = text[begin - 1 : begin], text[end : end + 1]
            twin = None if alphabet.reads(unit) else alphabet.twin(unit, *beside)
        yield _Unit(begin, end, twin)


def _quoted(text: str) -> dict[int, str]:
    """Return the quotation marks that stand for those around parts of a text, by their places."""
    found = {}
    for quotation in _QUOTED.finditer(text):
        begin, end = quotation.span()
        if marks := _QUOTES.get(quotation[1] + quotation[2]):
            found[begin], found[end - 1] = marks
    return found


def _outside(units: Iterable[_Unit], spans: Sequence[ProtectedSpan]) -> Iterator[_Unit]:
    """Yield the units that are not within a span."""
    at = 0
    for unit in units:
        while at < len(spans) and spans[at].end <= unit.begin:
            at += 1
        if at == len(spans) or unit.begin < spans[at].begin:
            yield unit


def _kept(text: str, units: Sequence[_Unit]) -> Iterator[ProtectedSpan]:
    """Yield what is kept because of characters without a twin; the spans may overlap."""
    words, ends = _Words(text), (len(text) - len(text.lstrip()), len(text.rstrip()) - 1)
    for run in _runs(units):
        lost = [unit for unit in run if unit.twin is None or (unit.begin in ends and text[unit.begin] == _ELLIPSIS)]
        if not lost:
            continue
        if any(text[unit.begin].isalnum() for unit in lost):
            yield _letters(text, (run[0].begin, run[-1].end), words)
        else:
            yield _sign(text, (lost[0].begin, lost[-1].end), words)


def _runs(units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
    """Yield units that touch as one run."""
    run: list[_Unit] = []
    for unit in units:
        if run and run[-1].end != unit.begin:
            yield run
            run = []
        run.append(unit)
    if run:
        yield run


def _letters(text: str, span: Span, words: _Words) -> ProtectedSpan:
    """Return what is kept because of letters, or of figures such as ² and ①: their word, and the number of a unit."""
    begin, end = span
    if _SUPERSCRIPT.issuperset(text[begin:end]):
        letters = text[max(begin - _NOTED, 0) : begin]
        if not letters[-1:].isalnum() or (len(letters) == _NOTED and letters.isalpha()):
            return ProtectedSpan(begin, end, Kind.SIGN)
    begin, end = words.grown(begin, end)
    if end - begin <= _UNIT and all(each.isascii() or not each.isalpha() for each in text[begin:end]):
        before = _LEFT_NUMBER.search(text, max(begin - _REACH, 0), begin)
        begin = before.start() if before else begin
    return ProtectedSpan(begin, end, Kind.UNKNOWN)


def _sign(text: str, span: Span, words: _Words) -> ProtectedSpan:
    """Return what is kept because of signs: the signs alone, or with the numbers or the words that they belong to."""
    begin, end = span
    signs, before, after = text[begin:end], text[begin - 1 : begin], text[end : end + 1]
    is_relation = any(unicodedata.category(each) == "Sm" for each in signs)
    if _SEPARATING.isdisjoint(signs) and not all(map(_is_bracket, signs)):
        left = (_LEFT if is_relation else _LEFT_NUMBER).search(text, max(begin - _REACH, 0), begin)
        right = (_RIGHT if is_relation else _RIGHT_NUMBER).match(text, end, end + _REACH)
        if left or right:
            first, last = left.start() if left else begin, right.end() if right else end
            return ProtectedSpan(*words.grown(first, last), Kind.UNKNOWN)
    is_within = before.isalnum() and after.isalnum() and not is_relation
    if is_within and (_SEPARATING.isdisjoint(signs) or signs in "&\\"):
        return ProtectedSpan(*words.grown(begin, end), Kind.UNKNOWN)
    if (before.isalnum() and _NAMED.issuperset(signs)) or (after.isalnum() and _TAGGED.issuperset(signs)):
        return ProtectedSpan(*words.grown(begin, end), Kind.UNKNOWN)
    return ProtectedSpan(begin, end, Kind.SIGN)


def _is_bracket(character: str) -> bool:
    """Whether a character is a bracket or a quotation mark."""
    return unicodedata.category(character) in ("Ps", "Pe", "Pi", "Pf")


def _is_mark(character: str) -> bool:
    """Whether a character is written on the one before it."""
    return character > "\u02ff" and unicodedata.category(character)[0] == "M"


class _Words:
    """The words of a text, of scripts with blanks between them; the last one on each side is remembered."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: Span = 0, 0

    def grown(self, begin: int, end: int) -> Span:
        """Return a span with the rest of the words at its ends."""
        return self._around(begin - 1, (begin, begin))[0], self._around(end, (end, end))[1]

    def _around(self, place: int, otherwise: Span) -> Span:
        begin, end = self._last
        if begin <= place < end:
            return self._last
        if not 0 <= place < len(self._text) or not _in_word(self._text[place]):
            return otherwise
        begin, end = place, place + 1
        while begin and _in_word(self._text[begin - 1]):
            begin -= 1
        while end < len(self._text) and _in_word(self._text[end]):
            end += 1
        self._last = begin, end
        return self._last


def _in_word(character: str) -> bool:
    return character < _SPACELESS and (character.isalnum() or _is_mark(character))
