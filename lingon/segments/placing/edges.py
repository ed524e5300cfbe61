"""Where a run of target atoms begins and ends among quotation marks, brackets and stops.

Punctuation stays on the side of a tag on which the source has it: a tag ends before a mark that is outside of it in the
source, and after one that is inside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

from lingon.segments.placing.alignment import Alignment
from lingon.segments.placing.atoms import Mark
from lingon.segments.placing.claims import KEPT
from lingon.segments.placing.inlines import Span
from lingon.segments.placing.taken import Run, Taken

_AT_ENDS = frozenset({Mark.QUOTE, Mark.BRACKET, Mark.STOP})
_ALL = _AT_ENDS | {Mark.OTHER}
_PAIRED = frozenset({Mark.QUOTE, Mark.BRACKET})
_OPENING = "([{（［｛【〈《「『„‚«‹“‘"
_ALWAYS = frozenset("()[]{}（）［］｛｝【】〈〉《》「」『』„‚")  # marks that open, or close, in every language
_TURNED = "¿¡"  # at the begin of a sentence that ends with ? or !


class Edges:
    """Moves the ends of runs."""

    def __init__(self, alignment: Alignment) -> None:
        self._alignment = alignment
        self._source_pairs = _Pairs(alignment.source_text, alignment.source, alignment.source_marks)
        self._target_pairs = _Pairs(alignment.target_text, alignment.target, alignment.target_marks)
        segments = [each for each in alignment.segments if each.source and each.target]
        self._beginning = {each.source.start: each for each in segments}
        self._ending = {each.source.stop: each for each in segments}

    def moved(self, atoms: range, run: Run, own: Mapping[int, float], within: Run, taken: Taken) -> Run:
        """Return a run with the marks at its ends that source atoms have at theirs.

        own: what the source atoms claim of the target atoms; within: the run of the parent
        """
        marks = self._alignment.source_marks
        core = _without_ends(marks, (atoms.start, atoms.stop))
        has_signs = core[0] < core[1] and Mark.OTHER in (marks[core[0]], marks[core[1] - 1])
        run_core = _without_ends(self._alignment.target_marks, run, _AT_ENDS if has_signs else _ALL)
        if core[0] == core[1] or run_core[0] == run_core[1]:
            return run  # one of them is punctuation alone, as in <b>!</b>
        begin, end = self._balanced(core, run_core, own, within, taken)
        before, after = Counter(marks[atoms.start : core[0]]), Counter(marks[core[1] : atoms.stop])
        turned = after[Mark.STOP] > 0
        end = self._end(end, after, self._end_of_segment(atoms, after), within, taken)
        return self._begin(begin, before, self._begin_of_segment(atoms, before), within, taken, turned=turned), end

    def _begin_of_segment(self, atoms: range, before: Counter[Mark]) -> int | None:
        """Return where the translation of a segment begins that source atoms begin with its first mark, or are all of.

        before: the marks at the begin of the source
        """
        segment = self._beginning.get(atoms.start)
        is_own = segment is not None and (before.total() > 0 or segment.source.stop <= atoms.stop)
        return segment.target.start if segment is not None and is_own else None

    def _end_of_segment(self, atoms: range, after: Counter[Mark]) -> int | None:
        """Return where the translation of a segment ends; see `_begin_of_segment`."""
        segment = self._ending.get(atoms.stop)
        is_own = segment is not None and (after.total() > 0 or atoms.start <= segment.source.start)
        return segment.target.stop if segment is not None and is_own else None

    def _begin(
        self, begin: int, before: Counter[Mark], first: int | None, within: Run, taken: Taken, *, turned: bool
    ) -> int:
        """Return the begin of a run with the marks before it that belong to it.

        before: the marks at the begin of the source; turned: whether it ends with a stop
        first: see `_begin_of_segment`; all marks up to it belong to the run
        """
        found = begin
        while begin > within[0] and self._is_mark(begin - 1, taken) and first != begin:
            begin -= 1
            place, mark = self._alignment.target[begin][0], self._alignment.target_marks[begin]
            is_own = before[mark] > 0 or (turned and self._alignment.target_text[place] in _TURNED)
            if is_own and found == begin + 1:
                before[mark] -= 1
                found = begin
        return begin if first == begin else found

    def _end(self, end: int, after: Counter[Mark], last: int | None, within: Run, taken: Taken) -> int:
        """Return the end of a run with the marks after it that belong to it; see `_begin`."""
        first = found = end
        while end < within[1] and self._is_mark(end, taken) and last != end:
            mark = self._alignment.target_marks[end]
            repeated = found == end > first and self._written(end) == self._written(end - 1)  # as in " ! ! !"
            if (after[mark] or repeated) and found == end:
                after[mark] -= not repeated
                found = end + 1
            end += 1
        return end if last == end else found

    def _written(self, atom: int) -> str:
        return self._alignment.target_text[slice(*self._alignment.target[atom])]

    def _is_mark(self, atom: int, taken: Taken) -> bool:
        return self._alignment.target_marks[atom] in _AT_ENDS and taken.is_free(atom)

    def _balanced(self, core: Run, run: Run, own: Mapping[int, float], within: Run, taken: Taken) -> Run:
        """Return a run, without marks at its ends, that has both marks of a pair or none.

        Source atoms with a mark of a pair among them get both of the translation. Others get the part of the run, on
        one side of the mark, that is as deep inside of pairs as they are, and of which they claim the most.
        """
        single = self._target_pairs.single(run)
        if not single:
            return run
        if self._source_pairs.within(core):
            return self._with_pairs(run, within, taken)
        marks, depth = self._alignment.target_marks, self._source_pairs.depths[core[0]]
        cuts = pairwise([run[0], *(place for mark in single for place in (mark, mark + 1)), run[1]])
        parts = [_without_ends(marks, part, _ALL) for part in islice(cuts, 0, None, 2)]

        def claimed(part: Run) -> float:
            return sum(own.get(atom, 0.0) for atom in range(*part))

        def rank(part: Run) -> tuple[bool, float]:
            return self._target_pairs.depths[part[0]] == depth, claimed(part)

        certain = claimed(run) // KEPT  # what is kept, and the ends of whole segments, stay in the run
        parts = [part for part in parts if part[0] < part[1] and claimed(part) // KEPT == certain]
        return max(parts, key=rank, default=run)

    def _with_pairs(self, run: Run, within: Run, taken: Taken) -> Run:
        """Return a run with the marks right before and after it of pairs whose other mark is in it."""
        begin, end = run
        pairs = self._target_pairs
        opened = [pairs.opens(mark) for mark in pairs.single(run)]
        least, most = begin - opened.count(False), end + opened.count(True)
        while begin > max(least, within[0]) and pairs.opens(begin - 1) is True and taken.is_free(begin - 1):
            begin -= 1
        while end < min(most, within[1]) and pairs.opens(end) is False and taken.is_free(end):
            end += 1
        return begin, end


class _Pairs:
    """The quotation marks and brackets of a text.

    depths: for each atom, how many pairs are open before it, as far as can be told
    """

    def __init__(self, text: str, atoms: Sequence[Span], marks: Sequence[Mark]) -> None:
        self._opens = {number: _opens(text, atoms[number]) for number, mark in enumerate(marks) if mark in _PAIRED}
        self._places = list(self._opens)
        self.depths, depth = list[int](), 0
        for number in range(len(atoms)):
            self.depths.append(depth)
            if (opens := self._opens.get(number)) is not None:
                depth = depth + 1 if opens else max(depth - 1, 0)

    def opens(self, atom: int) -> bool | None:
        """Return whether an atom opens a pair; None if it is none."""
        return self._opens.get(atom)

    def within(self, run: Run) -> list[int]:
        """Return the marks of a run."""
        return self._places[bisect_left(self._places, run[0]) : bisect_left(self._places, run[1])]

    def single(self, run: Run) -> list[int]:
        """Return the marks of a run whose other mark is outside of it, in order."""
        opened, found = list[int](), list[int]()
        for mark in self.within(run):
            if self._opens[mark]:
                opened.append(mark)
            elif opened:
                opened.pop()
            else:
                found.append(mark)
        return found + opened


def _opens(text: str, mark: Span) -> bool:
    """Return whether a quotation mark or bracket opens a pair, by what is on both sides of it."""
    place, end = mark
    character, before, after = text[place], text[place - 1 : place], text[end : end + 1]
    if character in _ALWAYS:
        return character in _OPENING
    blank_before = not before or before.isspace()
    if blank_before != (not after or after.isspace()):
        return blank_before
    if blank_before:
        return character in _OPENING
    return not before.isalnum() and (after.isalnum() or before in _OPENING)


def _without_ends(marks: Sequence[Mark], atoms: Run, kinds: frozenset[Mark] = _AT_ENDS) -> Run:
    """Return atoms without the marks of these kinds at their ends; empty if there are no others."""
    begin, end = atoms
    while begin < end and marks[begin] in kinds:
        begin += 1
    while begin < end and marks[end - 1] in kinds:
        end -= 1
    return begin, end
