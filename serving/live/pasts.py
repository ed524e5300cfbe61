"""The decoder's states of the drafts of many speakers, within a bound of memory.

A draft begins with what is agreed, whose states the draft before it has. A speaker without states has lost nothing but
time: its next draft computes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from lingon.serving.runtime.runner import SavedPast


class Pasts:
    """The latest states of each speaker. Above a size those that were used least recently leave.

    Belongs to the event loop.

    size: bytes of all states; most_bytes: their bound
    """

    def __init__(self, most_bytes: int) -> None:
        """most_bytes: of all states; 0 keeps none."""
        self.most_bytes = most_bytes
        self._of_speakers: OrderedDict[Hashable, tuple[SavedPast, int]] = OrderedDict()  # with their bytes
        self.size = 0

    def __len__(self) -> int:
        return len(self._of_speakers)

    def keep(self, speaker: Hashable, past: SavedPast | None) -> None:
        """Replace the states of a speaker; None, and states above the bound alone, leave it without any."""
        self.drop(speaker)
        if past is None or (size := past.nbytes) > self.most_bytes:
            return
        self._of_speakers[speaker] = past, size
        self.size += size
        while self.size > self.most_bytes:
            self.drop(next(iter(self._of_speakers)))

    def of(self, speaker: Hashable) -> SavedPast | None:
        """Return the states of a speaker, or None if it has none."""
        kept = self._of_speakers.get(speaker)
        if kept is None:
            return None
        self._of_speakers.move_to_end(speaker)
        return kept[0]

    def drop(self, speaker: Hashable) -> None:
        """Forget the states of a speaker, which may have none."""
        kept = self._of_speakers.pop(speaker, None)
        if kept is not None:
            self.size -= kept[1]
