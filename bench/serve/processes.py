"""Servers as processes of a benchmark: they say when they are ready, and have cores of their own."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lingon.bench.worker_process import Cores, end, on_cores
from lingon.errors import LingonError

READY = re.compile(r"^ready: .*? on (?P<address>\S+:\d+)(?:, metrics on (?P<metrics>\S+:\d+))?")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    ready: the line that told so
    seconds: from the start of its process to that line
    metrics: HOST:PORT of its /metrics, where it has one
    """

    address: str
    ready: str
    seconds: float
    pid: int
    metrics: str | None = None

    def memory(self) -> dict[str, float]:
        """Resident memory now and at its highest, in megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        kilobytes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
        return {"rss_mb": int(kilobytes["VmRSS"]) * 1024 / 1e6, "peak_mb": int(kilobytes["VmHWM"]) * 1024 / 1e6}


@contextmanager
def serving(command: Sequence[str], cores: Cores) -> Iterator[Server]:
    """A server in a process of its own, from when it says `ready: ... on HOST:PORT` until the end of the block."""
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8") as log:
        start = time.perf_counter()
        with on_cores(cores):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            found = _wait_until_ready(process, log)
            seconds = time.perf_counter() - start
            yield Server(found["address"], found.string.strip(), seconds, process.pid, found["metrics"])
        finally:
            end(process)


def _wait_until_ready(process: subprocess.Popen[str], log: IO[str]) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := READY.match(line):
            return found
    log.seek(0)
    said = log.read().strip().splitlines()
    raise LingonError(f"{' '.join(process.args[1:4])} ended before it was ready: {said[-1] if said else 'no word'}")  # type: ignore[index, arg-type]
