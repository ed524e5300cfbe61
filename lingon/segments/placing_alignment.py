"""The atoms of a source text and its translation, segment by segment, and which belong together."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple, TypeVar

Span = tuple[int, int]  # code points; the end is exclusive
Weights = Sequence[Sequence[float]]


class Inline(NamedTuple):
    """An element over a part of the source text, or a point without text.

    begin, end: code points; equal for a point
    parent: the position of the element that it is in, in a list in which that one is earlier, or -1 without
    """

    begin: int
    end: int
    parent: int = -1


class KeptCopy(NamedTuple):
    """A string of the source that its translation has as well.

    source, target: where it is in both texts. One of them is empty if it is known in the other text only
    whole: the spans of the source in it that no tag may cut, such as a placeholder
    divides: whether what is before and after it was translated apart
    """

    source: Span
    target: Span
    whole: Sequence[Span] = ()
    divides: bool = False

    def moved(self, source: int, target: int) -> KeptCopy:
        """Return the same with its spans moved by so many code points."""
        whole = [(begin + source, end + source) for begin, end in self.whole]
        return KeptCopy(_moved(self.source, source), _moved(self.target, target), whole, self.divides)


class Aligned(NamedTuple):
    """A segment of the source and its translation.

    weights: (target words, source words), as `str.split` separates them: how much of a source word is in a target word,
        or None if it is not known, then words are aligned in order
    kept: what both have, in order and without overlap in the source, and without overlap in the translation
    """

    source: Span
    target: Span
    weights: Weights | None = None
    kept: Sequence[KeptCopy] = ()


class Insertion(NamedTuple):
    """A tag that comes before a position of the target text.

    inline: which; closing: whether it is the end tag. That of a point comes after its start
    """

    place: int
    inline: int
    closing: bool = False


def boundaries(inlines: Iterable[Inline]) -> list[int]:
    """Return the positions at which an inline begins or ends, in order."""
    return sorted({position for begin, end, _ in inlines for position in (begin, end)})


def needs_weights(segments: Iterable[Span], inlines: Sequence[Inline]) -> list[bool]:
    """Return for each segment whether an inline begins or ends within it, so that its position needs an alignment."""
    positions, at, needed = boundaries(inlines), 0, []
    for begin, end in segments:
        while at < len(positions) and positions[at] <= begin:
            at += 1
        needed.append(at < len(positions) and positions[at] < end)
    return needed


def around(inlines: Sequence[Inline], whole: Sequence[Span]) -> Sequence[Inline]:
    """Return inlines that begin and end outside of spans that no tag may cut.

    An element that begins or ends within such a span is around all of it. Where two elements beside each other would
    be, the first one is, and the other one is empty if nothing is left for it.

    inlines: a parent before what is in it, in the order of the source; whole: in order and without overlap
    """
    if not whole:
        return inlines
    begins = [begin for begin, _ in whole]
    found: list[Inline] = []
    reached: dict[int, int] = {}  # by parent: where the last one in it ends
    for begin, end, parent in inlines:
        cut_first, cut_last = _cut_at(begin, begins, whole), _cut_at(end, begins, whole)
        first = begin if cut_first is None else cut_first[0]
        last = first if begin == end else end if cut_last is None else cut_last[1]
        low, high = reached.get(parent, first), max(reached.get(parent, last), last)
        if parent >= 0:
            low, high = max(low, found[parent].begin), found[parent].end
        first = min(max(first, low), high)
        found.append(Inline(first, min(max(last, first), high), parent))
        reached[parent] = found[-1].end
    return found


def _cut_at(position: int, begins: Sequence[int], whole: Sequence[Span]) -> Span | None:
    """Return the span that a tag at a position would cut; begins: of the spans."""
    number = bisect_left(begins, position) - 1
    return whole[number] if number >= 0 and position < whole[number][1] else None


def _moved(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by


# The parts of words that are aligned: what is kept, what is between punctuation, the punctuation, and parts of these.
# Tags cut a part that is not punctuation where they are within it.

QUOTES = "\"'„“”‚‘’‛‟«»‹›「」『』"
BRACKETS = "()[]{}（）［］｛｝【】〈〉《》"
STOPS = ".,;:!?…¿¡。、，；：！？؟،؛।"

_WORD = re.compile(r"\S+")
_NAMED = rf"{re.escape(QUOTES)}{re.escape(BRACKETS)}"
_ATOM = re.compile(
    rf"\ufffc|\w++(?:(?:[^\w\s\ufffc{_NAMED}]++|['’])\w++)*+"  # an apostrophe between letters is no quotation mark
    rf"|[{_NAMED}]|([{re.escape(STOPS)}])\1*+|[^\w\s\ufffc{_NAMED}{re.escape(STOPS)}]++"
)
_LETTER = re.compile(r"\w")
_MARK = re.compile(r"[^\w\s\ufffc]+")


class Mark(Enum):
    """What an atom of punctuation is; NONE for another atom."""

    NONE = auto()
    QUOTE = auto()
    BRACKET = auto()
    STOP = auto()
    OTHER = auto()


class SegmentWord(NamedTuple):
    """A word of a segment; spans in the text.

    before, cores, after: the punctuation at its begin, what has letters or figures or is kept, and the rest
    joined: the words of `str.split` in it; more than one if something is kept that has blanks
    """

    before: list[Span]
    cores: list[Span]
    after: list[Span]
    joined: int = 1

    @property
    def atoms(self) -> list[Span]:
        """All parts of the word."""
        return [*self.before, *self.cores, *self.after]


def words_of(text: str, segment: Span, kept: Sequence[Span] = ()) -> list[SegmentWord]:
    """Return the words of a segment, which are those of `str.split`. What is kept is within one word, and one atom.

    kept: not empty, in order, without overlap and within the segment
    """
    if not kept:
        return [_word(text, found.span(), (), 1) for found in _WORD.finditer(text, *segment)]
    return [_word(text, *each) for each in _around_kept(text, segment, kept)]


def cut(atom: Span, positions: Sequence[int]) -> list[Span]:
    """Return the parts of an atom between positions, which are in order."""
    begin, end = atom
    first, last = bisect_right(positions, begin), bisect_left(positions, end)
    return list(pairwise([begin, *positions[first:last], end])) if first < last else [atom]


def is_within(positions: Sequence[int], segment: Span) -> bool:
    """Return whether one of the positions is within a segment."""
    return bisect_right(positions, segment[0]) < bisect_left(positions, segment[1])


def mark_of(text: str, atom: Span) -> Mark:
    """Return what an atom that is not kept is."""
    if text[atom[0]].isalnum() or _MARK.fullmatch(text, *atom) is None:
        return Mark.NONE
    first = text[atom[0]]
    if first in QUOTES:
        return Mark.QUOTE
    if first in BRACKETS:
        return Mark.BRACKET
    return Mark.STOP if first in STOPS else Mark.OTHER


def _around_kept(text: str, segment: Span, kept: Sequence[Span]) -> Iterator[tuple[Span, Sequence[Span], int]]:
    """Yield the words of a segment, of which one that is kept may join several, what is kept in each, and their number.

    kept: see `words_of`
    """
    at, begin, last, own, count = 0, -1, -1, list[Span](), 0
    for found in _WORD.finditer(text, *segment):
        first, end = found.span()
        if not own or own[-1][1] <= first:
            if count:
                yield (begin, last), own, count
            begin, own, count = first, [], 0
        while at < len(kept) and kept[at][0] < end:
            own.append(kept[at])
            at += 1
        last, count = end, count + 1
    if count:
        yield (begin, last), own, count


def _word(text: str, span: Span, kept: Sequence[Span], count: int) -> SegmentWord:
    word, at = SegmentWord([], [], [], count), span[0]
    for own in (*kept, (span[1], span[1])):
        for found in _ATOM.finditer(text, at, own[0]):
            if _LETTER.match(text, found.start()):
                _add_core(word, found.span())
            else:
                (word.after if word.cores else word.before).append(found.span())
        if own[0] < own[1]:
            _add_core(word, own)
        at = own[1]
    return word


def _add_core(word: SegmentWord, atom: Span) -> None:
    word.cores.extend((*word.after, atom))
    word.after.clear()


# What the words of a source segment claim of its translation: each the target word that has the most of it.
# A kept string claims its copy, and nothing else claims that.

Value = TypeVar("Value")

MARK_WEIGHT = 0.25  # of a punctuation mark, relative to the word that it is at
MOST_CLAIMED = (
    4  # atoms at each end of a target word: each part of a word claims them, and tags may cut it in thousands
)
ANY = -1  # in place of a target word
KNOWN = 1.0  # weight of a claim that is known and not estimated
KEPT = 1_000_000.0  # weight of a claim that comes before all others together


class Claim(NamedTuple):
    """A target atom that a source atom claims; weight: 0 to 1, or KEPT."""

    target: int
    weight: float


class ShareColumn(NamedTuple):
    """What each word of a target segment has of a source word, and the atoms of these words that are not kept."""

    shares: Sequence[float]
    atoms: Sequence[range]


class Claimed(NamedTuple):
    """A source atom, what it claims, and the column of its word, or None if the weights are not known.

    kept: whether it is kept
    """

    atom: Span
    claims: list[Claim]
    column: ShareColumn | None
    kept: bool = False


class _AtomsOfWord(NamedTuple):
    """The target atoms of a word, by their numbers, without those that are kept.

    all: the whole word, empty if a part of it is kept
    """

    before: range
    cores: Sequence[int]
    after: range
    all: range


class WordClaims:
    """The claims in a segment that was translated.

    atoms: of the target. A copy of a source word that tags cut, such as H<sub>2</sub>O, is cut alike
    kept: the numbers of those of them that are kept
    """

    def __init__(self, source: str, target: str, segment: Aligned, positions: Sequence[int]) -> None:
        """positions: of the tags in the source, in order."""
        kept_sources = [each.source for each in segment.kept if each.source[0] < each.source[1]]
        kept_targets = sorted(each.target for each in segment.kept if each.target[0] < each.target[1])
        self._sources = words_of(source, segment.source, kept_sources)
        self._targets = words_of(target, segment.target, kept_targets)
        self._positions = positions
        self._kept_sources, self._kept_targets = frozenset(kept_sources), frozenset(kept_targets)
        self._columns: Sequence[Sequence[float]] | None = None
        if segment.weights is not None and self._targets:
            self._columns = list(zip(*_joined(segment.weights, self._sources, self._targets), strict=True))
        self._copies = {each.source: each.target for each in segment.kept if each.source[0] < each.source[1]}
        self._free = [number for number, word in enumerate(self._targets) if self._has_free(word)]
        self._with_cores = [number for number in self._free if self._targets[number].cores] or self._free
        self._bests = self._find_bests()
        self._find_copies(source, target)
        self._cut_as = {copy: atom for atom, copy in self._copies.items() if copy[1] - copy[0] == atom[1] - atom[0]}
        self.atoms: list[Span] = []
        self.kept: list[int] = []
        self._numbers: dict[Span, range] = {}  # of the parts of each atom
        self._parts = list(map(self._add, self._targets))

    def claimed(self, first: int) -> Iterator[Claimed]:
        """Yield the source atoms, cut at the tags; first: the number of the first target atom."""
        ranges = [
            range(0) if self._has_kept(word) else _shifted(parts.all, first)
            for word, parts in zip(self._targets, self._parts, strict=True)
        ]
        for number, word in enumerate(self._sources):
            column = ShareColumn(self._columns[number], ranges) if self._columns is not None else None
            for atoms, (wanted, weight) in zip(word[:3], self._wanted(number, word), strict=True):
                claims = [Claim(target + first, own) for target, own in _claims(wanted, weight)]
                for atom in atoms:
                    parts, kept = cut(atom, self._positions), atom in self._kept_sources
                    each = self._claims_of_copy(atom, len(parts), first)
                    each = each or [[] if kept else claims] * len(parts)
                    for part, own in zip(parts, each, strict=True):
                        yield Claimed(part, own, column, kept)

    def _add(self, word: SegmentWord) -> _AtomsOfWord:
        """Add the atoms of a target word."""
        begin, free = len(self.atoms), list[int]()
        for atom in word.atoms:
            first, like = len(self.atoms), self._cut_as.get(atom, atom)
            shift = atom[0] - like[0]
            parts = cut(like, self._positions) if atom in self._cut_as else [atom]
            self.atoms.extend((start + shift, end + shift) for start, end in parts)
            self._numbers[atom] = range(first, len(self.atoms))
            if atom in self._kept_targets:
                self.kept.extend(self._numbers[atom])
        before, cores, after = map(self._range, word[:3])
        if not self._has_kept(word):
            return _AtomsOfWord(before, cores, after, range(begin, len(self.atoms)))
        for atom in word.cores:
            free += () if atom in self._kept_targets else self._numbers[atom]
        return _AtomsOfWord(before, free, after, range(0))

    def _range(self, atoms: Sequence[Span]) -> range:
        """Return the numbers of the parts of atoms that follow one another."""
        return range(self._numbers[atoms[0]].start, self._numbers[atoms[-1]].stop) if atoms else range(0)

    def _claims_of_copy(self, atom: Span, parts: int, first: int) -> list[list[Claim]]:
        """Return what each part of a source atom claims of its copy, empty if it has none."""
        if (copy := self._copies.get(atom)) is None:
            return []
        known = KEPT if atom in self._kept_sources else KNOWN
        claims = [Claim(target + first, known) for target in self._numbers.get(copy, ())]
        return [[each] for each in claims] if len(claims) == parts else [claims] * parts

    def _find_bests(self) -> list[tuple[int, float]]:
        """Return for each source word the target word that has the most of it, and how much, or -1 without target
        words.

        That of a word with a kept string is the one with its copy.
        """
        holder = {atom: number for number, word in enumerate(self._targets) for atom in word.cores}
        bests = [self._best_free(number) for number in range(len(self._sources))]
        for number, word in enumerate(self._sources if self._kept_sources else ()):
            copies = (holder.get(self._copies.get(atom, atom)) for atom in word.cores if atom in self._kept_sources)
            if (found := next((copy for copy in copies if copy is not None), None)) is not None:
                bests[number] = found, KNOWN
        return bests

    def _best_free(self, source: int) -> tuple[int, float]:
        """Return the target word, of those with an atom that is not kept, that has the most of a source word.

        A word that is not punctuation alone has one of its kind, if there is any.
        """
        if not self._free:
            return -1, 1.0
        if self._columns is None:
            return self._free[source * len(self._free) // len(self._sources)], 1.0
        shares = self._columns[source]
        best = max(self._with_cores if self._sources[source].cores else self._free, key=shares.__getitem__)
        return best, shares[best]

    def _wanted(self, source: int, word: SegmentWord) -> list[tuple[Sequence[int], float]]:
        """Return which target atoms, and how much, the marks before a source word claim, its cores, those after it."""
        best, share = self._bests[source]
        if best < 0:
            return [((), 0.0)] * 3
        target, marks = self._parts[best], share * MARK_WEIGHT
        if not word.cores:
            return [(target.before or target.after or target.cores, marks), ((), 0.0), ((), 0.0)]
        after = target.after
        if not after and word is self._sources[-1]:
            last = self._parts[-1]
            after = last.after if self._targets[-1].cores else last.before
        if not target.cores and self._kept_sources and (free := self._best_free(source))[0] >= 0:
            best, share = free
            target = self._parts[best]
        return [
            (self._parts[self._bests[source][0]].before, marks),
            (target.cores or target.all, share),
            (after, marks),
        ]

    def _has_kept(self, word: SegmentWord) -> bool:
        return bool(self._kept_targets) and not self._kept_targets.isdisjoint(word.cores)

    def _has_free(self, word: SegmentWord) -> bool:
        """Return whether a target word has more than what is kept and its punctuation, or is punctuation alone."""
        return not self._kept_targets or not word.cores or not self._kept_targets.issuperset(word.cores)

    def _find_copies(self, source: str, target: str) -> None:
        """Find the target atoms that are spelled like source atoms that tags cut, or in the same word as others."""
        among_others = [best >= 0 and len(self._targets[best].cores) > 1 for best, _ in self._bests]
        sought = [
            (number, atom, is_cut)
            for number, word in enumerate(self._sources)
            for atom in word.cores
            if ((is_cut := is_within(self._positions, atom)) or among_others[number]) and atom not in self._kept_sources
        ]
        spelled = self._by_spelling(target) if sought else {}
        taken = set(self._copies.values())
        for number, atom, is_cut in sought:
            same = spelled.get(source[slice(*atom)], {})
            for copies in (same.get(self._bests[number][0]), same.get(ANY) if is_cut else None):
                while copies and copies[0] in taken:
                    copies.popleft()
                if copies:
                    self._copies[atom] = copies[0]
                    taken.add(copies[0])
                    break

    def _by_spelling(self, target: str) -> dict[str, dict[int, deque[Span]]]:
        """Return the target atoms by how they are spelled and by their words, and in ANY all of them."""
        found: dict[str, dict[int, deque[Span]]] = {}
        for number, word in enumerate(self._targets):
            for atom in word.cores:
                same = found.setdefault(target[slice(*atom)], {})
                for position in (number, ANY):
                    same.setdefault(position, deque()).append(atom)
        return found


def _joined(weights: Weights, sources: Sequence[SegmentWord], targets: Sequence[SegmentWord]) -> Weights:
    """Return the weights between words of which some are several of `str.split`: the sum of their shares."""
    if all(word.joined == 1 for word in (*sources, *targets)):
        return weights
    return [
        [sum(column) for column in _grouped(row, sources)]
        for row in ([sum(shares) for shares in zip(*rows, strict=True)] for rows in _grouped(weights, targets))
    ]


def _grouped(values: Sequence[Value], words: Sequence[SegmentWord]) -> Iterator[Sequence[Value]]:
    """Yield the values of the words of `str.split` that each word joins."""
    at = 0
    for word in words:
        yield values[at : at + word.joined]
        at += word.joined


def _claims(targets: Sequence[int], weight: float) -> list[Claim]:
    """Return claims of atoms with this weight together. Of many atoms only those at both ends are claimed."""
    many = len(targets) > 2 * MOST_CLAIMED
    ends = [*targets[:MOST_CLAIMED], *targets[-MOST_CLAIMED:]] if many else [*targets]
    return [Claim(target, weight / len(ends)) for target in ends]


def _shifted(numbers: range, by: int) -> range:
    return range(numbers.start + by, numbers.stop + by)


# The parts of a segment that kept strings divide, such as the arms of a message, each of which is aligned alone.

_SEPARATED = re.compile(r"\S+")


def divided(source: str, target: str, segment: Aligned) -> Iterator[Aligned]:
    """Yield a segment in parts: what divides it, and what is between; as it is if nothing does.

    It is not divided if what divides it comes in another order in its translation.
    """
    dividers = [each for each in segment.kept if each.divides and _is_pair(each)]
    in_order = all(first.target[1] <= second.target[0] for first, second in pairwise(dividers))
    if not dividers or not in_order:
        yield segment
        return
    cutter = _Cutter(source, target, segment)
    at = segment.source[0], segment.target[0]
    for each in dividers:
        yield cutter.part((at[0], each.source[0]), (at[1], each.target[0]))
        yield cutter.part(each.source, each.target)
        at = each.source[1], each.target[1]
    yield cutter.part((at[0], segment.source[1]), (at[1], segment.target[1]))


def _is_pair(kept: KeptCopy) -> bool:
    return kept.source[0] < kept.source[1] and kept.target[0] < kept.target[1]


class _Cutter:
    """A cutter of parts of a segment."""

    def __init__(self, source: str, target: str, segment: Aligned) -> None:
        self._segment = segment
        self._sources = [word.span() for word in _SEPARATED.finditer(source, *segment.source)]
        self._targets = [word.span() for word in _SEPARATED.finditer(target, *segment.target)]
        self._known = [each for each in segment.kept if each.source[0] < each.source[1]]
        unknown = (each for each in segment.kept if each.source[0] == each.source[1])
        self._unknown = sorted(unknown, key=lambda each: each.target)

    def part(self, source: Span, target: Span) -> Aligned:
        """Return a part of the segment. A word of which only a part is in it has the weights of the whole."""
        first = bisect_left(self._known, source[0], key=lambda each: each.source[0])
        last = bisect_left(self._known, source[1], key=lambda each: each.source[0])
        inside = (each for each in self._known[first:last] if _is_within(each.target, target))
        first = bisect_left(self._unknown, target[0], key=lambda each: each.target[0])
        last = bisect_left(self._unknown, target[1], key=lambda each: each.target[0])
        weights: Weights | None = None
        if self._segment.weights is not None:
            columns, rows = _within(self._sources, source), _within(self._targets, target)
            weights = [row[columns.start : columns.stop] for row in self._segment.weights[rows.start : rows.stop]]
        return Aligned(source, target, weights, [*self._unknown[first:last], *inside])


def _is_within(span: Span, around: Span) -> bool:
    return around[0] <= span[0] and span[1] <= around[1]


def _within(words: Sequence[Span], span: Span) -> range:
    """Return the numbers of the words that have a part in a span."""
    if span[0] >= span[1]:
        return range(0)
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, max(bisect_left(words, span[1], key=lambda word: word[0]), first))


class Segment(NamedTuple):
    """The atoms of a segment and of its translation.

    source_words, target_words: those without the punctuation at the ends
    """

    source: range
    target: range
    source_words: range
    target_words: range


class AtomAlignment:
    """The atoms of both texts, and what those of the source claim.

    source, target: spans of the atoms, in order
    source_marks, target_marks: what each of them is
    claims: of each source atom
    columns: of each source atom the column of its word, None for one in a segment that was not aligned by words
    kept_source, kept_target: 1 for each atom that is kept
    """

    def __init__(self, source: str, target: str, segments: Sequence[Aligned], positions: Sequence[int]) -> None:
        """positions: of tags in the source, in order."""
        self.source_text, self.target_text = source, target
        self.source: list[Span] = []
        self.target: list[Span] = []
        self.source_marks: list[Mark] = []
        self.target_marks: list[Mark] = []
        self.claims: list[list[Claim]] = []
        self.columns: list[ShareColumn | None] = []
        self.kept_source, self.kept_target = bytearray(), bytearray()
        self.segments: list[Segment] = []
        before = 0, 0
        for segment in (part for each in segments for part in divided(source, target, each)):
            (begin, end), (target_begin, target_end) = segment[:2]
            self._add_between(source, target, ((before[0], begin), (before[1], target_begin)), positions)
            before = end, target_end
            first, target_first = len(self.source), len(self.target)
            if not is_within(positions, (begin, end)):
                self._add_whole(segment)
            elif source[begin:end] == target[target_begin:target_end]:
                self._add_same(source, segment, positions)
            else:
                claims = WordClaims(source, target, segment, positions)
                for atom, claimed, column, kept in claims.claimed(len(self.target)):
                    self._add(atom, claimed, column, kept=kept)
                kept_atoms = set(claims.kept)
                for number, atom in enumerate(claims.atoms):
                    self._add_target(atom, kept=number in kept_atoms)
            atoms, targets = range(first, len(self.source)), range(target_first, len(self.target))
            words = _words(self.source_marks, atoms), _words(self.target_marks, targets)
            self.segments.append(Segment(atoms, targets, *words))
        self._add_between(source, target, ((before[0], len(source)), (before[1], len(target))), positions)

    def atoms_within(self, begin: int, end: int) -> range:
        """Return the numbers of the source atoms of a span, whose ends are between atoms."""
        first = bisect_left(self.source, (begin, begin))
        return range(first, max(bisect_left(self.source, (end, end)), first))

    def segments_within(self, atoms: range) -> Iterator[Segment]:
        """Yield the segments whose words are all among these source atoms."""
        position = bisect_left(self.segments, atoms.start, key=lambda segment: segment.source_words.start)
        while position < len(self.segments) and self.segments[position].source_words.stop <= atoms.stop:
            yield self.segments[position]
            position += 1

    def _add(self, atom: Span, claims: list[Claim], column: ShareColumn | None = None, *, kept: bool = False) -> None:
        self.source.append(atom)
        self.source_marks.append(Mark.NONE if kept else mark_of(self.source_text, atom))
        self.claims.append(claims)
        self.columns.append(column)
        self.kept_source.append(kept)

    def _add_target(self, atom: Span, *, kept: bool = False) -> None:
        self.target.append(atom)
        self.target_marks.append(Mark.NONE if kept else mark_of(self.target_text, atom))
        self.kept_target.append(kept)

    def _add_whole(self, segment: Aligned) -> None:
        """Add a segment without tags in it as one atom."""
        claims = []
        if segment.target[0] < segment.target[1]:
            claims.append(Claim(len(self.target), KNOWN))
            self._add_target(segment.target)
        if segment.source[0] < segment.source[1]:
            self._add(segment.source, claims)

    def _add_between(self, source: str, target: str, between: tuple[Span, Span], positions: Sequence[int]) -> None:
        """Add what separates segments, such as the mark of a list. Blanks have no atoms.

        between: where it is in both texts. That of the target may have one blank more
        """
        (begin, end), (target_begin, target_end) = between
        text = source[begin:end]
        if target[target_begin:target_end].startswith(text) and any(map(_is_visible, text)):
            self._add_same(source, Aligned((begin, end), (target_begin, target_begin + len(text))), positions)

    def _add_same(self, source: str, segment: Aligned, positions: Sequence[int]) -> None:
        """Add a segment whose translation is itself."""
        shift = segment.target[0] - segment.source[0]
        for word in words_of(source, segment.source):
            for begin, end in (part for atom in word.atoms for part in cut(atom, positions)):
                self._add((begin, end), [Claim(len(self.target), KNOWN)])
                self._add_target((begin + shift, end + shift))


def _is_visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def _words(marks: Sequence[Mark], atoms: range) -> range:
    """Return atoms without those at both ends that are punctuation; all if there are no others."""
    begin, end = atoms.start, atoms.stop
    while begin < end and marks[begin] is not Mark.NONE:
        begin += 1
    while begin < end and marks[end - 1] is not Mark.NONE:
        end -= 1
    return range(begin, end) if begin < end else atoms
