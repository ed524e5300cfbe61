"""How much memory a server may need, by a formula whose parts are in the log, and whether it may have that much."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from lingon.serving.engine.engine import Engine
from lingon.serving.observability.logs import event
from lingon.serving.observability.metrics import Metrics
from lingon.serving.settings import HELD_BYTES, SLOW_BYTES
from lingon.serving.system.memory import granted_bytes, resident_bytes

MIB = 1 << 20
PARSED = 30  # bytes in memory for each byte of the largest request: two bytes may make an empty message of 60
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The parts of the memory that a server may need, in bytes.

    resident: what it has when its models are loaded and warm
    states: decoder states of all rows of all models, with the longest sources, and batches that are kept for reuse
    runs: the largest run of every worker
    requests: the largest request, parsed, and what open calls may hold of requests that arrive or are whole
    """

    resident: int
    states: int
    runs: int
    requests: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.resident + self.states + self.runs + self.requests


def memory_need(engines: Iterable[Engine], max_message_bytes: int) -> MemoryNeed:
    """Return what a server with these engines may need; call it when they are warm."""
    found = list(engines)
    states, runs = sum(each.state_bytes for each in found), sum(each.run_bytes for each in found)
    requests = PARSED * max_message_bytes + SLOW_BYTES + HELD_BYTES
    return MemoryNeed(resident_bytes(), states, runs, requests)


def report_memory(need: MemoryNeed, metrics: Metrics) -> None:
    """Log the formula and set its gauges; warn if the server may not have that much."""
    limit = granted_bytes()
    metrics.memory_need.set(need.total)
    metrics.memory_limit.set(limit or 0)
    fields = {
        "resident_mib": need.resident // MIB,
        "states_mib": need.states // MIB,
        "runs_mib": need.runs // MIB,
        "requests_mib": need.requests // MIB,
    }
    message = f"may need {need.total // MIB} MiB of memory"
    if limit is not None and need.total > limit:
        message += f", more than its limit of {limit // MIB} MiB; raise the limit or lower max_rows"
        event(logger, logging.WARNING, message, **fields)
    else:
        event(logger, logging.INFO, message, **fields)
