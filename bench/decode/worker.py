"""The process of one contestant: `python -m lingon.bench.decode.worker ENGINE`, a JSON object a line in, one a line
out.

    {"do": "prepare", "bundle": FOLDER, "folder": FOLDER}      write the engine's model files
    {"do": "load", "folder": FOLDER, "setting": {...}}         -> load_s
    {"do": "sources", "sources": [[...], ...]}                 what is translated from now on
    {"do": "translate", "cell": {...}, "count": N, "repeats": N, "staggered": false} -> ms, outputs, peak_mb

What an engine prints goes to standard error. An answer is given when the process is at rest, so that no thread that
still spins takes time from the next contestant.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lingon.bench.decode.plan import module_of
from lingon.bench.engines.base import Cell, Contestant, Setting
from lingon.bundle import open_bundle

STAGGER = 2  # steps over whose time the sentences of a staggered run arrive
REST_S = 2.0  # that a process gets to come to rest


class Worker:
    """One engine, and what it is asked."""

    def __init__(self, engine: str) -> None:
        self._module = module_of(engine)
        self._sources: list[list[int]] = []
        self._contestant: Contestant
        self._last_ms: dict[Cell, float] = {}

    def answer(self, do: str, **values: Any) -> dict[str, Any]:
        """What one message asks for."""
        doers: dict[str, Callable[..., dict[str, Any]]] = {
            "prepare": self._prepare,
            "load": self._load,
            "sources": self._take,
            "translate": self._translate,
        }
        return doers[do](**values)

    def _prepare(self, bundle: str, folder: str) -> dict[str, Any]:
        self._module.prepare(open_bundle(Path(bundle)), Path(folder))
        return {}

    def _load(self, folder: str, setting: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        self._contestant = self._module.load(Path(folder), Setting(**setting))
        return {"load_s": time.perf_counter() - start}

    def _take(self, sources: list[list[int]]) -> dict[str, Any]:
        self._sources = sources
        return {}

    def _translate(self, cell: dict[str, Any], count: int, repeats: int, staggered: bool) -> dict[str, Any]:
        asked, sources = Cell(**cell), self._sources[:count]
        start = time.perf_counter()
        for _ in range(repeats):
            outputs = self._staggered(sources, asked) if staggered else self._contestant.translate(sources, asked)
        milliseconds = 1000 * (time.perf_counter() - start) / repeats
        if not staggered:
            self._last_ms[asked] = milliseconds
        _come_to_rest()
        return {"ms": milliseconds, "outputs": outputs, "peak_mb": _peak_mb()}

    def _staggered(self, sources: list[list[int]], cell: Cell) -> list[list[int]]:
        from lingon.bench.engines.lingon import Lingon  # a peer's process shall not hold our libraries

        assert isinstance(self._contestant, Lingon)
        seconds_a_step = self._last_ms[cell] / 1000 / cell.longest
        return self._contestant.translate_staggered(sources, cell, STAGGER * seconds_a_step)


def _peak_mb() -> float:
    """The most memory that this process has held, in MiB; what getrusage tells includes the process it came from."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _come_to_rest() -> None:
    """Wait until no thread of this process computes: OpenMP's spin for a while after their work is done."""
    until = time.perf_counter() + REST_S
    while time.perf_counter() < until:
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.001:
            return


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(worker.answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
