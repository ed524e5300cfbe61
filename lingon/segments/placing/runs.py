"""Which run of target atoms an element gets: the one that holds the most of what it claims, and the least of others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from lingon.segments.placing.alignment import Alignment
from lingon.segments.placing.atoms import Mark
from lingon.segments.placing.claims import KEPT, Claim
from lingon.segments.placing.edges import Edges
from lingon.segments.placing.taken import Run, Taken

LEAST_SHARE = 0.1  # of a source word: a target word that has less of it is not its second best


class Runs:
    """Finds runs by the claims of all atoms."""

    def __init__(self, alignment: Alignment) -> None:
        self._alignment, self._edges = alignment, Edges(alignment)
        totals = [0.0] * len(alignment.target)
        for claims in alignment.claims:
            for target, weight in claims:
                totals[target] += weight
        self._sums = list(accumulate(totals, initial=0.0))
        self._kept = list(accumulate(alignment.kept_target, initial=0))

    def order(self, atoms: range) -> tuple[bool, float]:
        """Return what source atoms are sorted by, the surest first: those that are kept, then by what they claim."""
        kept, marks = self._alignment.kept_source, self._alignment.source_marks
        only_kept = all(kept[atom] or marks[atom] is not Mark.NONE for atom in atoms)
        return not only_kept, -sum(weight for atom in atoms for _, weight in self._alignment.claims[atom])

    def best(self, atoms: range, within: Run, taken: Taken) -> Run | None:
        """Return the run for source atoms in a run of their parent; None if there is no place for it.

        It begins and ends with atoms that are claimed, and punctuation of its own; what is claimed far from the rest
        is left out. It has nothing that is kept but its own.
        """
        own: dict[int, float] = {}
        for target, weight in self._claims(atoms):
            if within[0] <= target < within[1] and taken.is_free(target):
                own[target] = own.get(target, 0.0) + weight
        if not own and not any(self._alignment.kept_source[atoms.start : atoms.stop]):
            own = self._second_best(atoms, within, taken)
        if not own:
            return None
        run = self._densest(own, taken)
        if not self._has_words(range(*run)) and self._has_words(own):  # others claim more of these words
            run = self._densest({target: own[target] for target in own if self._has_words((target,))}, taken)
        return self._edges.moved(atoms, run, own, within, taken)

    def _has_words(self, targets: Iterable[int]) -> bool:
        """Whether one of the target atoms is not punctuation."""
        return any(self._alignment.target_marks[target] is Mark.NONE for target in targets)

    def _claims(self, atoms: range) -> Iterable[Claim]:
        """Return what atoms claim, and the ends of the segments that they are the whole of."""
        for atom in atoms:
            yield from self._alignment.claims[atom]
        for segment in self._alignment.segments_within(atoms):
            words, target = segment.source_words, segment.target_words
            if target and not all(self._alignment.kept_source[words.start : words.stop]):
                yield from (Claim(target[0], KEPT), Claim(target[-1], KEPT))

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
            apart = self._kept[target] > self._kept[last + 1] or taken.between(last, target)
            if begin < 0 or score <= others or apart:
                begin, score = target, 0.0
            else:
                score -= others
            score += gain
            last = target
            if score > best_score:
                best, best_score = (begin, target + 1), score
        return best
