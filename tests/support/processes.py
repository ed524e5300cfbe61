"""The real commands, each in its own process, and the real server as the target of hostile requests."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.shipped_model import MODEL
from tests.support.timing import eventually_blocking

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def lingon(*arguments: object, text: str = "", code: int = 0, folder: Path | None = None) -> str:
    """Run a verb, which must end with this exit code, and return its output, or standard error if the code is not 0."""
    command = [sys.executable, "-m", "lingon", *map(str, arguments)]
    ran = subprocess.run(
        command, input=text, capture_output=True, text=True, env=ENVIRONMENT, cwd=folder, timeout=240, check=False
    )
    assert ran.returncode == code, f"{command}: exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return ran.stdout if code == 0 else ran.stderr


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                own = int(status.parent.name)
                found += [own, *descendants(own)]
    return found


def command_line(process: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class Server:
    """A running `lingon serve`."""

    process: subprocess.Popen[str]
    address: str
    metrics: str
    ready: str

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def addresses_of(ready: str) -> tuple[str, str]:
    """Return the gRPC and the metrics address in the line with which a server is ready."""
    return ready.split(" on ")[1].split(",")[0], ready.split("metrics on ")[1].split(" ")[0]


@contextmanager
def serving(*arguments: object) -> Iterator[Server]:
    """Run a server on free ports. The block starts when it prints that it is ready."""
    command = [sys.executable, "-m", "lingon", "serve", *map(str, arguments), "--port", "0", "--metrics-port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("ready: "):
                    break
            else:
                raise AssertionError("the server ended early:\n" + "".join(said))
            yield Server(process, *addresses_of(line), line)
        finally:
            if process.poll() is None:
                process.kill()


SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/"
CONTRACT = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""The statuses that a healthy server may return to a client without a deadline, as the documentation promises."""

RESPONSE_SECONDS = 1.0  # seconds within which a server that does not hang answers
PATIENCE = 10.0  # seconds within which every answer arrives, also on a busy machine
MEBIBYTE = 1024 * 1024
MOST_IN_FLIGHT_MIB = 32.0
"""MiB that connections may hold while they are read: some messages, or 1,500 started calls. A bomb would take 100."""


class CallEnd(NamedTuple):
    """The end of a call. details: the serialised google.rpc.Status."""

    code: grpc.StatusCode
    message: str
    details: bytes
    reply: bytes

    @property
    def received(self) -> bytes:
        """All bytes that the client received."""
        return self.message.encode() + self.details + self.reply


@dataclass(slots=True)
class ServerProcess:
    """A running server process and a channel to it."""

    process: subprocess.Popen[str]
    channel: grpc.Channel
    address: str
    metrics: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def send(self, method: str, raw: bytes, seconds: float = 10 * RESPONSE_SECONDS, **more: Any) -> CallEnd:
        """Call a method of the service with these bytes."""
        return self.call(SERVICE + method, raw, seconds, **more)

    def call(self, path: str, raw: bytes, seconds: float = 10 * RESPONSE_SECONDS, **more: Any) -> CallEnd:
        """Call any path."""
        try:
            if path.endswith("Stream"):
                replies = b"".join(self.channel.unary_stream(path)(raw, timeout=seconds, **more))
            else:
                replies = self.channel.unary_unary(path)(raw, timeout=seconds, **more)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            return CallEnd(error.code(), error.details() or "", trailers.get("grpc-status-details-bin", b""), b"")
        return CallEnd(grpc.StatusCode.OK, "", b"", replies)

    def translate(self, *texts: str, **fields: Any) -> pb.TranslateResponse:
        """Call Translate, which must succeed."""
        answer = self.send("Translate", pb.TranslateRequest(texts=texts, **fields).SerializeToString(), 60)
        assert answer.code == grpc.StatusCode.OK, answer
        return pb.TranslateResponse.FromString(answer.reply)

    def is_healthy(self) -> bool:
        """Return whether the process runs, reports SERVING and translates."""
        health = health_pb2_grpc.HealthStub(self.channel)
        serving = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
        (result,) = self.translate("Tom lives in Boston.").results
        alive = self.process.poll() is None
        return alive and serving == health_pb2.HealthCheckResponse.SERVING and result.hypotheses[0].text != ""

    def resident(self) -> int:
        """Return the bytes of anonymous memory now, because the kernel may evict file pages at any time."""
        return self._status("RssAnon")

    def rounds(self, count: int, work: Callable[[], object]) -> tuple[list[float], list[float]]:
        """Repeat the work, and return the peak and the lasting growth of memory of each repetition, in MiB."""
        peaks, growths = [], []
        for _ in range(count):
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
            all_before, before = self._status("VmRSS"), self.resident()
            work()
            peaks.append((self._status("VmHWM") - all_before) / MEBIBYTE)
            growths.append((self.resident() - before) / MEBIBYTE)
        return peaks, growths

    def descriptors(self) -> int:
        """Return the number of open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def logged(self) -> str:
        """Return the whole log."""
        return self.log.read_text(encoding="utf-8")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found
        return int(found[1]) * 1024


def is_prompt(work: Callable[[], object]) -> bool:
    """Return whether one of three tries takes less than RESPONSE_SECONDS. A busy machine may delay a single one."""
    for _ in range(3):
        start = time.monotonic()
        work()
        if time.monotonic() - start < RESPONSE_SECONDS:
            return True
    return False


@contextmanager
def server_process(folder: Path, *flags: object, model: Path = MODEL) -> Iterator[ServerProcess]:
    """Start a server that writes its debug log to folder/log."""
    log = folder / "log"
    command = [sys.executable, "-m", "lingon", "serve", str(model), "--port", "0", "--metrics-port", "0"]
    command += ["--engines", "1", "--threads", "1", "--log-level", "debug", "--log-format", "json", *map(str, flags)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready: "), log.read_text()
            address, metrics = addresses_of(line)
            with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
                yield ServerProcess(process, channel, address, metrics, log)
        finally:
            process.kill()


@contextmanager
def stays_healthy(server: ServerProcess, within: float = RESPONSE_SECONDS) -> Iterator[None]:
    """Check that other clients are served while the block runs, and that the server is healthy afterwards.

    within: seconds that the median answer may take. A busy machine may delay single answers up to PATIENCE.
    All files and sockets that the block opened in the server must be closed in the end.
    """
    assert server.is_healthy()
    before, over, wrong = server.descriptors(), threading.Event(), list[object]()
    seconds: list[float] = []

    def keep_asking() -> None:
        while not over.is_set() or len(seconds) < 5:
            start = time.monotonic()
            try:
                assert server.is_healthy()
            except Exception as error:
                wrong.append(error)
            seconds.append(time.monotonic() - start)

    other_client = threading.Thread(target=keep_asking)
    other_client.start()
    try:
        yield
    finally:
        over.set()
        other_client.join()
    assert wrong == []
    assert statistics.median(seconds) < within, seconds
    assert max(seconds) < PATIENCE, seconds
    assert server.is_healthy()
    eventually_blocking(lambda: server.descriptors() <= before)


def log_entries(server: ServerProcess) -> list[dict[str, Any]]:
    """Return the entries of the JSON log."""
    return [json.loads(line) for line in server.logged().splitlines()]
