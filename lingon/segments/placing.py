"""Places the inline tags of a text in its translation: each exactly once, and nested as in the source.

An element gets the run of target words that its source words claim, inside the run of its parent. Elements with one
parent get runs without overlap. A point stays before or after the word that it is at. An element for which no word is
left becomes empty, at its position.

A kept string is one atom, which is aligned to its copy: no tag comes into it, and an element right around it stays so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from operator import attrgetter

from lingon.segments.placing_alignment import (
    KEPT,
    Aligned,
    AtomAlignment,
    Claim,
    Inline,
    Insertion,
    Mark,
    Span,
    around,
    boundaries,
)


def place(source: str, target: str, segments: Sequence[Aligned], inlines: Sequence[Inline]) -> list[Insertion]:
    """Return the tags of a text in the order in which they come in its translation. A point has an end tag too.

    segments: of the source in order, each with its translation. The rest of both texts is white space, or
        the same in both
    inlines: of the source, a parent before what is in it, in the order of the source
    """
    whole = [span for segment in segments for kept in segment.kept for span in kept.whole]
    return list(_Placer(source, target, segments, around(inlines, whole)).insertions())


@dataclass(slots=True)
class _Node:
    """An element or a point, or the whole text.

    atoms: those of the source in it; run: those of the target; begin, end: in the target
    """

    inline: int
    atoms: range
    children: list[_Node] = field(default_factory=list)
    run: AtomRun = (0, 0)
    begin: int = 0
    end: int = 0


class _Placer:
    def __init__(self, source: str, target: str, segments: Sequence[Aligned], inlines: Sequence[Inline]) -> None:
        self._inlines = inlines
        self._alignment = AtomAlignment(source, target, segments, boundaries(inlines))
        self._runs = Runs(self._alignment)
        claims = self._alignment.claims
        claiming = [number if claims[number] else -1 for number in range(len(claims))]
        self._last_claiming = list(accumulate(claiming, max))
        following = [number if claims[number] else len(claims) for number in range(len(claims))]
        self._next_claiming = list(accumulate(reversed(following), min))[::-1]
        self._whole = _Node(-1, range(len(self._alignment.source)))
        nodes = [_Node(number, self._alignment.atoms_within(*each[:2])) for number, each in enumerate(inlines)]
        for node, inline in zip(nodes, inlines, strict=True):
            (nodes[inline.parent] if inline.parent >= 0 else self._whole).children.append(node)

    def insertions(self) -> Iterator[Insertion]:
        """Yield the tags in order."""
        atoms = self._alignment.target
        self._whole.run = (0, len(atoms))
        self._whole.begin, self._whole.end = (atoms[0][0], atoms[-1][1]) if atoms else (0, 0)
        level = [self._whole]
        while level:
            taken = Taken(len(atoms))
            for parent in level:
                self._place_children(parent, taken)
            level = [node for parent in level for node in parent.children]
        yield from self._in_order()

    def _in_order(self) -> Iterator[Insertion]:
        stack: list[_Node | Insertion] = [self._whole]
        while stack:
            node = stack.pop()
            if isinstance(node, Insertion):
                yield node
                continue
            if node.inline >= 0:
                yield Insertion(node.begin, node.inline)
                stack.append(Insertion(node.end, node.inline, closing=True))
            stack.extend(reversed(node.children))

    def _place_children(self, parent: _Node, taken: Taken) -> None:
        """Place elements, the surest first, then what has no word of its own."""
        with_words = [node for node in parent.children if node.atoms]
        without = [node for node in parent.children if not node.atoms]
        if len(with_words) > 1:
            with_words.sort(key=lambda node: self._runs.order(node.atoms))
        for node in with_words:
            run = parent.run if node.atoms == parent.atoms else self._runs.best(node.atoms, parent.run, taken)
            if run is None or run[0] >= run[1]:
                without.append(node)
                continue
            node.run = run
            taken.take(run)
            node.begin, node.end = self._alignment.target[run[0]][0], self._alignment.target[run[1] - 1][1]
            if run == parent.run:
                node.begin, node.end = parent.begin, parent.end
        for node in without:
            self._place_point(node, parent, taken)
        parent.children.sort(key=attrgetter("begin", "end", "inline"))

    def _place_point(self, node: _Node, parent: _Node, taken: Taken) -> None:
        """Place something without target words before or after a word, and outside the elements beside it."""
        if parent.run[0] >= parent.run[1]:
            node.begin = node.end = parent.begin
            return
        position = self._inlines[node.inline].begin
        first = self._alignment.atoms_within(position, position).start
        if node.atoms:
            cut, after = self._after(node.atoms.start, parent), True
        elif first <= parent.atoms.start:
            cut, after = parent.run[0], False
        elif first >= parent.atoms.stop:
            cut, after = parent.run[1], True
        elif self._alignment.source[first - 1][1] == position and not self._is_at_kept(first, position):
            cut, after = self._after(first - 1, parent), True
        else:
            cut, after = self._before(first, parent), False
        cut = taken.outside(min(max(cut, parent.run[0]), parent.run[1]), after=after)
        node.run = cut, cut
        node.begin = node.end = self._character(cut, parent, after=after)

    def _is_at_kept(self, atom: int, position: int) -> bool:
        """Return whether a source atom that is kept begins at a position, and the one before it is not kept."""
        alignment = self._alignment
        is_kept = bool(alignment.kept_source[atom]) and not alignment.kept_source[atom - 1]
        return is_kept and alignment.source[atom][0] == position

    def _before(self, atom: int, parent: _Node) -> int:
        """Return the first target atom that a source atom claims, or the next one that claims any."""
        atom = self._next_claiming[atom]
        claims = self._alignment.claims[atom] if atom < parent.atoms.stop else []
        return min((target for target, _ in claims), default=parent.run[1])

    def _after(self, atom: int, parent: _Node) -> int:
        """Return the end of what a source atom claims, or the last one before it that claims any."""
        atom = self._last_claiming[atom]
        claims = self._alignment.claims[atom] if atom >= parent.atoms.start else []
        return max((target + 1 for target, _ in claims), default=parent.run[0])

    def _character(self, cut: int, parent: _Node, *, after: bool) -> int:
        """Return the position in the target of what comes before an atom, at the end of the atom before it if
        `after`.
        """
        atoms = self._alignment.target
        if cut <= parent.run[0]:
            return parent.begin
        if cut >= parent.run[1]:
            return parent.end
        return atoms[cut - 1][1] if after else atoms[cut][0]


# Which run of target atoms an element gets: the one that holds the most of what it claims, and the least of others.

LEAST_SHARE = 0.1  # of a source word: a target word that has less of it is not its second best


class Runs:
    """A search for runs by the claims of all atoms."""

    def __init__(self, alignment: AtomAlignment) -> None:
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

    def best(self, atoms: range, within: AtomRun, taken: Taken) -> AtomRun | None:
        """Return the run for source atoms in a run of their parent, or None if there is no room for it.

        It begins and ends with atoms that are claimed, and punctuation of its own. What is claimed far from the rest
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
        """Return whether one of the target atoms is not punctuation."""
        return any(self._alignment.target_marks[target] is Mark.NONE for target in targets)

    def _claims(self, atoms: range) -> Iterable[Claim]:
        """Return what atoms claim, and the ends of the segments that they are the whole of."""
        for atom in atoms:
            yield from self._alignment.claims[atom]
        for segment in self._alignment.segments_within(atoms):
            words, target = segment.source_words, segment.target_words
            if target and not all(self._alignment.kept_source[words.start : words.stop]):
                yield from (Claim(target[0], KEPT), Claim(target[-1], KEPT))

    def _second_best(self, atoms: range, within: AtomRun, taken: Taken) -> dict[int, float]:
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

    def _densest(self, own: dict[int, float], taken: Taken) -> AtomRun:
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


