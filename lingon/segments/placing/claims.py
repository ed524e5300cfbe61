"""What the words of a source segment claim of its translation: each the target word that has the most of it.

A kept string claims its copy, and nothing else claims that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from lingon.segments.placing.atoms import Word, cut, is_within, words_of
from lingon.segments.placing.inlines import Aligned, Span, Weights

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


class Column(NamedTuple):
    """What each word of a target segment has of a source word, and the atoms of these words that are not kept."""

    shares: Sequence[float]
    atoms: Sequence[range]


class Claimed(NamedTuple):
    """A source atom, what it claims, and the column of its word; None if the weights are not known.

    kept: whether it is kept
    """

    atom: Span
    claims: list[Claim]
    column: Column | None
    kept: bool = False


class _Parts(NamedTuple):
    """The target atoms of a word, by their numbers, without those that are kept.

    all: the whole word; empty if a part of it is kept
    """

    before: range
    cores: Sequence[int]
    after: range
    all: range


class WordClaims:
    """The claims in a segment that was translated.

    atoms: of the target; a copy of a source word that tags cut, such as H<sub>2</sub>O, is cut alike
    kept: the numbers of those of them that are kept
    """

    def __init__(self, source: str, target: str, segment: Aligned, places: Sequence[int]) -> None:
        """places: of the tags in the source, in order."""
        kept_sources = [each.source for each in segment.kept if each.source[0] < each.source[1]]
        kept_targets = sorted(each.target for each in segment.kept if each.target[0] < each.target[1])
        self._sources = words_of(source, segment.source, kept_sources)
        self._targets = words_of(target, segment.target, kept_targets)
        self._places = places
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
            column = Column(self._columns[number], ranges) if self._columns is not None else None
            for atoms, (wanted, weight) in zip(word[:3], self._wanted(number, word), strict=True):
                claims = [Claim(target + first, own) for target, own in _claims(wanted, weight)]
                for atom in atoms:
                    parts, kept = cut(atom, self._places), atom in self._kept_sources
                    each = self._claims_of_copy(atom, len(parts), first)
                    each = each or [[] if kept else claims] * len(parts)
                    for part, own in zip(parts, each, strict=True):
                        yield Claimed(part, own, column, kept)

    def _add(self, word: Word) -> _Parts:
        """Add the atoms of a target word."""
        begin, free = len(self.atoms), list[int]()
        for atom in word.atoms:
            first, like = len(self.atoms), self._cut_as.get(atom, atom)
            shift = atom[0] - like[0]
            parts = cut(like, self._places) if atom in self._cut_as else [atom]
            self.atoms.extend((start + shift, end + shift) for start, end in parts)
            self._numbers[atom] = range(first, len(self.atoms))
            if atom in self._kept_targets:
                self.kept.extend(self._numbers[atom])
        before, cores, after = map(self._range, word[:3])
        if not self._has_kept(word):
            return _Parts(before, cores, after, range(begin, len(self.atoms)))
        for atom in word.cores:
            free += () if atom in self._kept_targets else self._numbers[atom]
        return _Parts(before, free, after, range(0))

    def _range(self, atoms: Sequence[Span]) -> range:
        """Return the numbers of the parts of atoms that follow one another."""
        return range(self._numbers[atoms[0]].start, self._numbers[atoms[-1]].stop) if atoms else range(0)

    def _claims_of_copy(self, atom: Span, parts: int, first: int) -> list[list[Claim]]:
        """Return what each part of a source atom claims of its copy; empty if it has none."""
        if (copy := self._copies.get(atom)) is None:
            return []
        known = KEPT if atom in self._kept_sources else KNOWN
        claims = [Claim(target + first, known) for target in self._numbers.get(copy, ())]
        return [[each] for each in claims] if len(claims) == parts else [claims] * parts

    def _find_bests(self) -> list[tuple[int, float]]:
        """Return for each source word the target word that has the most of it, and how much; -1 without target words.

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

    def _wanted(self, source: int, word: Word) -> list[tuple[Sequence[int], float]]:
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

    def _has_kept(self, word: Word) -> bool:
        return bool(self._kept_targets) and not self._kept_targets.isdisjoint(word.cores)

    def _has_free(self, word: Word) -> bool:
        """Whether a target word has more than what is kept and its punctuation, or is punctuation alone."""
        return not self._kept_targets or not word.cores or not self._kept_targets.issuperset(word.cores)

    def _find_copies(self, source: str, target: str) -> None:
        """Find the target atoms that are spelled like source atoms that tags cut, or in the same word as others."""
        among_others = [best >= 0 and len(self._targets[best].cores) > 1 for best, _ in self._bests]
        sought = [
            (number, atom, is_cut)
            for number, word in enumerate(self._sources)
            for atom in word.cores
            if ((is_cut := is_within(self._places, atom)) or among_others[number]) and atom not in self._kept_sources
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
                for place in (number, ANY):
                    same.setdefault(place, deque()).append(atom)
        return found


def _joined(weights: Weights, sources: Sequence[Word], targets: Sequence[Word]) -> Weights:
    """Return the weights between words of which some are several of `str.split`: the sum of their shares."""
    if all(word.joined == 1 for word in (*sources, *targets)):
        return weights
    return [
        [sum(column) for column in _grouped(row, sources)]
        for row in ([sum(shares) for shares in zip(*rows, strict=True)] for rows in _grouped(weights, targets))
    ]


def _grouped(values: Sequence[Value], words: Sequence[Word]) -> Iterator[Sequence[Value]]:
    """Yield the values of the words of `str.split` that each word joins."""
    at = 0
    for word in words:
        yield values[at : at + word.joined]
        at += word.joined


def _claims(targets: Sequence[int], weight: float) -> list[Claim]:
    """Return claims of atoms with this weight together; of many atoms only those at both ends are claimed."""
    many = len(targets) > 2 * MOST_CLAIMED
    ends = [*targets[:MOST_CLAIMED], *targets[-MOST_CLAIMED:]] if many else [*targets]
    return [Claim(target, weight / len(ends)) for target in ends]


def _shifted(numbers: range, by: int) -> range:
    return range(numbers.start + by, numbers.stop + by)
