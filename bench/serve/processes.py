"""Processes of a benchmark: workers that answer line by line, servers that say when they are ready, cores for each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from lingon.errors import LingonError

Cores = frozenset[int]
READY = re.compile(r"^ready: .*? on (?P<address>\S+:\d+)(?:, metrics on (?P<metrics>\S+:\d+))?")
END = 10.0  # seconds that a process has to end when it is told to


@contextmanager
def on_cores(cores: Cores) -> Iterator[None]:
    """What this thread starts inside the block runs on these cores alone, from its first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Worker:
    """A Python module in a process of its own: every JSON line that it is sent, it answers with one.

    An answer {"error": ...} is raised as LingonError, and so is an early end.
    """

    def __init__(self, module: str, cores: Cores, environment: dict[str, str] | None = None) -> None:
        """environment: variables besides those of this process."""
        self._module = module
        command = [sys.executable, "-m", module]
        variables = {"GRPC_VERBOSITY": "NONE", **os.environ, **(environment or {})}
        pipe = subprocess.PIPE
        with on_cores(cores):
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LingonError(answer["error"])
        return answer

    def _ended(self) -> LingonError:
        return LingonError(f"{self._module} ended with exit code {self._process.wait(END)}; what it said is above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._process)


@contextmanager
def errors_told() -> Iterator[None]:
    """In a worker: an error of ours is its answer, which the other end raises."""
    try:
        yield
    except LingonError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(error.exit_code)


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
            _end(process)


def _wait_until_ready(process: subprocess.Popen[str], log: IO[str]) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := READY.match(line):
            return found
    log.seek(0)
    said = log.read().strip().splitlines()
    raise LingonError(f"{' '.join(process.args[1:4])} ended before it was ready: {said[-1] if said else 'no word'}")  # type: ignore[index, arg-type]


def _end(process: subprocess.Popen[str]) -> None:
    """Tell a process to end, and end it where it does not."""
    process.terminate()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
