"""A server as a user starts it, called by Node and h2load, and checks of the answers to those clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingon import Client
from tests.reliability import checker
from tests.reliability.checker import Scrape
from tests.reliability.history import Outcome, from_json
from tests.reliability.server import Server
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking

QUEUE = 256  # texts in the queue of the shared server, so that a part of 1,000 calls at once is refused
IDLE = 20.0  # seconds until nothing runs any more, also on a busy machine


class ForeignServer:
    """A running `lingon serve models/en-de` that logs every call."""

    def __init__(self, process: Server) -> None:
        self.process, self.address = process, process.address
        self._golden: dict[tuple[int, str], str] = {}

    def alone(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        """Return the translation of each text by beam size, with nothing else in its batch: call this while nothing
        runs.
        """
        missing = [key for key in dict.fromkeys(wanted) if key not in self._golden]
        with Client(self.address) as client:
            for beam_size, text in missing:
                self._golden[beam_size, text] = client.translate(text, beam_size=beam_size).text
        return self._golden

    def scrape(self) -> Scrape:
        """Return the metrics when nothing is queued or running any more."""
        found: list[Scrape] = []

        def is_idle() -> bool:
            found.append(asyncio.run(self.process.scrape()))
            return checker.gauges_at_zero(found[-1]) == []

        eventually_blocking(is_idle, IDLE, pause=0.05)
        return found[-1]

    def violations(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Return the faults of these requests: no end, a wrong translation, another log entry, a wrong counter."""
        scrape, calls = self.scrape(), self.process.calls()
        sent = {outcome.id for outcome in outcomes}
        translated = [
            (outcome.beam_size, outcome.texts[result.index])
            for outcome in outcomes
            for result in outcome.results
            if result.code == "OK"
        ]
        return [
            *checker.ended_once(outcomes),
            *checker.same_as_alone(outcomes, self.alone(translated)),
            *checker.server_agrees(outcomes, [call for call in calls if call.request_id in sent]),
            *checker.counters_equal_log(calls, scrape),
            *self.process.tracebacks(),
        ]


@contextmanager
def foreign_server(folder: Path, **settings: Any) -> Iterator[ForeignServer]:
    """Run a server on free ports until the block ends. settings: of lingon.serving.settings."""
    process = Server(
        folder=folder,
        model=ROOT / "models" / "en-de",
        cores=frozenset(os.sched_getaffinity(0)),
        settings={"log_level": "debug", **settings},
    )
    process.start()
    try:
        asyncio.run(process.ready())
        yield ForeignServer(process)
    finally:
        process.kill()


PATIENCE = 180  # seconds for all calls of a run, of which each has a deadline in the client too


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The end of a call in Node.

    details: of google.rpc.Status, by the names of their types
    retry_after: the milliseconds of the trailer, None without one
    text: the deltas of a stream, joined
    """

    outcome: Outcome
    message: str
    details: dict[str, Any]
    retry_after: int | None
    text: str

    @property
    def code(self) -> str:
        return self.outcome.code


def call(
    name: str,
    *texts: str,
    method: str = "Translate",
    due: float = 0.0,
    deadline: float | None = None,
    cancel_after: float | None = None,
    metadata: Mapping[str, str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return a call for the client to make.

    name: its request id
    due: seconds after the start. The two other times count from the call
    options: of decoding
    """
    request = {"texts": texts, "options": {"beam_size": 1, **options}}
    times = {"due": due, "deadline": deadline, "cancel_after": cancel_after}
    return {"id": name, "method": method, "request": request, "metadata": dict(metadata or {}), **times}


def make_calls(address: str, calls: Sequence[Mapping[str, Any]], **channel: Any) -> list[NodeAnswer]:
    """Make calls on one channel. channel: options of grpc-js, with underscores after the first dot."""
    options = {f"grpc.{name}": value for name, value in channel.items()}
    found = []
    for values in _run("calls.js", {"address": address, "channel": options, "calls": calls}):
        delay = values["retry_after"]
        values |= {"outcome": from_json(values["outcome"]), "retry_after": None if delay is None else int(delay)}
        found.append(NodeAnswer(**values))
    return found


def http_request(
    protocol: str, path: str, body: bytes = b"", *, method: str = "POST", headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a request for Node's own clients to send. protocol: h1 or h2."""
    usual = {":method": method, ":path": path, "content-type": "application/grpc"}
    usual |= {"te": "trailers"} if protocol == "h2" else {}
    return {"protocol": protocol, "headers": {**usual, **(headers or {})}, "body": b64encode(body).decode()}


def send_requests(address: str, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Send HTTP requests one after the other, and return how each ended, see tests/foreign/node/transport.js."""
    return _run("transport.js", {"address": address, "requests": requests})


def ping(address: str, seconds: float, count: int) -> dict[str, Any]:
    """Ping on an idle connection every few seconds, and return the answers and why the server closed it."""
    (found,) = _run("pings.js", {}, address, str(seconds), str(count))
    return found


def _run(program: str, message: Mapping[str, Any], *arguments: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        ["node", program, *arguments],
        cwd=NODE_CLIENT,
        input=json.dumps(message),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


_REPORT = re.compile(
    r"^requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout$"
    r".*^status codes: (\d+) 2xx,.*\((\d+)\) data$",
    re.MULTILINE | re.DOTALL,
)
RUN_SECONDS = 120  # seconds for a run


@dataclass(frozen=True, slots=True)
class LoadCount:
    """The counts of h2load.

    failed: requests that failed, broke off or had no answer in time
    ok: answers with HTTP status 200; data: bytes of their bodies, without frames and headers
    """

    requests: int
    succeeded: int
    failed: int
    ok: int
    data: int


def h2load(address: str, path: str, body: Path, *, requests: int, connections: int, streams: int) -> LoadCount:
    """Send a body `requests` times over some connections, with some streams at once on each."""
    command = ["h2load", f"--requests={requests}", f"--clients={connections}", f"--max-concurrent-streams={streams}"]
    command += [f"--data={body}", "--header=content-type: application/grpc", "--header=te: trailers"]
    ran = subprocess.run(
        [*command, f"http://{address}{path}"], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    found = _REPORT.search(ran.stdout)
    assert found, ran.stdout + ran.stderr
    total, succeeded, *wrong, ok, data = map(int, found.groups())
    return LoadCount(total, succeeded, sum(wrong), ok, data)
