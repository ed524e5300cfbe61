"""The cost of work of an engine. All code that orders, limits or forecasts work counts in the unit of this module.

The unit is the work of one source token of a greedy translation: it is encoded, and one target token is decoded for it.
`python -m lingon.bench.tools.costs BUNDLE` measures the constants, except RESTRICT and FORCE, which follow from
`bench/results/2026-11-22-choosing.json`. The constants differ between models. These values lie between a model of 5
and one of 60 million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lingon.bundle.manifest import Defaults
from lingon.serving.decoding.job import DecodeJob, Job

ENCODE = 0.4  # units; a source token in the encoder
DECODE = 0.6  # units; a target token of one row in the decoder
SCORE = 0.5  # units; a target token in the scorer, which computes all logits
SAMPLE = 0.5  # units; a sampled token, beyond its decoding
RESTRICT = 0.4  # units; a token of a request with restrictions, beyond its decoding
FORCE = 1.0  # units; a token of a request with forced words, beyond RESTRICT

WINDOW = 0.2  # seconds; the rate is measured over this time
TYPICAL_WEIGHT = 0.05  # weight of the latest call in the size of a typical one
MAX_TYPICAL = 1000  # callers with a recorded typical call
RATE_WEIGHT = 0.3  # weight of the latest measurement of the rate
RUN_WEIGHT = 0.05  # weight of the latest job in the running time of jobs


@dataclass(frozen=True, slots=True)
class ChargedModel:
    """What the charge of a request depends on in a model.

    defaults: its values for options that a request does not set
    steps_attend: whether its search says where it looked, so that an alignment takes no run of the scorer
    """

    defaults: Defaults = field(default_factory=Defaults)
    steps_attend: bool = False


UNKNOWN_MODEL = ChargedModel()


def token_cost(*, sampled: bool, restricted: bool, forced: bool) -> float:
    """Return the units of a target token of one row."""
    return DECODE + SAMPLE * sampled + RESTRICT * restricted + FORCE * forced


def cost_of(job: Job) -> int:
    """Return the work of a job in units, at least 1. A translation counts at most as many tokens as its source."""
    if not job.cost:
        if isinstance(job, DecodeJob):
            known = 0 if job.past is None else job.past.length
            target_tokens = min(len(job.source_ids), job.options.max_output_tokens) + len(job.prefix) - known
            job.cost = cost_of_steps(job, target_tokens)
        else:
            job.cost = max(round(ENCODE * len(job.source_ids) + SCORE * (len(job.target_ids) + 1)), 1)
    return job.cost


def cost_of_steps(job: DecodeJob, target_tokens: int) -> int:
    """Return the work of a translation whose rows have so many target tokens each."""
    options, token = job.options, DECODE
    if options.sampling is not None or options.rules is not None:
        sampled = options.sampling is not None
        token = token_cost(sampled=sampled, restricted=options.restricts, forced=options.forces_words)
    return max(round(ENCODE * len(job.source_ids) + token * target_tokens * options.beam_size), 1)


@dataclass(slots=True)
class CallSize:
    """The size of a call: its work in units, and the tokens of its longest source."""

    cost: float
    tokens: float


class TypicalCalls:
    """The size of a typical call of each caller, because large calls of one caller do not predict those of others."""

    def __init__(self) -> None:
        self._sizes: dict[str, CallSize] = {}

    def record(self, caller: str, cost: int, tokens: int) -> None:
        """Update the typical call of a caller with a call."""
        known = self._sizes.get(caller)
        if known is None:
            if len(self._sizes) >= MAX_TYPICAL:
                self._sizes.clear()
            self._sizes[caller] = CallSize(cost, tokens)
        else:
            known.cost += TYPICAL_WEIGHT * (cost - known.cost)
            known.tokens += TYPICAL_WEIGHT * (tokens - known.tokens)

    def of(self, caller: str) -> CallSize:
        """Return the size of a typical call of a caller, or a tiny one for an unknown caller."""
        return self._sizes.get(caller, CallSize(0.0, 0.0))


class ThroughputEstimator:
    """A prediction of the end of new work, from the throughput of an engine while its queue is not empty.

    It predicts nothing before its first measurement. The caller passes the time.
    """

    def __init__(self) -> None:
        self._rate: float | None = None  # units started per second
        self._run: float | None = None  # seconds from the start of a job to its end, per source token
        self._since: float | None = None  # seconds; the queue has not been empty since then
        self._cost = 0.0  # units started since then

    def record_start(self, cost: float, now: float, *, more: bool) -> None:
        """Record the start of work; more: whether the queue still holds work."""
        self._cost += cost
        if not more:  # an engine that lacks work may be slow from here on
            self._since, self._cost = None, 0.0
        elif self._since is None:
            self._since, self._cost = now, 0.0
        elif now - self._since >= WINDOW:
            rate = self._cost / (now - self._since)
            self._rate = rate if self._rate is None else self._rate + RATE_WEIGHT * (rate - self._rate)
            self._since, self._cost = now, 0.0

    def record_end(self, source_tokens: int, seconds: float) -> None:
        """Record the end of a translation, so many seconds after its start."""
        run = seconds / source_tokens
        self._run = run if self._run is None else self._run + RUN_WEIGHT * (run - self._run)

    def estimate(self, cost_ahead: float, source_tokens: float) -> float:
        """Return the seconds until work ends that has work of this cost queued before it.

        source_tokens: tokens of the longest sentence to translate; 0 without one
        """
        wait = cost_ahead / self._rate if self._rate else 0.0
        return wait + (self._run or 0.0) * source_tokens
