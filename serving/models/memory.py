"""The memory that a server and its models may need, and the return of freed memory to the system.

The parts of each sum are logged.
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
from lingon.serving.settings import (
    DOCUMENT_BYTES,
    DOCUMENT_PROCESSES,
    GLOSSARY_BYTES,
    HELD_BYTES,
    HTTP_BYTES,
    SLOW_BYTES,
)
from lingon.serving.translation.translator import Translator

_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": ("glibc.malloc.arena_max", -8, 2),
    "MALLOC_MMAP_THRESHOLD_": ("glibc.malloc.mmap_threshold", -3, 256 * 1024),
}
"""By environment variable: the name of the same setting in GLIBC_TUNABLES, its number for mallopt, and our value."""


def release_memory(objects: list[object]) -> None:
    """Empty the list, which holds the last references to its objects, and return their memory to the system.

    Call this on a background thread, because both parts take some milliseconds. glibc keeps freed memory for the next
    allocation. A server that swapped models, each loaded on its own thread, grew by 85 MB with every model of 10 MB.
    """
    objects.clear()
    gc.collect()  # errors of finished calls hold their frames in reference cycles, and the frames hold a model
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # other C libraries than glibc keep little freed memory
        trim(0)


def limit_malloc_caches() -> None:
    """Configure glibc to return freed memory to the system. Settings in the environment win. Call before any thread.

    MALLOC_MMAP_THRESHOLD_: at first, glibc maps large blocks from the system and unmaps them when they are freed.
    Once one is freed, glibc allocates all blocks up to that size from a heap. They leave holes there, and the buffers
    of decoder states are filled with zeros instead of being untouched pages.
    MALLOC_ARENA_MAX: by default, threads have their own heaps, up to eight per core.
    In four minutes of mixed traffic with six swaps of the shipped model, a server grew from 304 to 428 MB. With these
    settings it stays at 270 MB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (tunable, parameter, value) in _MALLOC_SETTINGS.items():
        if variable not in os.environ and tunable not in os.environ.get("GLIBC_TUNABLES", ""):
            mallopt(parameter, value)


MIB = 1 << 20
WEIGHT_COPIES = 3  # copies of a model on a card: decoder steps, greedy steps and the scorer each hold the decoder
PARSED = 30  # bytes in memory for each byte of the largest request: two bytes may make an empty message of 60
EMPTY_PROCESS = 32 << 20  # bytes; memory of a process for documents before its first document
COPIES = 5  # ratio of memory to bytes of HTTP bodies: the body, its texts, its parts; 2.8 to 4.7 measured
CONNECTION_BYTES = 49_152  # bytes of an HTTP connection beyond the shared budget; 25 KiB for 120 headers, 20 for TLS
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The parts of the memory that a server may need, in bytes.

    resident: memory of the process with its models loaded and warm
    states: decoder states of all rows of all models, with the longest sources, and batches kept for reuse
    runs: the largest run of every worker
    requests: language detection, the largest parsed request, the bound of bytes of open calls, bodies and connections
        of HTTP, and documents
    card: models on a graphics card, in its memory; not in the total
    """

    resident: int
    states: int
    runs: int
    requests: int
    card: int = 0

    @property
    def total(self) -> int:
        return self.resident + self.states + self.runs + self.requests


def memory_need(
    translators: Iterable[Translator],
    max_message_bytes: int,
    *,
    http_connections: int = 0,
    keeps_glossaries: bool = False,
) -> MemoryNeed:
    """Return the memory that a server with these models may need. Call it when they are warm.

    http_connections: bound of the connections to its HTTP APIs; 0 without HTTP APIs
    keeps_glossaries: whether it keeps glossaries of its callers
    """
    found = list(translators)
    here = [each.engine for each in found if each.provider != CUDA]
    states, runs = sum(each.state_bytes for each in here), sum(each.run_bytes for each in here)
    identifier = IDENTIFIER_BYTES if identifier_is_installed() else 0
    requests = identifier + PARSED * max_message_bytes + SLOW_BYTES + HELD_BYTES
    if http_connections:  # bodies have copies; the bytes of connections are counted with their copies
        requests += COPIES * HTTP_BYTES + HTTP_BYTES + CONNECTION_BYTES * http_connections
        requests += DOCUMENT_PROCESSES * (EMPTY_PROCESS + DOCUMENT_BYTES)
    if keeps_glossaries:
        requests += GLOSSARY_BYTES
    card = sum(
        WEIGHT_COPIES * each.graph_bytes + each.engine.state_bytes + each.engine.run_bytes
        for each in found
        if each.provider == CUDA
    )
    return MemoryNeed(resident_bytes(), states, runs, requests, card)


def report_memory(need: MemoryNeed, metrics: Metrics) -> None:
    """Log the parts and set their gauges. Log a warning if the server may not use that much memory."""
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
    """Log the memory that the models on a card may need. Log a warning if the card is smaller."""
    message = f"may need {need // MIB} MiB of the graphics card"
    if size is not None and need > size:
        message += f", more than its {size // MIB} MiB; lower max_rows or serve fewer models"
        event(logger, logging.WARNING, message)
    else:
        event(logger, logging.INFO, message)
