"""Goodput of the server as it ships against the offered load, measured by h2load, which shares no code with Lingon.

Calls have a deadline of a second, and only those that the server answers in time count: with OK, by its own counter,
since a call that its client has given up is counted as CANCELLED or DEADLINE_EXCEEDED. The peak is the goodput of a
closed loop of 64 calls at once. The server has one core and h2load another one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from chaos.server import Server
from chaos.verdict.checks import Skip
from lingon.bench.worker_process import Cores, on_cores
from lingon.translation.v1 import translation_pb2 as pb

TEXT = "Tom lives in Boston."
METHODS: dict[str, Message] = {
    "Translate": pb.TranslateRequest(texts=[TEXT]),
    "TranslateStream": pb.TranslateStreamRequest(texts=[TEXT]),
}
PATH = "/lingon.translation.v1.TranslationService/"
CONNECTIONS = 20
CLOSED = ["--clients=4", "--max-concurrent-streams=16"]  # 64 calls at once
SETTLED = 2.0  # seconds between two loads, in which the calls of the first one end


@dataclass(frozen=True, slots=True)
class Point:
    """One load; offered: calls a second, 0 for the closed loop; goodput: calls a second that ended with OK."""

    method: str
    times: float
    offered: float
    goodput: float


async def h2load(address: str, method: str, cores: Cores, seconds: float, options: Sequence[str], folder: Path) -> None:
    """Send calls of a method for some seconds; raises Skip without h2load."""
    if shutil.which("h2load") is None:
        raise Skip("no h2load command; make e2e installs it")
    body, message = folder / f"{method}.bin", METHODS[method].SerializeToString()
    body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    headers = ["--header=content-type: application/grpc", "--header=te: trailers", "--header=grpc-timeout: 1S"]
    with on_cores(cores):
        process = await asyncio.create_subprocess_exec(
            *["h2load", f"--duration={seconds:g}", *options, *headers, f"--data={body}"],
            f"http://{address}{PATH}{method}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    await process.wait()


async def goodput(server: Server, method: str, cores: Cores, seconds: float, options: Sequence[str]) -> float:
    """Return the calls of a load that ended with OK, per second."""

    async def answered() -> float:
        return (await server.scrape()).sum("lingon_requests_total", method=method, code="OK")

    before = await answered()
    await h2load(server.address, method, cores, seconds, options, server.folder)
    await asyncio.sleep(SETTLED)
    return (await answered() - before) / seconds


async def measure(server: Server, cores: Cores, seconds: float, loads: Sequence[float]) -> list[Point]:
    """Return the goodput of each method at each load, the closed loop first."""
    points = []
    for method in METHODS:
        await goodput(server, method, cores, min(seconds, 2.0), CLOSED)  # warms up
        peak = await goodput(server, method, cores, seconds, CLOSED)
        points.append(Point(method, 0.0, 0.0, peak))
        for times in loads:
            rate = max(round(times * peak / CONNECTIONS), 1)
            options = [f"--clients={CONNECTIONS}", "--max-concurrent-streams=200", f"--rps={rate}"]
            found = await goodput(server, method, cores, seconds, options)
            points.append(Point(method, times, float(rate * CONNECTIONS), found))
    return points
