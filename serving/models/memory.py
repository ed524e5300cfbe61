"""How much memory a server and its models may need, and how freed memory goes back to the system.

The formulas have their parts in the log.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

from lingon.identifiers import IDENTIFIER_BYTES, identifier_is_installed
from lingon.machine import granted_bytes, resident_bytes
from lingon.serving.observability.logs import event
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime.device import CUDA, card_bytes
from lingon.serving.settings import DOCUMENT_BYTES, DOCUMENT_PROCESSES, HELD_BYTES, HTTP_BYTES, SLOW_BYTES
from lingon.serving.translation.translator import Translator

_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": ("glibc.malloc.arena_max", -8, 2),
    "MALLOC_MMAP_THRESHOLD_": ("glibc.malloc.mmap_threshold", -3, 256 * 1024),
}
"""By environment variable: the name of the same setting in GLIBC_TUNABLES, its number for mallopt, and our value."""


def release_memory(objects: list[object]) -> None:
    """Empty the list and return the memory of its objects to the system. The list holds the last references to them.

    Call this on a background thread: both parts take some milliseconds. glibc keeps freed memory for the next
    allocation: a server whose models were swapped, each loaded on its own thread, grew by 85 MB with every model of
    10 MB.
    """
    objects.clear()
    gc.collect()  # The errors of finished calls hold their frames in reference cycles, and the frames hold a model.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # Other C libraries than glibc keep little.
        trim(0)


def limit_malloc_caches() -> None:
    """Configure glibc to return freed memory to the system; settings in the environment win. Call before any thread.

    MALLOC_MMAP_THRESHOLD_: at first, glibc maps large blocks from the system and unmaps them when they are freed.
    Once one is freed, glibc takes all blocks up to that size from a heap. There they leave holes, and the buffers of
    decoder states are filled with zeros instead of being untouched pages.
    MALLOC_ARENA_MAX: by default, threads have their own heaps, up to eight per core.
    In four minutes of mixed traffic with six swaps of the shipped model, a server grew from 304 to 428 MB; with these
    settings it stays at 270 MB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (tunable, parameter, value) in _MALLOC_SETTINGS.items():
        if variable not in os.environ and tunable not in os.environ.get("GLIBC_TUNABLES", ""):
            mallopt(parameter, value)


MIB = 1 << 20
WEIGHT_COPIES = 3  # of a model on a card: decoder steps, greedy steps and the scorer each hold those of the decoder
PARSED = 30  # bytes in memory for each byte of the largest request: two bytes may make an empty message of 60
EMPTY_PROCESS = 32 << 20  # bytes; of a process that reads documents, before the first
COPIES = 5  # of the bytes of bodies of HTTP: a body, its texts of 2 bytes a character, its parts; 2.8 to 4.7 measured
CONNECTION_BYTES = 49_152  # of a connection of HTTP beyond what all share; with 120 headers 25 KiB, and 20 for TLS
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The parts of the memory that a server may need, in bytes.

    resident: what it has when its models are loaded and warm
    states: decoder states of all rows of all models, with the longest sources, and batches that are kept for reuse
    runs: the largest run of every worker
    requests: what tells many languages apart, the largest request, parsed, what open calls may hold of requests that
        arrive or are whole, bodies and connections of HTTP, documents that are read or written
    card: what models on a graphics card may need there; not in the total
    """

    resident: int
    states: int
    runs: int
    requests: int
    card: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.resident + self.states + self.runs + self.requests


def memory_need(translators: Iterable[Translator], max_message_bytes: int, *, http_connections: int = 0) -> MemoryNeed:
    """Return what a server with these models may need; call it when they are warm.

    http_connections: that its HTTP APIs may have; 0 without HTTP APIs
    """
    found = list(translators)
    here = [each.engine for each in found if each.provider != CUDA]
    states, runs = sum(each.state_bytes for each in here), sum(each.run_bytes for each in here)
    identifier = IDENTIFIER_BYTES if identifier_is_installed() else 0
    requests = identifier + PARSED * max_message_bytes + SLOW_BYTES + HELD_BYTES
    if http_connections:  # bodies have copies; what connections hold is counted with its copies
        requests += COPIES * HTTP_BYTES + HTTP_BYTES + CONNECTION_BYTES * http_connections
        requests += DOCUMENT_PROCESSES * (EMPTY_PROCESS + DOCUMENT_BYTES)
    card = sum(
        WEIGHT_COPIES * each.graph_bytes + each.engine.state_bytes + each.engine.run_bytes
        for each in found
        if each.provider == CUDA
    )
    return MemoryNeed(resident_bytes(), states, runs, requests, card)


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
    if need.card:
        _report_card(need.card, card_bytes())


def _report_card(need: int, size: int | None) -> None:
    """Log what the models on a card may need there; warn if the card is smaller."""
    message = f"may need {need // MIB} MiB of the graphics card"
    if size is not None and need > size:
        message += f", more than its {size // MIB} MiB; lower max_rows or serve fewer models"
        event(logger, logging.WARNING, message)
    else:
        event(logger, logging.INFO, message)
