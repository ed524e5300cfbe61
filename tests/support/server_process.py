"""The real server with the model that ships, in a process of its own, to be ill-treated; and how it bears it."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.shipped_model import MODEL

SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/"
CONTRACT = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""What the README promises to a caller who waits, of a server that is well."""

ALIVE = 1.0  # seconds within which a server that does not hang answers
PATIENCE = 10.0
MEBIBYTE = 1024 * 1024
MOST_AT_ONCE = 32.0
"""MiB that connections may have on their way: some messages, or 1,500 calls that are begun; a bomb would be 200."""


class Answer(NamedTuple):
    """How a call ended; details are all bytes of the status beyond its code."""

    code: grpc.StatusCode
    message: str
    details: bytes
    reply: bytes

    @property
    def told(self) -> bytes:
        """All that the caller was told."""
        return self.message.encode() + self.details + self.reply


@dataclass(slots=True)
class Victim:
    """A server process."""

    process: subprocess.Popen[str]
    channel: grpc.Channel
    address: str
    metrics: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def send(self, method: str, raw: bytes, seconds: float = 10 * ALIVE, **more: Any) -> Answer:
        """Call a method of the service with these bytes."""
        return self.call(SERVICE + method, raw, seconds, **more)

    def call(self, path: str, raw: bytes, seconds: float = 10 * ALIVE, **more: Any) -> Answer:
        """Call any path."""
        try:
            if path.endswith("Stream"):
                replies = b"".join(self.channel.unary_stream(path)(raw, timeout=seconds, **more))
            else:
                replies = self.channel.unary_unary(path)(raw, timeout=seconds, **more)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            return Answer(error.code(), error.details() or "", trailers.get("grpc-status-details-bin", b""), b"")
        return Answer(grpc.StatusCode.OK, "", b"", replies)

    def translate(self, *texts: str, **fields: Any) -> pb.TranslateResponse:
        """A Translate that has to go well."""
        answer = self.send("Translate", pb.TranslateRequest(texts=texts, **fields).SerializeToString(), 60)
        assert answer.code == grpc.StatusCode.OK, answer
        return pb.TranslateResponse.FromString(answer.reply)

    def is_well(self) -> bool:
        """Whether it lives, says that it serves, and translates."""
        health = health_pb2_grpc.HealthStub(self.channel)
        serving = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
        (result,) = self.translate("Tom lives in Boston.").results
        alive = self.process.poll() is None
        return alive and serving == health_pb2.HealthCheckResponse.SERVING and result.hypotheses[0].text != ""

    def resident(self) -> int:
        """Bytes of memory that it holds now; pages of files are the system's, which takes them as it likes."""
        return self._status("RssAnon")

    def rounds(self, count: int, work: Callable[[], object]) -> tuple[list[float], list[float]]:
        """Of each time the work is done: the most memory beyond what was held before, and what was kept; in MiB."""
        peaks, growths = [], []
        for _ in range(count):
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
            all_before, before = self._status("VmRSS"), self.resident()
            work()
            peaks.append((self._status("VmHWM") - all_before) / MEBIBYTE)
            growths.append((self.resident() - before) / MEBIBYTE)
        return peaks, growths

    def descriptors(self) -> int:
        """Files and sockets that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def logged(self) -> str:
        """All that it has logged."""
        return self.log.read_text(encoding="utf-8")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found
        return int(found[1]) * 1024


def promptly(work: Callable[[], object]) -> bool:
    """Whether it takes less than ALIVE, at one of three tries: machines of tests have others to serve too."""
    for _ in range(3):
        start = time.monotonic()
        work()
        if time.monotonic() - start < ALIVE:
            return True
    return False


def details_of(answer: Answer) -> status_pb2.Status:
    return status_pb2.Status.FromString(answer.details)


@contextmanager
def victim(folder: Path, *flags: object) -> Iterator[Victim]:
    """A server that logs all it ever logs into a file of folder."""
    log = folder / "log"
    command = [sys.executable, "-m", "lingon", "serve", str(MODEL), "--port", "0", "--metrics-port", "0"]
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
            address, metrics = line.split(" on ")[1].split(",")[0], line.split("metrics on ")[1].split(" ")[0]
            with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
                yield Victim(process, channel, address, metrics, log)
        finally:
            process.kill()


@contextmanager
def unharmed(server: Victim, within: float = ALIVE) -> Iterator[None]:
    """Others are served meanwhile, within seconds; afterwards the server is well and has closed what was opened.

    The machine has others to serve too: now and then an answer may take longer.
    """
    assert server.is_well()
    before, over, wrong = server.descriptors(), threading.Event(), list[object]()
    seconds: list[float] = []

    def look_on() -> None:
        while not over.is_set() or len(seconds) < 5:
            start = time.monotonic()
            try:
                assert server.is_well()
            except Exception as error:
                wrong.append(error)
            seconds.append(time.monotonic() - start)

    onlooker = threading.Thread(target=look_on)
    onlooker.start()
    try:
        yield
    finally:
        over.set()
        onlooker.join()
    assert wrong == []
    assert statistics.median(seconds) < within, seconds
    assert max(seconds) < PATIENCE, seconds
    assert server.is_well()
    assert until(lambda: server.descriptors() <= before), f"{server.descriptors()} open, {before} before"


def lines(victim: Victim) -> list[dict[str, Any]]:
    """What was logged, entry by entry."""
    return [json.loads(line) for line in victim.logged().splitlines()]


def until(condition: Any, seconds: float = 10) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())
