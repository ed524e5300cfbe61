"""What the words of a source segment claim of its translation: each the target word that has the most of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lingon.segments.placing.atoms import Word, cut, is_within, words_of
from lingon.segments.placing.inlines import Aligned, Span

MARK_WEIGHT = 0.25  # of a punctuation mark, relative to the word that it is at
MOST_CLAIMED = (
    4  # atoms at each end of a target word: each part of a word claims them, and tags may cut it in thousands
)
ANY = -1  # in place of a target word


class Claim(NamedTuple):
    """A target atom that a source atom claims; weight: 0 to 1."""

    target: int
    weight: float


class Column(NamedTuple):
    """What each word of a target segment has of a source word, and the atoms of these words."""

    shares: Sequence[float]
    atoms: Sequence[range]


class Claimed(NamedTuple):
    """A source atom, what it claims, and the column of its word; None if the weights are not known."""

    atom: Span
    claims: list[Claim]
    column: Column | None


class WordClaims:
    """The claims in a segment that was translated.

    atoms: of the target; a copy of a source word that tags cut, such as H<sub>2</sub>O, is cut alike
    """

    def __init__(self, source: str, target: str, segment: Aligned, places: Sequence[int]) -> None:
        """places: of the tags in the source, in order."""
        self._sources = words_of(source, segment.source)
        self._targets = words_of(target, segment.target)
        self._places = places
        self._columns: list[Sequence[float]] | None = None
        if segment.weights is not None and self._targets:
            self._columns = list(zip(*segment.weights, strict=True))
        self._copies = self._find_copies(source, target)
        cut_as = {copy: atom for atom, copy in self._copies.items()}
        self.atoms: list[Span] = []
        self._numbers: dict[Span, range] = {}  # of the parts of each atom
        for atom in (atom for word in self._targets for atom in word.atoms):
            first, like = len(self.atoms), cut_as.get(atom, atom)
            shift = atom[0] - like[0]
            parts = cut(like, places) if atom in cut_as else [atom]
            self.atoms.extend((begin + shift, end + shift) for begin, end in parts)
            self._numbers[atom] = range(first, len(self.atoms))

    def claimed(self, first: int, kept: Mapping[int, int]) -> Iterator[Claimed]:
        """Yield the source atoms, cut at the tags.

        first: the number of the first target atom
        kept: what is kept: places in the target by those in the source
        """
        ranges = [_shifted(self._range(word.atoms), first) for word in self._targets]
        by_place = {atom[0]: number for number, atom in enumerate(self.atoms, start=first)}
        for number, word in enumerate(self._sources):
            column = Column(self._columns[number], ranges) if self._columns is not None else None
            best, share = self._best(number)
            for atoms, (wholes, weight) in zip(word, self._wanted(word, best, share), strict=True):
                wanted = _claims(_shifted(self._range(wholes), first), weight)
                for atom in atoms:
                    parts = cut(atom, self._places)
                    if (known := by_place.get(kept.get(atom[0], -1))) is not None:
                        claims = [[Claim(known, 1.0)]] * len(parts)
                    elif (copy := self._copies.get(atom)) is not None:
                        claims = [[Claim(target, 1.0)] for target in _shifted(self._numbers[copy], first)]
                    else:
                        claims = [wanted] * len(parts)
                    yield from (Claimed(part, own, column) for part, own in zip(parts, claims, strict=True))

    def _best(self, source: int) -> tuple[int, float]:
        """Return the target word that has the most of a source word, and how much; -1 without target words."""
        count = len(self._targets)
        if self._columns is None:
            return (source * count // len(self._sources) if count else -1), 1.0
        shares = self._columns[source]
        best = max(range(count), key=shares.__getitem__)
        return best, shares[best]

    def _wanted(self, word: Word, best: int, share: float) -> list[tuple[list[Span], float]]:
        """Return which target atoms, and how much, the marks before a source word claim, its cores, those after it.

        best: the target word that has the most of the word, by this share; -1 without target words
        """
        if best < 0:
            return [([], 0.0)] * len(word)
        target, marks = self._targets[best], share * MARK_WEIGHT
        if not word.cores:
            return [(target.before or target.after or target.cores, marks), ([], 0.0), ([], 0.0)]
        after = target.after
        if not after and word is self._sources[-1]:
            last = self._targets[-1]
            after = last.after if last.cores else last.before
        return [(target.before, marks), (target.cores or target.atoms, share), (after, marks)]

    def _range(self, atoms: Sequence[Span]) -> range:
        """Return the numbers of the parts of atoms that follow one another."""
        return range(self._numbers[atoms[0]].start, self._numbers[atoms[-1]].stop) if atoms else range(0)

    def _find_copies(self, source: str, target: str) -> dict[Span, Span]:
        """Return the target atoms that are spelled like source atoms that tags cut, by these."""
        cut_atoms = [
            (number, atom)
            for number, word in enumerate(self._sources)
            for atom in word.cores
            if is_within(self._places, atom)
        ]
        spelled = self._by_spelling(target) if cut_atoms else {}
        found = dict[Span, Span]()
        taken = set[Span]()
        for number, atom in cut_atoms:
            same = spelled.get(source[slice(*atom)], {})
            for copies in (same.get(self._best(number)[0]), same.get(ANY)):
                while copies and copies[0] in taken:
                    copies.popleft()
                if copies:
                    found[atom] = copies[0]
                    taken.add(copies[0])
                    break
        return found

    def _by_spelling(self, target: str) -> dict[str, dict[int, deque[Span]]]:
        """Return the target atoms by how they are spelled and by their words, and in ANY all of them."""
        found: dict[str, dict[int, deque[Span]]] = {}
        for number, word in enumerate(self._targets):
            for atom in word.cores:
                same = found.setdefault(target[slice(*atom)], {})
                for place in (number, ANY):
                    same.setdefault(place, deque()).append(atom)
        return found


def _claims(targets: range, weight: float) -> list[Claim]:
    """Return claims of atoms with this weight together; of many atoms only those at both ends are claimed."""
    many = len(targets) > 2 * MOST_CLAIMED
    ends = [*targets[:MOST_CLAIMED], *targets[-MOST_CLAIMED:]] if many else [*targets]
    return [Claim(target, weight / len(ends)) for target in ends]


def _shifted(numbers: range, by: int) -> range:
    return range(numbers.start + by, numbers.stop + by)
