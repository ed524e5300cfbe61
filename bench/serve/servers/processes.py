"""The server under test as a child process: started on given cores, measured until it reports that it is ready."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lingon.bench.worker_process import ChildProcess, Cores
from lingon.errors import LingonError

READY = re.compile(r"^ready: .*? on (?P<address>\S+:\d+)(?:, metrics on (?P<metrics>\S+:\d+))?")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    address: HOST:PORT
    ready: the line with which the server reported that it is ready
    seconds: from the start of the process to that line
    metrics: HOST:PORT of its /metrics, if it has one
    """

    address: str
    ready: str
    seconds: float
    pid: int
    metrics: str | None = None

    def memory(self) -> dict[str, float]:
        """Resident memory now (rss_mb) and at its highest (peak_mb), in megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        kilobytes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
        return {"rss_mb": int(kilobytes["VmRSS"]) * 1024 / 1e6, "peak_mb": int(kilobytes["VmHWM"]) * 1024 / 1e6}


@contextmanager
def serving(command: Sequence[str], cores: Cores) -> Iterator[Server]:
    """Start a server and wait for its line `ready: ... on HOST:PORT`; terminate it at the end of the block."""
    start = time.perf_counter()
    with ChildProcess(command, cores=cores) as process:
        found = _wait_until_ready(process, command)
        seconds = time.perf_counter() - start
        yield Server(found["address"], found.string.strip(), seconds, process.pid, found["metrics"])


def _wait_until_ready(process: ChildProcess, command: Sequence[str]) -> re.Match[str]:
    while line := process.read_line():
        if found := READY.match(line):
            return found
    raise LingonError(f"{' '.join(command[1:4])} ended before it was ready: {process.exit_reason()}")
