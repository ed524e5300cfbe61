"""Places the inline tags of a text in its translation: each exactly once, and nested as in the source.

An element gets the run of target words that its source words claim, inside the run of its parent; elements with one
parent get runs without overlap. A point stays before or after the word that it is at. An element for which no word is
left becomes empty, at its place.

A kept string is one atom, which is aligned to its copy: no tag comes into it, and an element right around it stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from lingon.segments.placing.alignment import Alignment
from lingon.segments.placing.inlines import Aligned, Inline, Insertion, around, boundaries
from lingon.segments.placing.runs import Runs
from lingon.segments.placing.taken import Run, Taken


def place(source: str, target: str, segments: Sequence[Aligned], inlines: Sequence[Inline]) -> list[Insertion]:
    """Return the tags of a text in the order in which they come in its translation; a point has an end tag too.

    segments: of the source in order, each with its translation; the rest of both texts is white space, or
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
    run: Run = (0, 0)
    begin: int = 0
    end: int = 0


class _Placer:
    def __init__(self, source: str, target: str, segments: Sequence[Aligned], inlines: Sequence[Inline]) -> None:
        self._inlines = inlines
        self._alignment = Alignment(source, target, segments, boundaries(inlines))
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
        parent.children.sort(key=_order)

    def _place_point(self, node: _Node, parent: _Node, taken: Taken) -> None:
        """Place something without target words before or after a word, and outside the elements beside it."""
        if parent.run[0] >= parent.run[1]:
            node.begin = node.end = parent.begin
            return
        place = self._inlines[node.inline].begin
        first = self._alignment.atoms_within(place, place).start
        if node.atoms:
            cut, after = self._after(node.atoms.start, parent), True
        elif first <= parent.atoms.start:
            cut, after = parent.run[0], False
        elif first >= parent.atoms.stop:
            cut, after = parent.run[1], True
        elif self._alignment.source[first - 1][1] == place and not self._is_at_kept(first, place):
            cut, after = self._after(first - 1, parent), True
        else:
            cut, after = self._before(first, parent), False
        cut = taken.outside(min(max(cut, parent.run[0]), parent.run[1]), after=after)
        node.run = cut, cut
        node.begin = node.end = self._character(cut, parent, after=after)

    def _is_at_kept(self, atom: int, place: int) -> bool:
        """Whether a source atom that is kept begins at a place, and the one before it is not kept."""
        alignment = self._alignment
        is_kept = bool(alignment.kept_source[atom]) and not alignment.kept_source[atom - 1]
        return is_kept and alignment.source[atom][0] == place

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
        """Return the place in the target of what comes before an atom, at the end of the atom before it if `after`."""
        atoms = self._alignment.target
        if cut <= parent.run[0]:
            return parent.begin
        if cut >= parent.run[1]:
            return parent.end
        return atoms[cut - 1][1] if after else atoms[cut][0]


def _order(node: _Node) -> tuple[int, int, int]:
    return node.begin, node.end, node.inline
