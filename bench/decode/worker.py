"""The process of one engine: `python -m lingon.bench.decode.worker ENGINE` answers JSON lines with JSON lines.

    {"do": "prepare", "bundle": FOLDER, "folder": FOLDER}      write the engine's model files
    {"do": "load", "folder": FOLDER, "setting": {...}}         -> load_s
    {"do": "sources", "sources": [[...], ...]}                 set the sources to translate
    {"do": "translate", "cell": {...}, "count": N, "repeats": N, "staggered": false} -> ms, outputs, peak_mb

Output that an engine prints goes to standard error. The process answers only when it is idle, so that no spinning
thread takes time from the next engine.
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
from lingon.bench.engines.base import BenchEngine, Cell, Setting, Tokens
from lingon.bundle.store import open_bundle

STAGGER = 2  # decoder steps: the sentences of a staggered run arrive within the time of this many steps
IDLE_TIMEOUT_S = 2.0  # seconds that a process has to become idle


class EngineWorker:
    """One engine, and the answers to its messages."""

    def __init__(self, engine: str) -> None:
        self._module = module_of(engine)
        self._sources: list[list[int]] = []
        self._engine: BenchEngine
        self._last_ms: dict[Cell, float] = {}

    def answer(self, do: str, **values: Any) -> dict[str, Any]:
        """The answer to one message."""
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "prepare": self._prepare,
            "load": self._load,
            "sources": self._set_sources,
            "translate": self._translate,
        }
        return handlers[do](**values)

    def _prepare(self, bundle: str, folder: str) -> dict[str, Any]:
        self._module.prepare(open_bundle(Path(bundle)), Path(folder))
        return {}

    def _load(self, folder: str, setting: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        self._engine = self._module.load(Path(folder), Setting(**setting))
        return {"load_s": time.perf_counter() - start}

    def _set_sources(self, sources: list[list[int]]) -> dict[str, Any]:
        self._sources = sources
        return {}

    def _translate(self, cell: dict[str, Any], count: int, repeats: int, staggered: bool) -> dict[str, Any]:
        decoded, sources = Cell(**cell), self._sources[:count]
        start = time.perf_counter()
        for _ in range(repeats):
            outputs = self._staggered(sources, decoded) if staggered else self._engine.translate(sources, decoded)
        milliseconds = 1000 * (time.perf_counter() - start) / repeats
        if not staggered:
            self._last_ms[decoded] = milliseconds
        _wait_until_idle()
        return {"ms": milliseconds, "outputs": outputs, "peak_mb": _peak_mb()}

    def _staggered(self, sources: list[list[int]], cell: Cell) -> Tokens:
        from lingon.bench.engines.lingon import Lingon  # Other engines' processes must not load it.

        assert isinstance(self._engine, Lingon)
        step_seconds = self._last_ms[cell] / 1000 / cell.longest
        return self._engine.translate_staggered(sources, cell, STAGGER * step_seconds)


def _peak_mb() -> float:
    """The peak memory of this process in MiB; getrusage would include that of the parent process before exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _wait_until_idle() -> None:
    """Wait until no thread of this process uses the processor: OpenMP's threads spin for a while after their work."""
    deadline = time.perf_counter() + IDLE_TIMEOUT_S
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.001:
            return


def main() -> None:
    """Answer messages until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    worker = EngineWorker(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(worker.answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
