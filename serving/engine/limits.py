"""The limits of an engine, and of a worker by its memory. Fast to import, because settings use these defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from lingon.errors import SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLimits:
    """Bounds of the queue of an engine, and of the work that it decodes together."""

    max_queue_texts: int = 1024  # sentences
    max_queue_tokens: int = 65_536  # tokens of sources, and of targets to score
    max_rows: int = 64  # sentences times beam size, over all workers
    spread: int = 16  # sentences; from this number or the runner's on, work is spread over workers, see `Runner`
    max_attention_weights: int = 2**19  # weights in all matrices of a result: 2 MiB, see the proto file
    max_batch_tokens: int = 1024  # tokens of one encoder run, padding included; larger runs leave the CPU's caches

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise SettingsError(f"{each.name} must be at least 1, got {getattr(self, each.name)}")


RECOVERY_SECONDS = 60.0  # seconds; shortest time of lower limits after a lack of memory


@dataclass(slots=True)
class MemoryLimits:
    """The most work that a worker decodes together: the engine's limits, or lower ones after a lack of memory.

    Times are in seconds of one clock.
    """

    engine: EngineLimits
    rows: int = field(init=False)
    batch_tokens: int = field(init=False)
    lacked: float = field(init=False)  # time of the latest lack of memory; minus infinity without one

    def __post_init__(self) -> None:
        self.restore()

    def halve_rows(self, now: float) -> None:
        """Halve the rows, because a step or the states of a batch lacked memory."""
        self.rows, self.lacked = max(self.rows // 2, 1), now

    def halve_tokens(self, now: float) -> None:
        """Halve the tokens of a run of the encoder, because a run lacked memory."""
        self.batch_tokens, self.lacked = max(self.batch_tokens // 2, 1), now

    @property
    def lowered(self) -> bool:
        return self.lacked > -math.inf

    def may_rise(self, now: float) -> bool:
        """Return whether limits were halved, the last one RECOVERY_SECONDS ago or longer."""
        return self.lowered and self.lacked < now - RECOVERY_SECONDS

    def restore(self) -> None:
        """Restore the limits of the engine."""
        self.rows, self.batch_tokens, self.lacked = self.engine.max_rows, self.engine.max_batch_tokens, -math.inf


def encoder_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return the indices of sources in batches of similar length, the longest first.

    Each batch has at most max_tokens of padded source, or is a single source. Shorter sources can join the running
    batch that a longer one opens, not the reverse: a batch for each width takes as many steps more.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
