"""Which runs of target atoms elements with one parent have already."""

from __future__ import annotations

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
