"""A real server as a child process: started, watched from outside, signalled, and never left behind."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.checker import Call
from chaos.history import Fate
from chaos.prometheus import Scrape
from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError

LOOK = 0.01  # seconds between two looks at what is waited for
READY = re.compile(r"^ready: ", re.MULTILINE)
DIES_WITH_US = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Has the kernel end a process when its parent ends, however that ends; also if it has ended already."""


def free_port() -> int:
    """A port that nobody listens on; known beforehand, so that a server can be asked before it says where it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command, ended when this process ends."""
    return [sys.executable, "-S", "-c", DIES_WITH_US, str(os.getpid()), *command]


@dataclass(kw_only=True)
class Server:
    """One `lingon serve`; as an async context manager it is started, waited for and ended.

    folder: for its log; settings: of the server, by name; prefix: a command that starts it in another world
    log_to: where standard error goes, instead of a file in folder
    wait: whether entering the context waits until it is ready
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
    started: float = 0.0  # as time.monotonic tells it
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """HOST:PORT of its gRPC port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None, "the server was not started"
        return self._process.poll()

    def start(self) -> None:
        """Start the process; again after it has ended, on the same ports and with the same log."""
        settings = {"port": self.port, "metrics_port": self.metrics_port, "log_format": "json", "device": "cpu"}
        asked = {f"LINGON_{name.upper()}": str(value) for name, value in {**settings, **self.settings}.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LINGON_")}
        if self.settings.get("failpoints"):
            asked["LINGON_TESTING"] = "1"
        command = [*self.prefix, sys.executable, "-m", "lingon", "serve", str(self.model)]
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.log_to or self._log
        with on_cores(self.cores), self._said.open("wb") as said, log.open("ab") as logged:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                bound_to_us(command),
                env={**inherited, **asked, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=logged,
                start_new_session=True,
            )

    async def ready(self, seconds: float = 60.0) -> float:
        """Wait for the line that says so; returns the seconds since the start."""
        end = time.monotonic() + seconds
        while not READY.search(self._said.read_text(encoding="utf-8")):
            if self.exit_code is not None:
                raise LingonError(f"{self.name} ended with exit code {self.exit_code} before it was ready: {self.last}")
            if time.monotonic() > end:
                raise LingonError(f"{self.name} was not ready within {seconds:g} s: {self.last}")
            await asyncio.sleep(LOOK)
        return time.monotonic() - self.started

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; returns when."""
        os.kill(self.pid, number)
        return time.monotonic()

    async def exited(self, seconds: float) -> float:
        """Wait until the process has ended; returns when. LingonError where it goes on for so many seconds."""
        end = time.monotonic() + seconds
        while self.exit_code is None:
            if time.monotonic() > end:
                raise LingonError(f"{self.name} still ran after {seconds:g} s")
            await asyncio.sleep(LOOK)
        return time.monotonic()

    def kill(self) -> None:
        """End it, and whatever it has started, at once."""
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
        """Processes that it has started and that are there, also after its own end: its session holds them all."""
        assert self._process is not None, "the server was not started"
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                session = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[3])
            except (OSError, ValueError):  # ended meanwhile
                continue
            if session == self._process.pid and int(stat.parent.name) != self._process.pid:
                found.append(int(stat.parent.name))
        return found

    def rss(self) -> float:
        """Resident memory in megabytes."""
        return self._status("VmRSS") * 1024 / 1e6

    def threads(self) -> int:
        """Of the process."""
        return self._status("Threads")

    def fds(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        if found is None:
            raise LingonError(f"{self.name} has ended")
        return int(found[1])

    async def scrape(self) -> Scrape:
        """Its metrics now; OSError where nobody answers."""
        return Scrape.parse((await self.get("/metrics"))[1])

    async def get(self, path: str, seconds: float = 10.0) -> tuple[int, str]:
        """Status and body of a page of its metrics port."""
        return await asyncio.to_thread(self._get, path, seconds)

    def _get(self, path: str, seconds: float) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=seconds)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"no whole answer: {type(error).__name__}") from None
        finally:
            connection.close()

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def _said(self) -> Path:
        return self.folder / f"{self.name}.said"

    @property
    def log(self) -> str:
        """All of its log, as it is."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    @property
    def last(self) -> str:
        """The last line of its log, for messages."""
        return (self.log.strip().splitlines() or ["no word"])[-1]

    def events(self, message: str | None = None) -> list[dict[str, Any]]:
        """The lines of its log as values, of all messages or of one; `time` in seconds since 1970."""
        found = []
        for text in self.log.splitlines():
            try:
                event = json.loads(text)
            except ValueError:  # not logged but written by a library; `log` has it
                continue
            if message in (None, event["message"]):
                found.append(event)
        return found

    def calls(self) -> list[Call]:
        """The calls that it has answered, in order; needs log_level debug."""
        return [
            Call(event["request_id"], event["method"], event["code"], event["milliseconds"], wall(event["time"]))
            for event in self.events("call")
        ]

    def calls_of(self, fates: Iterable[Fate]) -> list[Call]:
        """What it says of each of these requests; LingonError where it says nothing of one."""
        by_id = {call.request_id: call for call in self.calls()}
        if lacking := [fate.id for fate in fates if fate.id not in by_id]:
            raise LingonError(f"the log of {self.name} has nothing of {lacking[0]}, and {len(lacking) - 1} more")
        return [by_id[fate.id] for fate in fates]

    def tracebacks(self) -> list[str]:
        """Signs of errors that nobody handled."""
        signs = ("Traceback", "never retrieved", "never awaited", '"level": "critical"')
        return [f"{self.name}: {text[:200]}" for text in self.log.splitlines() if any(sign in text for sign in signs)]

    def command(self) -> str:
        """What is set, for people."""
        return shlex.join(f"{name}={value}" for name, value in self.settings.items())


def wall(moment: str) -> float:
    """Seconds since 1970 of a moment in a log."""
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()