# Where a run of target atoms begins and ends among quotation marks, brackets and stops.
# Punctuation stays on the side of a tag on which the source has it: a tag ends before a mark that is outside of it in
# the source, and after one that is inside.

_AT_ENDS = frozenset({Mark.QUOTE, Mark.BRACKET, Mark.STOP})
_ALL = _AT_ENDS | {Mark.OTHER}
_PAIRED = frozenset({Mark.QUOTE, Mark.BRACKET})
_OPENING = "([{（［｛【〈《「『„‚«‹“‘"
_ALWAYS = frozenset("()[]{}（）［］｛｝【】〈〉《》「」『』„‚")  # marks that open, or close, in every language
_TURNED = "¿¡"  # at the begin of a sentence that ends with ? or !


class Edges:
    """A mover of the ends of runs."""

    def __init__(self, alignment: AtomAlignment) -> None:
        self._alignment = alignment
        self._source_pairs = _MarkPairs(alignment.source_text, alignment.source, alignment.source_marks)
        self._target_pairs = _MarkPairs(alignment.target_text, alignment.target, alignment.target_marks)
        segments = [each for each in alignment.segments if each.source and each.target]
        self._beginning = {each.source.start: each for each in segments}
        self._ending = {each.source.stop: each for each in segments}

    def moved(self, atoms: range, run: AtomRun, own: Mapping[int, float], within: AtomRun, taken: Taken) -> AtomRun:
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
        """Return where the translation of a segment ends. See `_begin_of_segment`."""
        segment = self._ending.get(atoms.stop)
        is_own = segment is not None and (after.total() > 0 or atoms.start <= segment.source.start)
        return segment.target.stop if segment is not None and is_own else None

    def _begin(
        self, begin: int, before: Counter[Mark], first: int | None, within: AtomRun, taken: Taken, *, turned: bool
    ) -> int:
        """Return the begin of a run with the marks before it that belong to it.

        before: the marks at the begin of the source; turned: whether it ends with a stop
        first: see `_begin_of_segment`. All marks up to it belong to the run
        """
        found = begin
        while begin > within[0] and self._is_mark(begin - 1, taken) and first != begin:
            begin -= 1
            position, mark = self._alignment.target[begin][0], self._alignment.target_marks[begin]
            is_own = before[mark] > 0 or (turned and self._alignment.target_text[position] in _TURNED)
            if is_own and found == begin + 1:
                before[mark] -= 1
                found = begin
        return begin if first == begin else found

    def _end(self, end: int, after: Counter[Mark], last: int | None, within: AtomRun, taken: Taken) -> int:
        """Return the end of a run with the marks after it that belong to it. See `_begin`."""
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

    def _balanced(
        self, core: AtomRun, run: AtomRun, own: Mapping[int, float], within: AtomRun, taken: Taken
    ) -> AtomRun:
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
        cuts = pairwise([run[0], *(position for mark in single for position in (mark, mark + 1)), run[1]])
        parts = [_without_ends(marks, part, _ALL) for part in islice(cuts, 0, None, 2)]

        def claimed(part: AtomRun) -> float:
            return sum(own.get(atom, 0.0) for atom in range(*part))

        def rank(part: AtomRun) -> tuple[bool, float]:
            return self._target_pairs.depths[part[0]] == depth, claimed(part)

        certain = claimed(run) // KEPT  # what is kept, and the ends of whole segments, stay in the run
        parts = [part for part in parts if part[0] < part[1] and claimed(part) // KEPT == certain]
        return max(parts, key=rank, default=run)

    def _with_pairs(self, run: AtomRun, within: AtomRun, taken: Taken) -> AtomRun:
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


class _MarkPairs:
    """The quotation marks and brackets of a text.

    depths: for each atom, how many pairs are open before it, as far as it is known
    """

    def __init__(self, text: str, atoms: Sequence[Span], marks: Sequence[Mark]) -> None:
        self._opens = {number: _opens(text, atoms[number]) for number, mark in enumerate(marks) if mark in _PAIRED}
        self._positions = list(self._opens)
        self.depths, depth = list[int](), 0
        for number in range(len(atoms)):
            self.depths.append(depth)
            if (opens := self._opens.get(number)) is not None:
                depth = depth + 1 if opens else max(depth - 1, 0)

    def opens(self, atom: int) -> bool | None:
        """Return whether an atom opens a pair, or None if it is none."""
        return self._opens.get(atom)

    def within(self, run: AtomRun) -> list[int]:
        """Return the marks of a run."""
        return self._positions[bisect_left(self._positions, run[0]) : bisect_left(self._positions, run[1])]

    def single(self, run: AtomRun) -> list[int]:
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
    position, end = mark
    character, before, after = text[position], text[position - 1 : position], text[end : end + 1]
    if character in _ALWAYS:
        return character in _OPENING
    blank_before = not before or before.isspace()
    if blank_before != (not after or after.isspace()):
        return blank_before
    if blank_before:
        return character in _OPENING
    return not before.isalnum() and (after.isalnum() or before in _OPENING)


def _without_ends(marks: Sequence[Mark], atoms: AtomRun, kinds: frozenset[Mark] = _AT_ENDS) -> AtomRun:
    """Return atoms without the marks of these kinds at their ends, empty if there are no others."""
    begin, end = atoms
    while begin < end and marks[begin] in kinds:
        begin += 1
    while begin < end and marks[end - 1] in kinds:
        end -= 1
    return begin, end


# Which runs of target atoms elements with one parent have already.

AtomRun = tuple[int, int]  # target atoms; the end is exclusive


class Taken:
    """The runs that elements with one parent have already, by atom."""

    def __init__(self, atoms: int) -> None:
        self._marks = bytearray(atoms + 1)  # 1 at the first atom of a run, 2 at the others
        self._ends: dict[int, int] = {}

    def take(self, run: AtomRun) -> None:
        """Note a run."""
        begin, end = run
        self._marks[begin:end] = b"\1" + b"\2" * (end - begin - 1)
        self._ends[begin] = end

    def is_free(self, atom: int) -> bool:
        """Return whether no run has an atom."""
        return not self._marks[atom]

    def between(self, first: int, last: int) -> bool:
        """Return whether a run is between two free atoms."""
        return self._marks.find(b"\1", first, last) >= 0

    def outside(self, position: int, *, after: bool) -> int:
        """Return a position before an atom, or if it is within a run, the end of that run on one side."""
        if self._marks[position] != 2:
            return position
        begin = self._marks.rfind(b"\1", 0, position)
        return self._ends[begin] if after else begin
