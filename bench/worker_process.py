"""Processes of a benchmark that answer line by line: every JSON object that one is sent, it answers with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from lingon.errors import LingonError

Cores = frozenset[int]
END = 10.0  # seconds that a process has to end when it is told to


class Worker:
    """A Python module in a process of its own; leaving the `with` ends it.

    An answer {"error": ...} is raised as LingonError, and so is an early end, with the process's last words.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        label: str = "",
        cores: Cores | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """label: what errors call it; environment: variables besides those of this process."""
        self._label = label or module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        variables = {"GRPC_VERBOSITY": "NONE", **os.environ, **(environment or {})}
        with on_cores(cores or frozenset(os.sched_getaffinity(0))):
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=variables,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._process)
        self._errors.close()

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LingonError(f"{self._label}: its process ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LingonError(answer["error"])
        return answer

    def _last_words(self) -> str:
        code = self._process.wait(END)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"exit code {code}")


@contextmanager
def errors_told() -> Iterator[None]:
    """In a worker: an error of ours is its answer, which the other end raises."""
    try:
        yield
    except LingonError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(error.exit_code)


@contextmanager
def on_cores(cores: Cores) -> Iterator[None]:
    """What this thread starts inside the block runs on these cores alone, from its first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def end(process: subprocess.Popen[str]) -> None:
    """Tell a process to end, and end it where it does not."""
    process.terminate()
    pipes: Sequence[Any] = (process.stdin, process.stdout)
    for pipe in pipes:
        if pipe is not None:
            pipe.close()
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
