"""Finds what a model cannot read of a text: what it reads in the place of it, and what it does not get to see.

A character that the model lacks is read as its twin, if it has one that the model reads. Other letters are kept with
their word; signs are kept with the number or the word that they belong to, and those that separate are kept alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.characters.alphabet import (
    LETTER,
    LONGEST,
    MARK,
    SIGN,
    TWIN_LETTER,
    TWIN_SIGN,
    Alphabet,
    is_mark,
    mask,
)
from lingon.segments.characters.reading import Reading
from lingon.segments.protection.find import TooManySpans
from lingon.segments.protection.spans import Kind, ProtectedSpan, merge, without

_WORD = re.compile(r"\S++")
_MASK = re.compile(f"[{LETTER}-{TWIN_SIGN}]")
_MASKED_WORD = re.compile(rf"(?<!\S)[^\s{LETTER}-{TWIN_SIGN}]*+[{LETTER}-{TWIN_SIGN}]\S*+")
_RUN = re.compile(f"{LETTER}[{LETTER}{MARK}]*+|{TWIN_LETTER}++|{TWIN_SIGN}++|[{MARK}{SIGN}]++")
_LOOKED_AT = re.compile(rf"[^\W\d_]|[{SIGN}-{TWIN_SIGN}]")
_LETTERS = re.compile(r"[^\W_]++")
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
_PRIMES = "′″"  # of feet, inches, minutes and seconds: of 6' a model often makes another number
_NOTED = 4  # letters of a word after which a superscript figure is the mark of a note and no exponent
_UNIT = 4  # letters and signs of a unit of measurement, at most
_QUOTED = re.compile(r"([«‹「『])[^«»‹›「」『』]{1,300}+([»›」』])")
_QUOTES = {"«»": ("“", "”"), "‹›": ("‘", "’"), "「」": ("“", "”"), "『』": ("“", "”")}
_OWN = frozenset({Kind.UNKNOWN, Kind.BORDER})
_SPACELESS = "\u0e00"  # scripts from here on have no blanks between words: Thai, Chinese, Japanese


class _Unit(NamedTuple):
    """A character that is not read, with its marks, or a run of them; twin: what is read in its place."""

    begin: int
    end: int
    twin: str | None


def read_characters(
    text: str,
    spans: Sequence[ProtectedSpan],
    alphabet: Alphabet,
    *,
    keeps: bool,
    lowers: bool = False,
    most: int | None = None,
) -> Reading | None:
    """Return a text as the model reads it; None if that is the text as it is, with these spans.

    spans: what is kept of the text in any case, in order and without overlap; the model does not see it
    keeps: whether what the model cannot read is kept
    lowers: whether the model gets the text in lower case
    most: strings that are kept because the model cannot read them; raises TooManySpans if there are more
    Takes time linear in the text.
    """
    lacking = alphabet.lacking(text)
    if lowers:
        lacking = {each: kind for each, kind in lacking.items() if not alphabet.reads(each.lower())}
    if not lacking and (not keeps or alphabet.reads_sentence(text)):
        return None
    masked = mask(text, lacking)
    if keeps and not spans and _is_foreign(masked):
        return Reading(text, (_whole(text),))
    arrows = [_arrow(text, span, lacking) for span in spans] if keeps else spans
    known = alphabet.twins(lacking)
    units = list(_units(text, masked, spans, known, alphabet, lowers=lowers))
    own = list(islice(_kept(text, units), most and most + 1)) if keeps else []
    if most is not None and len(own) > most:
        raise TooManySpans
    every = _joined(merge([*arrows, *own])) if own else arrows
    if own and not any(map(str.isalpha, without(text, every))):
        every = [_whole(text)]
    twins = list(_outside(text, units, every, known))
    if not own and not twins and arrows == list(spans):
        return None
    return Reading.of(text, twins, every)


def _joined(spans: Iterable[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return spans of which those that touch are one, but for tags, with the kind of the first one."""
    found = list[ProtectedSpan]()
    for span in spans:
        touches = found and found[-1].end == span.begin and Kind.TAG not in (found[-1].kind, span.kind)
        if touches and not {found[-1].kind, span.kind}.isdisjoint(_OWN):
            found[-1] = found[-1]._replace(end=span.end)
        else:
            found.append(span)
    return found


def _is_foreign(masked: str) -> bool:
    """Whether a text has letters, and no letter of it is read, nor a twin."""
    return LETTER in masked and _LOOKED_AT.search(masked) is None


def _arrow(text: str, span: ProtectedSpan, lacking: Mapping[str, str]) -> ProtectedSpan:
    """Return a span of an emoji as one of a sign if it separates what is beside it, as arrows do."""
    begin, end, kind = span
    found = set(text[begin:end]) if kind is Kind.EMOJI else set[str]()
    return span._replace(kind=Kind.BORDER) if found <= lacking.keys() and found & _SEPARATING else span


def _whole(text: str) -> ProtectedSpan:
    """Return a text in which the model could read no word, without the blanks around it."""
    begin = next_visible(text, 0, len(text))
    return ProtectedSpan(begin, trimmed_end(text, begin, len(text)), Kind.UNKNOWN)


