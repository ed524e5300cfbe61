"""What the encoder has put out for the latest sources that may be decoded again, so that it does not run once more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lingon.serving.decoding.job import DecodeJob
from lingon.serving.runtime.runner import Encoded

MOST_BYTES = 32 << 20  # bytes of one worker: about 600 sentences of a small model, 60 of a large one


class EncodedSource(NamedTuple):
    """A sentence of an encoder batch, and its row there."""

    batch: Encoded
    row: int


class EncodedSources:
    """The latest encoder batches with a source that may be decoded again. A batch is kept whole, so nothing is copied.

    Arrays of a device are not kept. The encoder's output for a source does not depend on its batch, so that a job has
    the same results with and without this.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._batches: deque[tuple[list[tuple[int, ...]], Encoded]] = deque()  # with their sources, the oldest first
        self._sources: dict[tuple[int, ...], EncodedSource] = {}

    def find(self, source_ids: tuple[int, ...]) -> EncodedSource | None:
        """Return the output for a source, or None if it is not kept."""
        return self._sources.get(source_ids) if self._sources else None

    def keep(self, jobs: Iterable[DecodeJob], batch: Encoded) -> None:
        """Keep the output for those sources of a batch whose jobs ask for it; jobs: in the order of the batch."""
        rows = {job.source_ids: row for row, job in enumerate(jobs) if job.options.keep_encoded}
        size = _bytes_of(batch)
        if not rows or size is None or size > self._most_bytes:
            return
        self._batches.append(([*rows], batch))
        self._sources |= {source: EncodedSource(batch, row) for source, row in rows.items()}
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._drop_oldest()

    def free(self) -> None:
        """Keep nothing."""
        self._batches.clear()
        self._sources.clear()
        self._bytes = 0

    def _drop_oldest(self) -> None:
        sources, batch = self._batches.popleft()
        self._bytes -= _bytes_of(batch) or 0
        for each in sources:
            if self._sources[each].batch is batch:
                del self._sources[each]


def _bytes_of(batch: Encoded) -> int | None:
    """Return the bytes of a batch in main memory, or None if it is elsewhere."""
    arrays = batch.values()
    return sum(each.nbytes for each in arrays) if all(isinstance(each, np.ndarray) for each in arrays) else None
