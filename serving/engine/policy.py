"""Scheduling policy on plain numbers: row shares, admission rounds, encoder batches, and estimates of completion.

The cost of a job is its source tokens times its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from lingon.serving.decoding.job import DecodeJob, Job

ROUND = 4  # steps between two admissions to a running batch, see `admits`
SMALL = 8  # rows; a smaller batch admits jobs at every step

WINDOW = 0.2  # seconds over which the rate is measured
RATE_WEIGHT = 0.3  # weight of the latest measurement of the rate
RUN_WEIGHT = 0.05  # weight of the latest job in the running time of jobs


class ThroughputEstimator:
    """Estimates when new work would be done, from the throughput of an engine while its queue is not empty.

    It predicts nothing before it has measured something. The caller passes the time.
    """

    def __init__(self) -> None:
        self._rate: float | None = None  # cost started per second
        self._run: float | None = None  # seconds from the start of a job to its end, for each source token
        self._since: float | None = None  # seconds; from then on the queue was never empty
        self._cost = 0.0  # started since then

    def record_start(self, cost: float, now: float, *, more: bool) -> None:
        """Record that work was started; more: whether the queue still holds work."""
        self._cost += cost
        if not more:  # from here on the engine may be slow because it lacks work
            self._since, self._cost = None, 0.0
        elif self._since is None:
            self._since, self._cost = now, 0.0
        elif now - self._since >= WINDOW:
            rate = self._cost / (now - self._since)
            self._rate = rate if self._rate is None else self._rate + RATE_WEIGHT * (rate - self._rate)
            self._since, self._cost = now, 0.0

    def record_end(self, source_tokens: int, seconds: float) -> None:
        """Record that a job ended so many seconds after its start."""
        run = seconds / source_tokens
        self._run = run if self._run is None else self._run + RUN_WEIGHT * (run - self._run)

    def estimate(self, cost_ahead: float, source_tokens: int) -> float:
        """Return the seconds until a job is done that has work of this cost before it."""
        wait = cost_ahead / self._rate if self._rate else 0.0
        return wait + (self._run or 0.0) * source_tokens


def rows_of(job: Job) -> int:
    """Return the rows of a batch that a job takes."""
    return job.options.beam_size if isinstance(job, DecodeJob) else 1


def cost_of(job: Job) -> int:
    """Return the approximate work of a job."""
    return len(job.source_ids) * rows_of(job)


def fair_share(worker: int, running_rows: Sequence[int], waiting_rows: int, *, few: bool) -> int:
    """Return the rows up to which a worker may fill its batch: all while sentences are few, else the mean of all.

    A few sentences are done sooner in one batch that has all cores than in several batches that share them.

    running_rows: of each worker; waiting_rows: queued rows for which the limit leaves capacity
    """
    if not few:
        return -(-(sum(running_rows) + waiting_rows) // len(running_rows))
    fullest = running_rows[worker] == max(running_rows)
    return running_rows[worker] + (waiting_rows if fullest else 0)


def admits(running_rows: int, joining_rows: int, steps: int) -> bool:
    """Whether a running batch admits queued jobs now, `steps` steps after its last admission.

    Sentences that join together are encoded together, which takes less time for each (short ones take half the time in
    tens than in threes), and they share the gathering of a shortlist's output rows. So jobs join in rounds. A small
    batch gains more from another row than it loses, and admits at every step.

    joining_rows: queued rows for which the limit leaves capacity
    """
    return running_rows < SMALL or steps >= ROUND or 2 * joining_rows >= running_rows


def encoder_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return the indices of sources in batches of similar length.

    Each batch has at most max_tokens of padded source, or is a single source.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
