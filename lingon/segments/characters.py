"""Characters that a model cannot read: what it reads instead, and what is kept.

A character that the model lacks is read as its twin, if it has one that the model reads. Other letters are kept with
their word. Signs are kept with the number or the word that they belong to, and those that separate are kept alone.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.kept_forms import Kind, ProtectedSpan, merge, without
from lingon.segments.protection import TooManySpans
from lingon.text import is_invisible, normalise, to_nfc

# The characters that a model reads, found out by its tokenizer when a text first has them.

REMEMBERED = 2**14  # strings that are tried, and twins of characters with marks
MOST = 2**18  # characters that are remembered; Unicode has some 150,000
LONGEST = 64  # characters of a string that is tried

LETTER, MARK, SIGN, TWIN_LETTER, TWIN_SIGN = "\x01", "\x02", "\x03", "\x04", "\x05"
"""What stands for a character that is not read, see `Alphabet.mask`; `normalise` removes these from every text.

LETTER: a letter or a figure without a twin, that is in no piece
MARK: a mark, which is written on the character before it
SIGN: any other character that has to be looked at with its neighbours
TWIN_LETTER, TWIN_SIGN: a letter or a figure, or another character, that has the same twin whatever is beside it
"""

_OTHERS = dict.fromkeys(map(ord, (LETTER, MARK, SIGN, TWIN_LETTER, TWIN_SIGN)), " ")


class Alphabet:
    """What a model reads. Nothing is known before the first text. What was found out is remembered."""

    def __init__(self, reads: Callable[[str], bool], pieces: Iterable[str] = (), *, by_words: bool = False) -> None:
        """reads: whether the model reads a normalised text as it is, without bytes and unknown pieces.

        pieces: of its vocabulary
        by_words: whether it may not read a word of which it reads each character, as with pieces that end a word
        """
        self.by_words, self._reads_whole, self._pieces = by_words, reads, pieces
        self._reads = functools.lru_cache(REMEMBERED)(reads)
        self._twin = functools.lru_cache(REMEMBERED)(self._found_twin)
        self._known = {" ", "\n", "\t"}
        self._lacking: dict[str, tuple[str, str | None]] = {}
        self._losing = set[str]()  # characters that the tokenizer may read as something that says less

    def knows(self, text: str) -> bool:
        """Return whether it is certain, at a glance, that the model reads a text."""
        return not self.by_words and self._known.issuperset(text)

    def lacking(self, text: str) -> Mapping[str, str]:
        """Return what stands in a mask for the characters of a text that the model does not read alone."""
        if self._known.issuperset(text):
            return {}
        found = dict[str, str]()
        for each in set(text) - self._known:
            entry = self._lacking.get(each)
            if entry is None:
                if self._is_known(each):
                    self._known.add(each)
                    continue
                if len(self._lacking) >= MOST:
                    self._lacking.clear()
                entry = self._lacking[each] = self._kind(each)
            found[each] = entry[0]
        return found

    def twins(self, characters: Iterable[str]) -> dict[int, str]:
        """Return the twins of those of these characters that have one at any position, as `str.translate` takes
        them.
        """
        entries = ((each, self._lacking.get(each)) for each in characters)
        return {ord(each): entry[1] for each, entry in entries if entry is not None and entry[1] is not None}

    def reads(self, text: str) -> bool:
        """Return whether the model reads a short text, or False for one that is not short."""
        return len(text) <= LONGEST and self._losing.isdisjoint(text) and self._reads(normalise(text))

    def reads_sentence(self, text: str) -> bool:
        """Return whether the model reads a sentence of characters that it reads."""
        return not self.by_words or self._reads_whole(normalise(text))

    def twin(self, unit: str, before: str, after: str) -> str | None:
        """Return the string that the model reads instead of a character with its marks, or None if there is none.

        before, after: the characters beside it. Empty at an end of the text
        """
        return self._twin(unit, _alike(before), _alike(after)) if len(unit) <= LONGEST else None

    @functools.cached_property
    def _in_pieces(self) -> frozenset[str]:
        """The characters of all pieces."""
        return frozenset().union(*self._pieces)

    def _is_known(self, character: str) -> bool:
        """Return whether a character is read as it is, or not at all by any model."""
        if character.isspace() or is_invisible(character):
            return True
        if says_more(character) and character not in self._in_pieces:
            self._losing.add(character)
            return False
        return self._reads_whole(normalise(character))

    def _kind(self, character: str) -> tuple[str, str | None]:
        """Return what stands for a character that is not read, and its twin if its neighbours do not matter."""
        if is_mark(character):
            return MARK, None
        if depends_on_neighbours(character):
            return SIGN, None
        twin = self._found_twin(character, "", "")
        if twin is not None:
            return TWIN_LETTER if character.isalnum() else TWIN_SIGN, twin
        is_letter = character.isalpha() and character not in self._in_pieces and not "\u1100" <= character <= "\u11ff"
        return (LETTER if is_letter else SIGN), None

    def _found_twin(self, unit: str, before: str, after: str) -> str | None:
        for twin in twins_of(unit, before, after):
            written = "".join(each if self.reads(each) else self._plain(each) for each in twin)
            if not twin or (written and self.reads(written)):
                return written
        return None

    def _plain(self, character: str) -> str:
        """Return the first twin of a character of a twin that is read, the character itself if there is none."""
        return next((twin for twin in twins_of(character, "", "") if twin and self.reads(twin)), character)


def mask(text: str, lacking: Mapping[str, str]) -> str:
    """Return a text of the same length with what stands for each character that is not read."""
    return text.translate({**_OTHERS, **{ord(each): kind for each, kind in lacking.items()}})


def is_mark(character: str) -> bool:
    """Return whether a character is written on the one before it."""
    return character > "\u02ff" and unicodedata.category(character)[0] == "M"


def _alike(character: str) -> str:
    """Return a character that has the same twins beside it: a letter, a figure, or none for all others."""
    return "a" if character.isalpha() else "1" if character.isalnum() else ""


# Twins of characters: other ways to write the same, of which a model may know one.
# Most are the compatibility forms of Unicode (NFKC). A form that says less than its character is none: m² is not m2,
# ½ is not 1/2 after another figure, and ① is a mark that comes back as it is.

_PLAIN = {
    **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe58\ufe63", ("-",)),  # hyphens and the minus
    "\u2014": ("\u2013", "-"),
    "\u2015": ("\u2014", "\u2013", "-"),
    **dict.fromkeys("\u2018\u2019\u201b\u02bb\u02bc\u02bd\u02b9\u2032\u2035\u00b4", ("\u2019", "'")),
    "\u201a": ("\u2018", "'"),
    "'": ("\u2019",),
    **dict.fromkeys("\u201c\u201e\u201f\u301d", ("\u201c", '"')),
    **dict.fromkeys("\u201d\u301e\u301f\u2033\u2036\u02ba", ("\u201d", '"')),
    '"': ("\u201d",),
    "\u2044": ("/",),
    "\u2215": ("/",),
    "\u2236": (":",),
    "\u2217": ("*",),
}
"""Twins that Unicode does not name, the best first. The character itself is not read if they are asked for."""

_STRAIGHT = {"\u2032": "'", "\u2033": '"'}  # of feet and inches, minutes and seconds: rather straight than curved
_BY_NEIGHBOURS = frozenset("\u2013`\u00aa\u00ba«»‹›「」『』")  # quotation marks of a pair have others
_SAYS_MORE = ("<super>", "<circle>", "<fraction>")  # kinds of compatibility that lose what the character says
_EXPONENTS = "\u2071\u207f"  # letters that Unicode calls modifiers
_PREPENDED = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2\U000110bd\U000110cd")  # visible formats


def twins_of(unit: str, before: str, after: str) -> Iterator[str]:
    """Yield the twins of a character with its marks, the best first, or "" for what is not seen.

    before, after: the characters beside it, or figures after a blank. Empty at an end of the text
    """
    seen = "".join(each for each in unit if not is_unseen(each))
    if seen != unit:
        yield seen
    if not seen:
        return
    if seen == "\u2013":  # within a range, or between parts of a sentence
        yield from ("-",) if before.isalnum() and after.isalnum() else ("\u2014", "-")
    if seen == "`" and before.isalpha() and after.isalpha():
        yield from ("'", "\u2019")
    if seen in _STRAIGHT:
        yield _STRAIGHT[seen]
    yield from _PLAIN.get(seen, ())
    if all(_says_the_same(each, before) for each in seen):
        compatible = unicodedata.normalize("NFKC", seen)
        if compatible != to_nfc(seen) and not any(map(str.isspace, compatible)):
            yield compatible
    if seen.isupper():
        yield seen.lower()


def depends_on_neighbours(character: str) -> bool:
    """Return whether a character has other twins beside other characters."""
    return character in _BY_NEIGHBOURS


def is_unseen(character: str) -> bool:
    """Return whether a character only tells how its neighbours are drawn: joiners, marks of direction, variation
    selectors.
    """
    if character < "\u034f":
        return False
    if unicodedata.category(character) == "Cf":
        return character not in _PREPENDED
    return character == "\u034f" or "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def says_more(character: str) -> bool:
    """Return whether a character has a compatibility form that says less, which a tokenizer may read instead."""
    return unicodedata.decomposition(character).startswith("<") and not _says_the_same(character, "a")


def _says_the_same(character: str, before: str) -> bool:
    """Return whether the compatibility form of a character loses nothing."""
    kind, *parts = unicodedata.decomposition(character).split() or [""]
    if kind == "<super>" and unicodedata.category(character) == "Lm":
        return character not in _EXPONENTS
    if kind == "<super>" and character in "\u00aa\u00ba":  # as in Nº, but not in 1º
        return before.isalpha()
    if character == "\u2116" or (kind == "<compat>" and unicodedata.category(character) == "No"):
        return False  # № is not No, which is a word besides; ⒈ is a mark as ① is
    if parts[:1] == ["0028"] and len(parts) > 1:  # and so are ⑴ and ⒜
        return False
    if kind in _SAYS_MORE:
        return False
    return not any(unicodedata.decomposition(chr(int(each, 16))).startswith("<super>") for each in parts)


# A text as a model reads it, with the positions of its characters in the text as it was sent.


class Replacement(NamedTuple):
    """A string that another one stands for.

    begin, end: of what the model reads
    sent_begin, sent_end: of what was sent
    """

    begin: int
    end: int
    sent_begin: int
    sent_end: int

    @property
    def is_one_by_one(self) -> bool:
        """Whether each character stands for one."""
        return self.end - self.begin == self.sent_end - self.sent_begin

    def sent_from(self, begin: int) -> int:
        """Return where in what was sent a span begins that begins here or before the next change."""
        if begin < self.end and not self.is_one_by_one:
            return self.sent_begin
        return begin + self.sent_end - self.end

    def sent_to(self, end: int) -> int:
        """Return where in what was sent a span ends that ends here or before the next change."""
        if end < self.end and not self.is_one_by_one:
            return self.sent_end
        return end + self.sent_end - self.end


@dataclass(frozen=True, slots=True)
class Reading:
    """A text with twins in the positions of characters.

    spans: what is kept of it, in order and without overlap. The strings are those that were sent
    changes: in order
    """

    text: str
    spans: tuple[ProtectedSpan, ...] = ()
    changes: tuple[Replacement, ...] = ()

    @classmethod
    def of(cls, text: str, twins: Iterable[tuple[int, int, str]], spans: Sequence[ProtectedSpan] = ()) -> Reading:
        """Return a text with twins, in order: begin, end and what is read there. None is within a span.

        spans: what is kept of the text, in order
        """
        parts, changes, at, length = list[str](), list[Replacement](), 0, 0
        for begin, end, twin in twins:
            parts += [text[at:begin], twin]
            length += begin - at
            changes.append(Replacement(length, length + len(twin), begin, end))
            at, length = end, length + len(twin)
        moved, position, shift = list[ProtectedSpan](), 0, 0
        for span in spans:
            while position < len(changes) and changes[position].sent_end <= span.begin:
                shift = changes[position].end - changes[position].sent_end
                position += 1
            moved.append(span._replace(begin=span.begin + shift, end=span.end + shift))
        return cls("".join([*parts, text[at:]]), tuple(moved), tuple(changes))

    def sent(self, begin: int, end: int) -> Span:
        """Return where a span of the text is in what was sent. A part of a twin stands for the whole character."""
        position = bisect_right(self.changes, begin, key=lambda change: change.begin) - 1
        first = self.changes[position].sent_from(begin) if position >= 0 else begin
        position = bisect_left(self.changes, end, key=lambda change: change.begin) - 1
        last = self.changes[position].sent_to(end) if position >= 0 else end
        return first, max(first, last)

    def part(self, begin: int, end: int) -> Reading:
        """Return a part of the text, without spans, as if only this was sent."""
        first = self.sent(begin, end)[0]
        inside = (change for change in self.changes if begin <= change.begin and change.end <= end)
        changes = (Replacement(each[0] - begin, each[1] - begin, each[2] - first, each[3] - first) for each in inside)
        return Reading(self.text[begin:end], (), tuple(changes))


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


class _UnreadCharacters(NamedTuple):
    """A character that is not read, with its marks, or a run of them; twin: what is read instead."""

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
    """Return a text as the model reads it, or None if that is the text as it is, with these spans.

    spans: what is kept of the text in any case, in order and without overlap. The model does not see it
    keeps: whether what the model cannot read is kept
    lowers: whether the model gets the text in lower case
    most: strings that are kept because the model cannot read them. Raises TooManySpans if there are more
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
    """Return whether a text has letters, and no letter of it is read, nor a twin."""
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
) -> Iterator[_UnreadCharacters]:
    """Yield what is not read, but for what is within a span, in a word read as a whole, or read with its marks.

    masked: see `alphabet.mask`; known: see `Alphabet.twins`
    """
    last, quoted = 0, _quoted(text)
    for begin, end in _unread(text, masked, spans, alphabet, lowers=lowers):
        first = masked[begin]
        if first == LETTER:
            yield _UnreadCharacters(begin, end, None)
            last = end
            continue
        if (
            first in (TWIN_LETTER, TWIN_SIGN)
            and masked[end : end + 1] != MARK
            and not (end < len(text) and is_mark(text[end]))
        ):
            yield _UnreadCharacters(begin, end, text[begin:end].translate(known))
            last = end
            continue
        for position in range(begin, end):
            if position < last:
                continue
            unit = _with_marks(text, position, last)
            last = unit[1]
            if (found := _unit(text, unit, quoted, alphabet)) is not None:
                yield found


def _with_marks(text: str, position: int, least: int) -> Span:
    """Return the span of a character and the marks on it; of a mark, with the character that it is on.

    least: where the span may begin
    """
    begin, end = position, position + 1
    while begin > least and is_mark(text[begin]) and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and is_mark(text[end]):
        end += 1
    return begin, end


def _unit(text: str, span: Span, quoted: Mapping[int, str], alphabet: Alphabet) -> _UnreadCharacters | None:
    """Return a character with its marks, or None if it is read with them."""
    begin, end = span
    unit = text[begin:end]
    if end - begin > 1 and alphabet.reads(unit):
        return None
    if (mark := quoted.get(begin)) is not None:
        return _UnreadCharacters(begin, end, mark if alphabet.reads(mark) else alphabet.twin(mark, "", ""))
    if alphabet.by_words and alphabet.reads(unit):
        return _UnreadCharacters(begin, end, None)
    before, after = text[max(begin - 2, 0) : begin], text[end : end + 2]
    return _UnreadCharacters(begin, end, alphabet.twin(unit, _beside(before[::-1]), _beside(after)))


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
    for position in range(first, len(spans)):
        if spans[position].begin >= end:
            break
        if begin < spans[position].begin:
            yield begin, spans[position].begin
        begin = max(begin, spans[position].end)
    if begin < end:
        yield begin, end


