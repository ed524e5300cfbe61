"""Which run of target atoms an element gets: the one that holds the most of what it claims, and the least of others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from lingon.segments.placing.alignment import KNOWN, Alignment
from lingon.segments.placing.claims import Claim

LEAST_SHARE = 0.1  # of a source word: a target word that has less of it is not its second best

Run = tuple[int, int]  # target atoms; the end is exclusive


class Taken:
    """The runs that elements with one parent have already, by atom."""

    def __init__(self, atoms: int) -> None:
        self._marks = bytearray(atoms + 1)  # 1 at the first atom of a run, 2 at the others
        self._ends: dict[int, int] = {}

    def take(self, run: Run) -> None:
        """Note a run."""
        begin, end = run
        self._marks[begin:end] = b"\1" + b"\2" * (end - begin - 1)
        self._ends[begin] = end

    def is_free(self, atom: int) -> bool:
        """Whether no run has an atom."""
        return not self._marks[atom]

    def between(self, first: int, last: int) -> bool:
        """Whether a run is between two free atoms."""
        return self._marks.find(b"\1", first, last) >= 0

    def outside(self, place: int, *, after: bool) -> int:
        """Return a place before an atom, or if it is within a run, the end of that run on one side."""
        if self._marks[place] != 2:
            return place
        begin = self._marks.rfind(b"\1", 0, place)
        return self._ends[begin] if after else begin


class Runs:
    """Finds runs by the claims of all atoms."""

    def __init__(self, alignment: Alignment) -> None:
        self._alignment = alignment
        totals = [0.0] * len(alignment.target)
        for claims in alignment.claims:
            for target, weight in claims:
                totals[target] += weight
        self._sums = list(accumulate(totals, initial=0.0))

    def strength(self, atoms: range) -> float:
        """Return the sum of what source atoms claim."""
        return sum(weight for atom in atoms for _, weight in self._alignment.claims[atom])

    def best(self, atoms: range, within: Run, taken: Taken) -> Run | None:
        """Return the run for source atoms in a run of their parent; None if there is no place for it.

        It begins and ends with atoms that are claimed; what is claimed far from the rest is left out.
        """
        claims = self._claims(atoms)
        own: dict[int, float] = {}
        for target, weight in claims:
            if within[0] <= target < within[1] and taken.is_free(target):
                own[target] = own.get(target, 0.0) + weight
        if not own:
            own = self._second_best(atoms, within, taken)
        return self._densest(own, taken) if own else None

    def _claims(self, atoms: range) -> Iterable[Claim]:
        """Return what atoms claim, and the ends of the segments that they are the whole of."""
        for atom in atoms:
            yield from self._alignment.claims[atom]
        for source, target in self._alignment.segments_within(atoms):
            if len(source) > 1 and target:
                yield from (Claim(target[0], KNOWN), Claim(target[-1], KNOWN))

    def _second_best(self, atoms: range, within: Run, taken: Taken) -> dict[int, float]:
        """Return the free target atoms of the word that has the most of one of the source words."""
        best, best_share, last = range(0), LEAST_SHARE, None
        for column in (self._alignment.columns[atom] for atom in atoms):
            if column is None or column is last:
                continue
            last = column
            for share, numbers in zip(column.shares, column.atoms, strict=True):
                if share <= best_share:
                    continue
                inside = range(max(numbers.start, within[0]), min(numbers.stop, within[1]))
                if inside and all(map(taken.is_free, inside)):
                    best, best_share = inside, share
        return dict.fromkeys(best, best_share)

    def _densest(self, own: dict[int, float], taken: Taken) -> Run:
        """Return the run with the greatest difference of what it holds of these claims and of those of others."""
        best, best_score = (0, 0), float("-inf")
        begin, score, last = -1, 0.0, -1
        for target in sorted(own):
            gain = 2 * own[target] - (self._sums[target + 1] - self._sums[target])
            others = self._sums[target] - self._sums[last + 1]
            if begin < 0 or score <= others or taken.between(last, target):
                begin, score = target, 0.0
            else:
                score -= others
            score += gain
            last = target
            if score > best_score:
                best, best_score = (begin, target + 1), score
        return best
