"""Compare running servers by a closed loop of clients, with the CPU time that each server used.

    python -m lingon.bench.tools.compare_servers --clients 64 --stream before=PID@HOST:PORT after=PID@HOST:PORT

Start the servers on one core each (`taskset -c 0`), and this program on another one. The servers may be of any version:
only the gRPC API is used. The table has medians over the rounds, each with all servers.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from typing import Annotated, Any, NamedTuple

import grpc
import typer

from lingon.bench.results_file import percentile, show
from lingon.bench.worker_process import cpu_seconds
from lingon.bench.workloads import sample_file
from lingon.client.connection import NO_PROXY
from lingon.files import read_lines
from lingon.serving.translation.options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

WARM_UP = 1.0  # seconds of the same load before the measured ones
CONNECTIONS = 4  # over which the clients are spread


class Target(NamedTuple):
    """A running server."""

    name: str
    pid: int
    address: str


class Counts:
    """The replies that the clients of one round received."""

    def __init__(self) -> None:
        self.latencies: list[float] = []  # seconds
        self.deltas = 0


def target(text: str) -> Target:
    """Parse NAME=PID@HOST:PORT."""
    name, _, rest = text.partition("=")
    pid, _, address = rest.partition("@")
    return Target(name, int(pid), address)


async def load(stubs: list[Any], texts: list[str], clients: int, seconds: float, *, stream: bool) -> Counts:
    """Let every client send one text after another until the time is over."""
    counts, end = Counts(), time.perf_counter() + seconds
    options = pb.DecodingOptions(beam_size=1, num_hypotheses=1, length_penalty=0.0)

    async def send(stub: Any, text: str) -> None:
        start = time.perf_counter()
        if stream:
            request = pb.TranslateStreamRequest(texts=[text], options=options, text=WHOLE)
            async for event in stub.TranslateStream(request, timeout=30):
                counts.deltas += event.HasField("delta")
        else:
            await stub.Translate(pb.TranslateRequest(texts=[text], options=options, text=WHOLE), timeout=30)
        counts.latencies.append(time.perf_counter() - start)

    async def client(number: int) -> None:
        index = number * 7  # Clients begin with different texts.
        while time.perf_counter() < end:
            await send(stubs[number % len(stubs)], texts[index % len(texts)])
            index += clients

    await asyncio.gather(*(client(number) for number in range(clients)))
    return counts


async def one_round(
    server: Target, texts: list[str], clients: int, seconds: float, *, stream: bool = False
) -> dict[str, float]:
    """Measure one server once. stream: by TranslateStream instead of Translate."""
    own = [("grpc.use_local_subchannel_pool", 1), NO_PROXY]  # a connection for each channel
    channels = [grpc.aio.insecure_channel(server.address, own) for _ in range(min(clients, CONNECTIONS))]
    stubs = [pb_grpc.TranslationServiceStub(channel) for channel in channels]
    await load(stubs, texts, clients, WARM_UP, stream=stream)
    gc.collect()
    gc.disable()
    used, start = cpu_seconds(server.pid), time.perf_counter()
    counts = await load(stubs, texts, clients, seconds, stream=stream)
    used, wall = cpu_seconds(server.pid) - used, time.perf_counter() - start
    gc.enable()
    for channel in channels:
        await channel.close()
    requests = len(counts.latencies)
    return {
        "requests_per_s": requests / wall,
        "p50_ms": 1000 * percentile(counts.latencies, 50),
        "p99_ms": 1000 * percentile(counts.latencies, 99),
        "cpu_ms_per_request": 1000 * used / requests,
        "cpu_us_per_delta": 1e6 * used / counts.deltas if counts.deltas else 0.0,
    }


def main(
    servers: Annotated[list[str], typer.Argument(metavar="NAME=PID@HOST:PORT", help="Servers, by their gRPC ports.")],
    clients: Annotated[int, typer.Option(help="Clients at a time.")] = 1,
    seconds: Annotated[float, typer.Option(help="Measured seconds of a round.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all servers.")] = 7,
    stream: Annotated[bool, typer.Option("--stream", help="Call TranslateStream instead of Translate.")] = False,
) -> None:
    """Measure and print."""
    texts = [text for text in read_lines(sample_file("en")) if text]
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for server in map(target, servers):
            figures = asyncio.run(one_round(server, texts, clients, seconds, stream=stream))
            rows.setdefault(server.name, []).append(figures)
    show(
        [
            {"server": name, **{key: statistics.median(row[key] for row in found) for key in found[0]}}
            for name, found in rows.items()
        ]
    )


if __name__ == "__main__":
    typer.run(main)
