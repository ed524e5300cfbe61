"""Requests a second that one core answers over HTTP, without a model: a server with a null engine, by its HTTP port.

    taskset -c 0 python -m lingon.bench.serve.servers.null_engine http models/en-de/9 &
    taskset -c 1 python -m lingon.bench.tools.servers.http_throughput --grpc gRPC=PID@HOST:PORT HTTP=PID@HOST:PORT

What a whole core can answer follows from the server's CPU time of a request, which other work on the machine changes
less than the rate. Several servers, such as two versions, are measured in turns; with --grpc the same calls over gRPC.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import defaultdict
from functools import partial
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table

from lingon.bench.statistics import percentile
from lingon.bench.tools.servers.compare_servers import Target, one_round, target
from lingon.bench.worker_process import cpu_seconds
from lingon.bench.workloads.sample_sentences import sample_file
from lingon.lines import read_lines
from lingon.serving.translation.planning.text_options import WHOLE

WARM_UP = 1.0  # seconds of the same load before the measured ones
Row = dict[str, float]


class Client(asyncio.Protocol):
    """A connection that sends one prepared request after another, and keeps the time of each."""

    def __init__(self, requests: list[bytes], place: int) -> None:
        """place: that of its first request."""
        self.seconds: list[float] = []
        self.done = asyncio.get_running_loop().create_future()
        self._requests, self._place, self._end, self._start = requests, place, 0.0, 0.0
        self._arrived = b""

    def connection_made(self, transport: Any) -> None:
        """Keep the connection."""
        self._transport = transport

    def begin(self, end: float) -> None:
        """Send requests until this time of `time.perf_counter`."""
        self.done = asyncio.get_running_loop().create_future()
        self.seconds, self._end = [], end
        self._send()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _send(self) -> None:
        self._start = time.perf_counter()
        self._transport.write(self._requests[self._place % len(self._requests)])
        self._place += 1

    def data_received(self, data: bytes) -> None:
        """Take a part of a reply; once it is whole, send the next request."""
        self._arrived += data
        head, found, body = self._arrived.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.partition(b"content-length: ")[2].partition(b"\r")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self._arrived
        self._arrived, now = b"", time.perf_counter()
        self.seconds.append(now - self._start)
        if now < self._end:
            self._send()
        else:
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the measurement if the server closes the connection."""
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


def prepared(texts: list[str]) -> list[bytes]:
    """Return a request for each text, as `compare_servers` sends it over gRPC: the text is translated as one."""
    options = {"beamSize": 1, "numHypotheses": 1, "lengthPenalty": 0}
    found = []
    for text in texts:
        body = json.dumps({"texts": [text], "options": options, "text": MessageToDict(WHOLE)}).encode()
        head = "POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        found.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def over_http(server: Target, requests: list[bytes], clients: int, seconds: float) -> Row:
    """Measure an HTTP port once."""
    loop, opened = asyncio.get_running_loop(), []
    host, _, port = server.address.rpartition(":")
    for number in range(clients):
        _, client = await loop.create_connection(partial(Client, requests, number * 7), host, int(port))
        opened.append(client)
    for length in (WARM_UP, seconds):
        used, start = cpu_seconds(server.pid), time.perf_counter()
        for client in opened:
            client.begin(start + length)
        await asyncio.gather(*(client.done for client in opened))
        used, wall = cpu_seconds(server.pid) - used, time.perf_counter() - start
    for client in opened:
        client.done.cancel()
        client.close()
    latencies = [each for client in opened for each in client.seconds]
    return {
        "requests_per_s": len(latencies) / wall,
        "p50_ms": 1000 * percentile(latencies, 50),
        "p99_ms": 1000 * percentile(latencies, 99),
        "cpu_ms_per_request": 1000 * used / len(latencies),
    }


def main(
    servers: Annotated[list[str], typer.Argument(metavar="NAME=PID@HOST:PORT", help="Servers, by their HTTP ports.")],
    grpc: Annotated[
        list[str], typer.Option(metavar="NAME=PID@HOST:PORT", help="Servers whose gRPC ports are measured too.")
    ] = [],  # noqa: B006
    clients: Annotated[list[int], typer.Option(help="Connections, each with one request at a time.")] = [1, 64],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Measured seconds of a round.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, in which the servers take turns.")] = 7,
) -> None:
    """Print medians over rounds as a table."""
    texts = [text for text in read_lines(sample_file("en")) if text]
    requests, found = prepared(texts), defaultdict(list)
    for _ in range(rounds):
        for count in clients:
            for server in map(target, servers):
                found[server.name, count].append(asyncio.run(over_http(server, requests, count, seconds)))
            for server in map(target, grpc):
                found[server.name, count].append(asyncio.run(one_round(server, texts, count, seconds)))
    table = Table("", "clients", "requests/s", "p50, ms", "p99, ms", "CPU, ms a request", "requests/s of a whole core")
    for (name, count), rows in found.items():
        rate, p50, p99, cpu = (statistics.median(row[key] for row in rows) for key in list(rows[0])[:4])
        table.add_row(name, str(count), f"{rate:.0f}", f"{p50:.2f}", f"{p99:.2f}", f"{cpu:.3f}", f"{1000 / cpu:.0f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    typer.run(main)
