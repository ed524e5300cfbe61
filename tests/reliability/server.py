"""A real server as a child process, observed from outside. It never outlives this process."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lingon.bench.worker_process import Cores, cpu_seconds, on_cores
from lingon.errors import LingonError
from lingon.serving.auth.api_keys import key_table, new_key
from tests.reliability.checker import Call, Scrape
from tests.reliability.history import Outcome
from tests.support.ports import free_port

NO_HANG = 3600  # seconds of hang_seconds, so that the watchdog does not take a pause for a hang
CHECK_PAUSE = 0.01  # seconds between two checks of a condition
READY = re.compile(r"^ready: ", re.MULTILINE)
DIES_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, 9)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Makes the kernel kill a process when its parent ends for any reason, also if the parent has ended already.

SIGHUP has its usual effect again, because a process that was started with `nohup` ignores it, and its children too.
"""


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command line that runs the command and kills it when this process ends."""
    return [sys.executable, "-S", "-c", DIES_WITH_US, str(os.getpid()), *command]


@dataclass(kw_only=True)
class Server:
    """One `lingon serve`. As an async context manager it starts the server and kills it at the end.

    folder: of its log; settings: of the server by name; prefix: a command that runs the server, such as `prlimit`
    log_to: a file for standard error, instead of one in folder
    wait: whether entering the context waits until the server is ready
    """

    folder: Path
    model: Path
    cores: Cores
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    log_to: Path | None = None
    name: str = "server"
    wait: bool = True
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    started: float = 0.0  # seconds of time.monotonic
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """HOST:PORT of the gRPC port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        assert self._process is not None, "the server was not started"
        return self._process.poll()

    def start(self) -> None:
        """Start the process. A restart uses the same ports and the same log."""
        settings = {"port": self.port, "metrics_port": self.metrics_port, "log_format": "json", "device": "cpu"}
        variables = {f"LINGON_{name.upper()}": str(value) for name, value in {**settings, **self.settings}.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LINGON_")}
        if self.settings.get("failpoints"):
            variables["LINGON_TESTING"] = "1"
        command = [*self.prefix, sys.executable, "-m", "lingon", "serve", str(self.model.absolute())]
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.log_to or self._log
        with on_cores(self.cores), self._output.open("wb") as output, log.open("ab") as logged:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                ends_with_parent(command),
                env={**inherited, **variables, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=logged,
                start_new_session=True,
            )

    async def ready(self, seconds: float = 60.0) -> float:
        """Wait until the server prints that it is ready, and return the seconds since its start."""
        end = time.monotonic() + seconds
        while not READY.search(self._output.read_text(encoding="utf-8")):
            if self.exit_code is not None:
                raise LingonError(f"{self.name} ended with exit code {self.exit_code} before it was ready: {self.last}")
            if time.monotonic() > end:
                raise LingonError(f"{self.name} was not ready within {seconds:g} s: {self.last}")
            await asyncio.sleep(CHECK_PAUSE)
        return time.monotonic() - self.started

    def signal(self, number: signal.Signals) -> float:
        """Send a signal, and return the monotonic time."""
        os.kill(self.pid, number)
        return time.monotonic()

    async def exited(self, seconds: float) -> float:
        """Wait for the end of the process, and return the monotonic time. Raise LingonError after these seconds."""
        end = time.monotonic() + seconds
        while self.exit_code is None:
            if time.monotonic() > end:
                raise LingonError(f"{self.name} still ran after {seconds:g} s")
            await asyncio.sleep(CHECK_PAUSE)
        return time.monotonic()

    def kill(self) -> None:
        """Kill the process and its child processes."""
        if self._process is not None:
            for pid in [self._process.pid, *self.family()]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._process.wait()

    async def __aenter__(self) -> Self:
        self.start()
        try:
            if self.wait:
                await self.ready()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def family(self) -> list[int]:
        """Return the child processes that still run in the session of the server, also after its end."""
        assert self._process is not None, "the server was not started"
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                session = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[3])
            except (OSError, ValueError):  # the process ended after glob found it
                continue
            if session == self._process.pid and int(stat.parent.name) != self._process.pid:
                found.append(int(stat.parent.name))
        return found

    def rss(self) -> float:
        """Return the resident memory in megabytes."""
        return self._status("VmRSS") * 1024 / 1e6

    def peak_rss(self) -> float:
        """Return the most resident memory since the start or the last `forget_peak`, in megabytes."""
        return self._status("VmHWM") * 1024 / 1e6

    def forget_peak(self) -> None:
        """Let `peak_rss` start again from the memory that is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def cpu_seconds(self) -> float:
        """Return the CPU time that all threads of the process have used, in user and in system mode."""
        return cpu_seconds(self.pid)

    def busy_seconds(self) -> float:
        """Return the CPU time that the present threads of the process have used, in nanoseconds' resolution.

        While a server with one core of its own works on a request, this grows by the latency of the request on a quiet
        machine, whatever else runs on this one.
        """
        total = 0
        for path in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # the thread ended after glob found it
                total += int(path.read_text(encoding="ascii").split()[0])
        return total / 1e9

    def threads(self) -> int:
        """Return the number of threads."""
        return self._status("Threads")

    def fds(self) -> int:
        """Return the number of open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        if found is None:
            raise LingonError(f"{self.name} has ended")
        return int(found[1])

    async def scrape(self, accept: str = "text/plain") -> Scrape:
        """Return the metrics now. Raise OSError if the server does not answer.

        accept: the format. The server pauses for a quarter of a second between two pages of one format.
        """
        return Scrape.parse((await self.get("/metrics", accept=accept))[1])

    async def get(self, path: str, seconds: float = 10.0, accept: str = "text/plain") -> tuple[int, str]:
        """Return status and body of a page of the metrics port."""
        return await asyncio.to_thread(self._get, path, seconds, accept)

    def _get(self, path: str, seconds: float, accept: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=seconds)
        try:
            connection.request("GET", path, headers={"Accept": accept})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"incomplete answer: {type(error).__name__}") from None
        finally:
            connection.close()

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def _output(self) -> Path:
        return self.folder / f"{self.name}.out"

    @property
    def log(self) -> str:
        """The whole log."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    @property
    def last(self) -> str:
        """The last line of the log, for error messages."""
        return (self.log.strip().splitlines() or ["the log is empty"])[-1]

    def events(self, message: str | None = None) -> list[dict[str, Any]]:
        """Return the entries of the JSON log, all or those with one message."""
        found = []
        for text in self.log.splitlines():
            try:
                event = json.loads(text)
            except ValueError:  # a library wrote this line to standard error
                continue
            if message in (None, event["message"]):
                found.append(event)
        return found

    def calls(self) -> list[Call]:
        """Return the calls that the server answered, in order. It needs log_level debug."""
        return [
            Call(event["request_id"], event["method"], event["code"], event["milliseconds"], wall(event["time"]))
            for event in self.events("call")
        ]

    def calls_of(self, outcomes: Iterable[Outcome]) -> list[Call]:
        """Return the server's log entries of these requests. Raise LingonError if one is missing."""
        by_id = {call.request_id: call for call in self.calls()}
        if missing := [outcome.id for outcome in outcomes if outcome.id not in by_id]:
            raise LingonError(f"the log of {self.name} lacks {missing[0]} and {len(missing) - 1} more requests")
        return [by_id[outcome.id] for outcome in outcomes]

    def tracebacks(self) -> list[str]:
        """Return the log lines that show an unhandled error."""
        signs = ("Traceback", "never retrieved", "never awaited", '"level": "critical"')
        return [f"{self.name}: {text[:200]}" for text in self.log.splitlines() if any(sign in text for sign in signs)]


def wall(moment: str) -> float:
    """Return the seconds since 1970 of a time in a log."""
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()


def write_api_keys(path: Path, *names: str, **quotas: Mapping[str, int]) -> dict[str, str]:
    """Write a server's file of new API keys, and return the keys by name. quotas: fields of a key, by its name."""
    keys = {name: new_key() for name in names}
    tables = [key_table(name, key, **quotas.get(name, {})) for name, key in keys.items()]
    path.write_text("\n".join(tables), encoding="utf-8")
    return keys