def _units(
    text: str,
    masked: str,
    spans: Sequence[ProtectedSpan],
    known: Mapping[int, str],
    alphabet: Alphabet,
    *,
    lowers: bool,
) -> Iterator[_Unit]:
    """Yield what is not read, but for what is within a span, in a word read as a whole, or read with its marks.

    masked: see `alphabet.mask`; known: see `Alphabet.twins`
    """
    last, quoted = 0, _quoted(text)
    for begin, end in _unread(text, masked, spans, alphabet, lowers=lowers):
        first = masked[begin]
        if first == LETTER:
            yield _Unit(begin, end, None)
            last = end
            continue
        if (
            first in (TWIN_LETTER, TWIN_SIGN)
            and masked[end : end + 1] != MARK
            and not (end < len(text) and is_mark(text[end]))
        ):
            yield _Unit(begin, end, text[begin:end].translate(known))
            last = end
            continue
        for place in range(begin, end):
            if place < last:
                continue
            unit = _with_marks(text, place, last)
            last = unit[1]
            if (found := _unit(text, unit, quoted, alphabet)) is not None:
                yield found


def _with_marks(text: str, place: int, least: int) -> Span:
    """Return the span of a character and the marks on it; of a mark, with the character that it is on.

    least: where the span may begin
    """
    begin, end = place, place + 1
    while begin > least and is_mark(text[begin]) and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and is_mark(text[end]):
        end += 1
    return begin, end


def _unit(text: str, span: Span, quoted: Mapping[int, str], alphabet: Alphabet) -> _Unit | None:
    """Return a character with its marks; None if it is read with them."""
    begin, end = span
    unit = text[begin:end]
    if end - begin > 1 and alphabet.reads(unit):
        return None
    if (mark := quoted.get(begin)) is not None:
        return _Unit(begin, end, mark if alphabet.reads(mark) else alphabet.twin(mark, "", ""))
    if alphabet.by_words and alphabet.reads(unit):
        return _Unit(begin, end, None)
    before, after = text[max(begin - 2, 0) : begin], text[end : end + 2]
    return _Unit(begin, end, alphabet.twin(unit, _beside(before[::-1]), _beside(after)))


def _beside(characters: str) -> str:
    """Return the first of the characters beside one, or the figure after a blank."""
    return characters[1:] if characters[:1] == " " and characters[1:].isdecimal() else characters[:1]


def _unread(
    text: str, masked: str, spans: Sequence[ProtectedSpan], alphabet: Alphabet, *, lowers: bool
) -> Iterator[Span]:
    """Yield runs of characters that are not read, outside of the spans and of words that are read as a whole."""
    at = 0
    for word in (_WORD if alphabet.by_words else _MASKED_WORD).finditer(masked):
        begin, end = word.span()
        while at < len(spans) and spans[at].end <= begin:
            at += 1
        is_apart, is_short = at == len(spans) or spans[at].begin >= end, end - begin <= LONGEST
        is_read_alone = _MASK.search(word[0]) is None
        if is_apart and is_short and LETTER not in word[0]:
            if alphabet.reads(text[begin:end].lower() if lowers else text[begin:end]):
                continue
            if is_read_alone:
                yield from (found.span() for found in _LETTERS.finditer(text, begin, end))
        if is_read_alone:
            continue
        inside = at
        for run in _RUN.finditer(masked, begin, end):
            while inside < len(spans) and spans[inside].end <= run.start():
                inside += 1
            if inside == len(spans) or run.end() <= spans[inside].begin:
                yield run.span()
            else:
                yield from _around(run.span(), spans, inside)


def _around(span: Span, spans: Sequence[ProtectedSpan], first: int) -> Iterator[Span]:
    """Yield what is outside of the spans from the first of these on."""
    begin, end = span
    for place in range(first, len(spans)):
        if spans[place].begin >= end:
            break
        if begin < spans[place].begin:
            yield begin, spans[place].begin
        begin = max(begin, spans[place].end)
    if begin < end:
        yield begin, end


def _quoted(text: str) -> dict[int, str]:
    """Return the quotation marks that stand for those around parts of a text, by their places."""
    found = {}
    for quotation in _QUOTED.finditer(text):
        begin, end = quotation.span()
        if marks := _QUOTES.get(quotation[1] + quotation[2]):
            found[begin], found[end - 1] = marks
    return found


def _outside(
    text: str, units: Iterable[_Unit], spans: Sequence[ProtectedSpan], known: Mapping[int, str]
) -> Iterator[tuple[int, int, str]]:
    """Yield what is read in the place of units with a twin outside of the spans; a run may be partly within one."""
    at = 0
    for begin, end, twin in units:
        while at < len(spans) and spans[at].end <= begin:
            at += 1
        if twin is None:
            continue
        if at == len(spans) or end <= spans[at].begin:
            yield begin, end, twin
            continue
        for first, last in _around((begin, end), spans, at):
            yield first, last, text[first:last].translate(known)


def _kept(text: str, units: Sequence[_Unit]) -> Iterator[ProtectedSpan]:
    """Yield what is kept because of characters without a twin; the spans may overlap."""
    words, first, last = _Words(text), len(text) - len(text.lstrip()), len(text.rstrip())
    for run in _runs(units):
        is_at_end = run[0].begin == first or run[-1].end == last
        is_measure = text[run[0].begin - 1 : run[0].begin].isdecimal()
        better_kept = _ELLIPSIS * is_at_end + _PRIMES * is_measure
        lost = [unit for unit in run if unit.twin is None or text[unit.begin] in better_kept]
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
            return ProtectedSpan(begin, end, Kind.BORDER)
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
    return ProtectedSpan(begin, end, Kind.BORDER)


def _is_bracket(character: str) -> bool:
    """Whether a character is a bracket or a quotation mark."""
    return unicodedata.category(character) in ("Ps", "Pe", "Pi", "Pf")


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
    return character < _SPACELESS and (character.isalnum() or is_mark(character))
