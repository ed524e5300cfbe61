"""Input for bulk translation, its output read again, and an S3 server that fails now and then."""

from __future__ import annotations

import csv
import gzip
import http.client
import io
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import LocalEngine, ProgressWatch
from lingon.bulk.shards import Record
from lingon.bulk.translating import Translate
from lingon.cli.backend import BackendOptions
from lingon.errors import LingonError
from tests.support import shipped_model
from tests.support.ports import free_ports
from tests.support.repository import ROOT

LINES = (ROOT / "tests/data/tatoeba.en").read_text().splitlines()
MIXED = [*LINES[:40], None, *LINES[:10], " ", *LINES[40:90]]
BACKEND = BackendOptions(model=str(shipped_model.MODEL), engines=1, threads=1)


def translator(**columns: Any) -> Translate:
    """Return a translator with the shipped model, greedy, into the column de."""
    return Translate(**{"backend": BACKEND, "into": "de", "beam_size": 1, **columns})


def write_parquet(path: Path, texts: Sequence[str | None], **arguments: Any) -> None:
    """Write a file with an id, the texts, and a column of a type that no text format has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = range(len(texts))
    pq.write_table(pa.table({"id": ids, "text": texts, "tags": [[each] for each in ids]}), path, **arguments)


def write_jsonl(path: Path, texts: Iterable[str]) -> None:
    """Write a line for each text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))


def parts(folder: Path) -> dict[str, bytes]:
    """Return the files of an output, without the state of the run."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return all rows of an output, in the order of the names of its files."""
    return [row for name, content in parts(folder).items() for row in _rows(name, content)]


def _rows(name: str, content: bytes) -> list[dict[str, Any]]:
    if name.endswith(".gz"):
        name, content = name.removesuffix(".gz"), gzip.decompress(content)
    if name.endswith(".zst"):
        name, content = name.removesuffix(".zst"), pa.CompressedInputStream(io.BytesIO(content), "zstd").read()
    match name.rsplit(".", 1)[1]:
        case "parquet":
            return pq.read_table(io.BytesIO(content)).to_pylist()  # type: ignore[no-any-return]
        case "jsonl":
            return [json.loads(line) for line in content.splitlines()]
        case "txt":
            return [{"de": line} for line in content.decode().splitlines()]
        case kind:
            text = io.StringIO(content.decode(errors="surrogateescape"), newline="")
            quoting = csv.QUOTE_NONE if kind == "tsv" else csv.QUOTE_MINIMAL
            return list(csv.DictReader(text, delimiter={"csv": ",", "tsv": "\t"}[kind], quoting=quoting))


class Silent:
    """A watch that shows nothing."""

    def begin(self, plan: Plan, left: Sequence[Shard]) -> None: ...

    def rows(self, count: int) -> None: ...

    def shard(self, record: Record) -> None: ...


class FailingEngine(LocalEngine):
    """An engine that fails after this many shards."""

    def __init__(self, shards: int) -> None:
        object.__setattr__(self, "shards", shards)

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: ProgressWatch) -> Iterator[Record]:
        yield from super().run(plan, left[: self.shards], translate, watch)  # type: ignore[attr-defined]
        raise LingonError("killed")


@contextmanager
def s3_server() -> Iterator[int]:
    """Run the server, and yield its port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield port
        finally:
            process.kill()


class Faults:
    """Which requests fail: every second one for a while, answered with 500 before or after it took effect, or cut."""

    def __init__(self) -> None:
        self.share = 0.0
        self.counted: dict[str, int] = {"500 before": 0, "500 after": 0, "cut": 0}
        self._random, self._lock = random.Random(7), threading.Lock()

    def next(self) -> str | None:
        """Return the fault of the next request, if it has one."""
        with self._lock:
            if self._random.random() >= self.share:
                return None
            fault = self._random.choice(list(self.counted))
            self.counted[fault] += 1
            return fault


class _Proxy(ThreadingHTTPServer):
    """A listener for requests to a server. target: its port."""

    def __init__(self, target: int, faults: Faults) -> None:
        super().__init__(("127.0.0.1", 0), _ObjectHandler)
        self.target, self.faults = target, faults


class _ObjectHandler(BaseHTTPRequestHandler):
    server: _Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        fault = self.server.faults.next()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "500 before":
            return self._answer(500, [], b"")
        status, headers, content = self._ask(body[: len(body) // 2] if fault == "cut" and body else body, fault)
        if fault == "cut":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self._answer(500, [], b"") if fault == "500 after" else self._answer(status, headers, content)

    def _ask(self, body: bytes, fault: str | None) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request. A cut one has half of its body, and its connection ends there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=30)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        if fault == "cut":
            connection.close()
            return 0, [], b""
        answer = connection.getresponse()
        found = answer.status, answer.getheaders(), answer.read()
        connection.close()
        return found

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def faulty_proxy(port: int, faults: Faults) -> Iterator[int]:
    """Forward requests to a server, and yield the port of the proxy."""
    with _Proxy(port, faults) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
