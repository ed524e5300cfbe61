"""Clients that crash: a process with many streams that its parent kills.

`python -m chaos.callers.crashing_clients ADDRESS FILE STREAMS` reads a JSON list of texts from standard input, opens
the streams, records each in FILE when it is sent, prints `streaming` when all have started, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.callers.clients import Client
from chaos.server import ends_with_parent
from chaos.verdict.history import KILLED, History, Outcome, line, read
from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError


class CrashingClient:
    """A process with open streams to a server."""

    def __init__(self, address: str, texts: Sequence[str], streams: int, folder: Path, cores: Cores) -> None:
        """Start the process; returns when all streams have started."""
        self._file = folder / f"crashing-{time.monotonic_ns()}.jsonl"
        self._file.touch()
        command = [
            "nice",
            sys.executable,
            "-m",
            "chaos.callers.crashing_clients",
            address,
            str(self._file),
            str(streams),
        ]
        with on_cores(cores):
            self._process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(list(texts)).encode())
        if self._process.stdout.readline() != b"streaming\n":
            self.kill()
            raise LingonError("the crashing client ended before its streams had started")

    def freeze(self) -> None:
        """Stop the process: its kernel still acknowledges packets, but the process reads nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> list[Outcome]:
        """Kill the process; returns its requests."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        outcomes = read(self._file)
        for outcome in outcomes:
            outcome.code, outcome.ended = KILLED, time.monotonic()
        return outcomes


class _Written(History):
    """A history that writes a request to disk before it is sent, because the process may be killed at any time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, outcome: Outcome) -> Outcome:
        """Record a request on disk at once."""
        self._file.write(line(outcome))
        return super().add(outcome)


async def _stream(address: str, path: Path, streams: int, texts: Sequence[str]) -> None:
    history = _Written(path)
    client = Client(address, history, f"crashing-{os.getpid()}")
    asked = [
        asyncio.create_task(client.stream(texts[number % len(texts)], deadline=3600.0)) for number in range(streams)
    ]
    while not all(outcome.first for outcome in history) or len(history) < streams:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    sys.stdout.write("streaming\n")
    sys.stdout.flush()
    await asyncio.gather(*asked)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_stream(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.load(sys.stdin)))
