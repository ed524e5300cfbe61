"""How fast an engine works, and so when work that comes now would be done. Pure: the time is told.

Costs are source tokens times rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from lingon.serving.decoding.job import DecodeJob, Job

ROUND = 4  # turns from one admission to the next while a batch runs, see `joins`
SMALL = 8  # rows of a batch that everybody joins at once

WINDOW = 0.2  # seconds of a measurement of the rate
NEWEST = 0.3  # weight of the newest measurement of the rate
JOB = 0.05  # weight of the newest job in how long a job runs


class ThroughputEstimator:
    """Learns from what an engine does while it has enough to do; before that it predicts nothing."""

    def __init__(self) -> None:
        self._rate: float | None = None  # cost taken in a second
        self._run: float | None = None  # seconds from a job's beginning to its end, for each source token
        self._since: float | None = None  # from when on there was always somebody waiting
        self._cost = 0.0  # taken since then

    def took(self, cost: float, now: float, *, more: bool) -> None:
        """Work of this cost was begun; more: whether more still waits."""
        self._cost += cost
        if not more:  # from here on the engine may be slow for want of work
            self._since, self._cost = None, 0.0
        elif self._since is None:
            self._since, self._cost = now, 0.0
        elif now - self._since >= WINDOW:
            rate = self._cost / (now - self._since)
            self._rate = rate if self._rate is None else self._rate + NEWEST * (rate - self._rate)
            self._since, self._cost = now, 0.0

    def ran(self, source_tokens: int, seconds: float) -> None:
        """A job was done, so long after it was begun."""
        run = seconds / source_tokens
        self._run = run if self._run is None else self._run + JOB * (run - self._run)

    def seconds_to(self, ahead: float, source_tokens: int) -> float:
        """Until a job of so many tokens is done that has work of cost `ahead` before it."""
        waits = ahead / self._rate if self._rate else 0.0
        return waits + (self._run or 0.0) * source_tokens


def rows_of(job: Job) -> int:
    """How many rows a job takes while it runs."""
    return job.options.beam_size if isinstance(job, DecodeJob) else 1


def fair_share(worker: int, running_rows: Sequence[int], waiting_rows: int, *, few: bool) -> int:
    """Rows up to which a worker may fill its batch: all there are while sentences are few, else the mean of all.

    A few sentences are done sooner in one batch with all cores to itself than in several that share them.

    running_rows: of each worker, waiting_rows: that there is room for
    """
    if not few:
        return -(-(sum(running_rows) + waiting_rows) // len(running_rows))
    fullest = running_rows[worker] == max(running_rows)
    return running_rows[worker] + (waiting_rows if fullest else 0)


def joins(running_rows: int, joining_rows: int, turns: int) -> bool:
    """Whether those who wait join a batch now, `turns` turns after others did.

    Sentences that join together are encoded together, which takes less time for each (short ones half as much in tens
    as in threes), and share the gathering of a shortlist's output rows. So they join in rounds; a small batch gains
    more from a row than it loses, and is not kept waiting.

    joining_rows: that wait and find room
    """
    return running_rows < SMALL or turns >= ROUND or 2 * joining_rows >= running_rows


def cost_of(job: Job) -> int:
    """What a job takes of an engine, about: source tokens times rows."""
    return len(job.source_ids) * rows_of(job)


def encoder_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Places of sources in batches of like length, each within max_tokens of padded source (or a single source)."""
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[place] <= max_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches
