"""Clients that crash: a process of its own with many streams, killed by those who started it.

`python -m chaos.crashing_clients ADDRESS FILE STREAMS` reads a JSON list of texts from standard input, opens the
streams, writes each down in FILE as it is sent, says `streaming` when all have begun, and waits to be killed.
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

from chaos.clients import Client
from chaos.history import KILLED, Fate, History, line, read
from chaos.server import bound_to_us
from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError


class CrashingClient:
    """A process with streams to a server that are never read to their end."""

    def __init__(self, address: str, texts: Sequence[str], streams: int, folder: Path, cores: Cores) -> None:
        """Returns when all streams have begun."""
        self._file = folder / f"crashing-{time.monotonic_ns()}.jsonl"
        self._file.touch()
        command = ["nice", sys.executable, "-m", "chaos.crashing_clients", address, str(self._file), str(streams)]
        with on_cores(cores):
            self._process = subprocess.Popen(bound_to_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(list(texts)).encode())
        if self._process.stdout.readline() != b"streaming\n":
            self.kill()
            raise LingonError("the crashing client ended before its streams had begun")

    def freeze(self) -> None:
        """Stop it without a word: the kernel still answers for it, nobody reads."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> list[Fate]:
        """End it at once; returns what it had asked."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        fates = read(self._file)
        for fate in fates:
            fate.code, fate.ended = KILLED, time.monotonic()
        return fates


class _Written(History):
    """A history that is on disk before a request is sent."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, fate: Fate) -> Fate:
        """Write it down at once."""
        self._file.write(line(fate))
        return super().add(fate)


async def _stream(address: str, path: Path, streams: int, texts: Sequence[str]) -> None:
    history = _Written(path)
    client = Client(address, history, f"crashing-{os.getpid()}")
    asked = [
        asyncio.create_task(client.stream(texts[number % len(texts)], deadline=3600.0)) for number in range(streams)
    ]
    while not all(fate.first for fate in history) or len(history) < streams:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    sys.stdout.write("streaming\n")
    sys.stdout.flush()
    await asyncio.gather(*asked)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_stream(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.load(sys.stdin)))
