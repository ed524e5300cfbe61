"""What HTTP adds to a translation: the same texts over gRPC and over /v1/translate, in turns.

lingon serve models/en-de --http-port 8080 &
python -m lingon.bench.tools.servers.http_overhead
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lingon import Client
from lingon.bench.workloads.sample_sentences import sample_file
from lingon.lines import read_lines

LIST = 50  # texts of a list


def over_http(address: str) -> Callable[[list[str]], object]:
    """Return a function that translates texts greedily over one connection."""
    connection = http.client.HTTPConnection(address, timeout=60)

    def translate(texts: list[str]) -> object:
        body = json.dumps({"texts": texts, "options": {"beamSize": 1}})
        connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        return json.loads(connection.getresponse().read())["results"]

    return translate


def main(
    server: Annotated[str, typer.Option(help="Address of the gRPC port.")] = "127.0.0.1:50051",
    address: Annotated[str, typer.Option("--http", help="Address of the HTTP port.")] = "127.0.0.1:8080",
    rounds: Annotated[int, typer.Option(min=3, help="Measurements of each kind.")] = 200,
) -> None:
    """Print the medians of one text and of a list over one connection."""
    texts = list(read_lines(sample_file("en")))
    table = Table("", "gRPC, ms", "HTTP, ms", "difference, ms", "ratio")
    with Client(server) as client:
        ways: dict[str, Callable[[list[str]], object]] = {
            "gRPC": lambda some: client.translate(some, beam_size=1),
            "HTTP": over_http(address),
        }
        for size, times in ((1, rounds), (LIST, max(rounds // 10, 3))):
            found: dict[str, list[float]] = {name: [] for name in ways}
            for count in range(times + 3):
                first = count * size % (len(texts) - size)
                for name, translate in ways.items():
                    start = time.perf_counter()
                    translate(texts[first : first + size])
                    if count >= 3:
                        found[name].append(1000 * (time.perf_counter() - start))
            grpc, web = (statistics.median(found[name]) for name in ways)
            shown = "one text" if size == 1 else f"{size} texts"
            table.add_row(shown, f"{grpc:.2f}", f"{web:.2f}", f"{web - grpc:.2f}", f"{web / grpc:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
