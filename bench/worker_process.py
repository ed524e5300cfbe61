"""Child processes of a benchmark, pinned to cores, and workers that read and write JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lingon.errors import LingonError
from lingon.machine import read_or_empty

Cores = frozenset[int]
STOP_TIMEOUT = 10.0  # seconds that a process has to exit after SIGTERM, before it is killed


class ChildProcess:
    """A process whose standard output is read line by line. Leaving the `with` terminates it.

    Standard error goes to a temporary file, so that the last line of it can be quoted if the process fails.
    """

    def __init__(
        self, command: Sequence[str], *, cores: Cores | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the process.

        cores: the cores that it may use, by default all cores of this process
        environment: variables, added to the ones of this process
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, __exit__ closes it
        with on_cores(cores or frozenset(os.sched_getaffinity(0))):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _terminate(self._process)
        self._errors.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def write_line(self, line: str) -> None:
        """Write a line to standard input. Raise BrokenPipeError if the process has exited."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def read_line(self) -> str:
        """Wait for the next line of standard output; empty if the process has closed it."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def exit_reason(self) -> str:
        """Wait for the exit, and return the last line of standard error, or the exit code if there is none."""
        code = self._process.wait(STOP_TIMEOUT)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"exit code {code}")


class Worker(ChildProcess):
    """A Python module that runs in its own process and answers each JSON object with one JSON object.

    An answer {"error": ...} is raised as LingonError. An early exit is raised as LingonError with the last line of
    standard error.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        label: str = "",
        cores: Cores | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """label: the name of the worker in error messages; by default its module."""
        self._label = label or module
        variables = {"GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE"), **(environment or {})}
        super().__init__([sys.executable, "-m", module, *arguments], cores=cores, environment=variables)

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        try:
            self.write_line(json.dumps(message))
            line = self.read_line()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LingonError(f"{self._label}: its process ended: {self.exit_reason()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LingonError(answer["error"])
        return answer


def json_of(module: str, *arguments: str, label: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a Python module in a process of its own, and return the JSON object that it prints.

    label: names what the process measures, in the LingonError that its failure raises
    """
    variables = {**os.environ, **(environment or {})}
    command = [sys.executable, "-m", module, *arguments]
    answer = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise LingonError(f"{label} could not be measured: {lines[-1]}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def answer_messages(answer: Callable[..., dict[str, Any]]) -> None:
    """Answer each line of standard input until it ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=answers, flush=True)


@contextmanager
def send_errors() -> Iterator[None]:
    """Answer with a LingonError of the block and exit, so that `Worker.ask` raises it."""
    try:
        yield
    except LingonError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(error.exit_code)


@contextmanager
def on_cores(cores: Cores) -> Iterator[None]:
    """Pin threads and processes that the block starts to these cores, from their first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM, close the pipes, and kill the process if it does not exit in time."""
    process.terminate()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processes_of(pid: int) -> list[int]:
    """Return a process and all below it, as far as they still run."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, read_or_empty(children).split())
    return found