def _quoted(text: str) -> dict[int, str]:
    """Return the quotation marks that stand for those around parts of a text, by their positions."""
    found = {}
    for quotation in _QUOTED.finditer(text):
        begin, end = quotation.span()
        if marks := _QUOTES.get(quotation[1] + quotation[2]):
            found[begin], found[end - 1] = marks
    return found


def _outside(
    text: str, units: Iterable[_UnreadCharacters], spans: Sequence[ProtectedSpan], known: Mapping[int, str]
) -> Iterator[tuple[int, int, str]]:
    """Yield what is read instead of units with a twin outside of the spans. A run may be partly within one."""
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


def _kept(text: str, units: Sequence[_UnreadCharacters]) -> Iterator[ProtectedSpan]:
    """Yield what is kept because of characters without a twin. The spans may overlap."""
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


def _runs(units: Sequence[_UnreadCharacters]) -> Iterator[list[_UnreadCharacters]]:
    """Yield units that touch as one run."""
    run: list[_UnreadCharacters] = []
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
    return unicodedata.category(character) in ("Ps", "Pe", "Pi", "Pf")


class _Words:
    """The words of a text, of scripts with blanks between them. The last one on each side is remembered."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: Span = 0, 0

    def grown(self, begin: int, end: int) -> Span:
        """Return a span with the rest of the words at its ends, and with the marks on its last character."""
        begin, end = self._around(begin - 1, (begin, begin))[0], self._around(end, (end, end))[1]
        while end < len(self._text) and is_mark(self._text[end]):
            end += 1
        return begin, end

    def _around(self, position: int, otherwise: Span) -> Span:
        begin, end = self._last
        if begin <= position < end:
            return self._last
        if not 0 <= position < len(self._text) or not _in_word(self._text[position]):
            return otherwise
        begin, end = position, position + 1
        while begin and _in_word(self._text[begin - 1]):
            begin -= 1
        while end < len(self._text) and _in_word(self._text[end]):
            end += 1
        self._last = begin, end
        return self._last


def _in_word(character: str) -> bool:
    return character < _SPACELESS and (character.isalnum() or is_mark(character))
