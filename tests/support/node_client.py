"""Calls of the Node client in tests/foreign/node, which learns the API of a server by reflection."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.verdict.history import Outcome, from_json
from tests.support.foreign_clients import NODE_CLIENT

PATIENCE = 180  # seconds for all calls of a run; a call has a deadline of its own in the client


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended in Node.

    details: those of google.rpc.Status, by the names of their types
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
    """A call for the client to make.

    name: its request id
    due: seconds after the start; the two other times count from the call
    options: those of decoding
    """
    request = {"texts": texts, "options": {"beam_size": 1, **options}}
    times = {"due": due, "deadline": deadline, "cancel_after": cancel_after}
    return {"id": name, "method": method, "request": request, "metadata": dict(metadata or {}), **times}


def make_calls(address: str, calls: Sequence[Mapping[str, Any]], **channel: Any) -> list[Answer]:
    """Make calls on one channel; channel: options of grpc-js, with underscores after the first dot."""
    options = {f"grpc.{name}": value for name, value in channel.items()}
    found = []
    for values in _run("calls.js", {"address": address, "channel": options, "calls": calls}):
        delay = values["retry_after"]
        values |= {"outcome": from_json(values["outcome"]), "retry_after": None if delay is None else int(delay)}
        found.append(Answer(**values))
    return found


def http_request(
    protocol: str, path: str, body: bytes = b"", *, method: str = "POST", headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A request for Node's own clients to send; protocol: h1 or h2."""
    usual = {":method": method, ":path": path, "content-type": "application/grpc"}
    usual |= {"te": "trailers"} if protocol == "h2" else {}
    return {"protocol": protocol, "headers": {**usual, **(headers or {})}, "body": b64encode(body).decode()}


def send_requests(address: str, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Send HTTP requests one after the other; returns how each ended, see tests/foreign/node/transport.js."""
    return _run("transport.js", {"address": address, "requests": requests})


def ping(address: str, seconds: float, count: int) -> dict[str, Any]:
    """Ping on an idle connection, a ping every some seconds; returns the answers and why the server closed it."""
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
