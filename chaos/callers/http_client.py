"""A client of the HTTP port that records requests as chaos.callers.clients does."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from google.rpc import code_pb2

from chaos.callers.clients import PATIENCE, REQUEST_ID
from chaos.verdict.history import DEADLINE_EXCEEDED, OK, UNAVAILABLE, History, Outcome, TextOutcome

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient:
    """Sends requests to `/v1/translate`, each on a connection that no other request uses at that time."""

    def __init__(self, port: int, history: History, name: str = "http", *, keep_alive: bool = False) -> None:
        """keep_alive: whether a connection is used again after a whole reply; `close` closes these."""
        self._port, self._history, self._name = port, history, name
        self._free: list[Connection] | None = [] if keep_alive else None

    def close(self) -> None:
        """Close the connections that no request uses."""
        for _, writer in self._free or ():
            writer.close()

    async def translate(
        self, *texts: str, beam_size: int = 1, deadline: float | None = None, due: float | None = None
    ) -> Outcome:
        """Send a request and wait for its end; returns its outcome, and raises no error of the request.

        A connection that is refused, or that ends without a whole reply, is UNAVAILABLE, as in gRPC.

        deadline: seconds that the client waits, which it says to the server
        """
        now = time.monotonic()
        outcome = self._history.add(
            Outcome(
                id=self._history.new_id(self._name),
                method="Translate",
                texts=texts,
                beam_size=beam_size,
                deadline=deadline,
                due=now if due is None else due,
                sent=now,
            )
        )
        content = json.dumps({"texts": texts, "options": {"beamSize": beam_size}}).encode()
        try:
            async with asyncio.timeout(deadline or PATIENCE):
                _record(outcome, await self._reply(self._request(outcome, content)))
        except TimeoutError:
            outcome.code = DEADLINE_EXCEEDED
        except (OSError, asyncio.IncompleteReadError):
            outcome.code = UNAVAILABLE
        outcome.ended = time.monotonic()
        return outcome

    def _request(self, outcome: Outcome, content: bytes) -> bytes:
        head = [
            "POST /v1/translate HTTP/1.1",
            "host: localhost",
            f"connection: {'close' if self._free is None else 'keep-alive'}",
            "content-type: application/json",
            f"{REQUEST_ID}: {outcome.id}",
            f"content-length: {len(content)}",
        ]
        if outcome.deadline is not None:
            head.append(f"x-server-timeout: {outcome.deadline:g}")
        return "\r\n".join([*head, "", ""]).encode() + content

    async def _reply(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a reply that arrived whole; IncompleteReadError if it did not."""
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        whole = False
        try:
            writer.write(request)
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            whole = headers.get("connection", "").lower() != "close"
            return int(status.split()[1]), headers, body
        finally:
            if whole and self._free is not None:
                self._free.append((reader, writer))
            else:
                writer.close()


def _record(outcome: Outcome, reply: tuple[int, dict[str, str], bytes]) -> None:
    """Write a reply into the outcome of its request."""
    status, headers, body = reply
    outcome.request_id = headers.get(REQUEST_ID, "")
    if not outcome.request_id:  # the port refused the connection, before any API saw the request
        outcome.code = UNAVAILABLE if status == 503 else f"HTTP {status}"
        return
    found: dict[str, Any] = json.loads(body)
    if status != 200:
        outcome.code = code_pb2.Code.Name(found["code"])
        outcome.reason = next((each["reason"] for each in found.get("details", ()) if "reason" in each), "")
        return
    outcome.results = [_text(index, result) for index, result in enumerate(found["results"])]
    outcome.version, outcome.code = found["version"], OK


def _text(index: int, result: dict[str, Any]) -> TextOutcome:
    code = code_pb2.Code.Name(result.get("status", {}).get("code", 0))
    return TextOutcome(index, code, result["hypotheses"][0].get("text", "") if code == OK else "")
