"""A server of many models: its memory, the time of the first call of a cold model, and what callers of a warm one see.

    python -m lingon.bench.tools.many_models models/tiny --count 100 --model-memory 600
    python -m lingon.bench.tools.many_models models/opus --count 8 --model-memory 2000 --measured 7 --rounds 2

A model of OPUS-MT's size is one of `lingon.bench.tools.copying_model`, imported.

The models are copies of one bundle with other names and target languages, each with files of its own. A warm model is
called without a pause in alternate rounds: while no model is loaded, and while another client calls cold models one
after the other. Times are of the wall clock, `cpu_ms` is the time that the server computed, which the load of the
machine does not change.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon import Client
from lingon.bench.options import results_folder
from lingon.bench.results_file import percentile, save, show
from lingon.bench.serve.run import lingon_command, serving
from lingon.bench.worker_process import cpu_seconds
from lingon.bundle.names import MANIFEST
from lingon.bundle.store import open_bundle

SENTENCE = "Tom lives in Boston."
WARM = "m000"  # the model that is pinned and called all the time
MOST_TOKENS = 12  # of each translation, because a model with random weights does not end its sentences
QUIET_SECONDS, QUIET_SHARE = 0.4, 0.1  # a server computes less than this share of this time between two calls


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs; clients call it at address."""

    pid: int
    address: str

    def call(self, client: Client, model: str) -> float:
        """Translate a sentence with a model, and return the milliseconds until the reply."""
        begin = time.perf_counter()
        client.translate(SENTENCE, model=model, guard="off", max_output_tokens=MOST_TOKENS)
        return 1000 * (time.perf_counter() - begin)

    def wait_until_quiet(self) -> None:
        """Wait until the process computes nothing for some time."""
        latest, now = -1.0, cpu_seconds(self.pid)
        while now - latest > QUIET_SHARE * QUIET_SECONDS:
            time.sleep(QUIET_SECONDS)
            latest, now = now, cpu_seconds(self.pid)

    def memory(self) -> dict[str, int]:
        """Return the resident memory of the process in MiB: all of it, and the part that no file backs."""
        found = dict(re.findall(r"(VmRSS|RssAnon):\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text("ascii")))
        return {"resident_mib": int(found["VmRSS"]) // 1024, "anonymous_mib": int(found["RssAnon"]) // 1024}


def copy_models(bundle: Path, folder: Path, count: int) -> list[str]:
    """Write copies of a bundle below a folder, each into another language of private use, and return their names."""
    opened, names = open_bundle(bundle), [f"m{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        language = f"q{chr(ord('a') + number // 26)}{chr(ord('a') + number % 26)}"
        manifest = replace(opened.manifest, name=name, version=1, source_language="en", target_language=language)
        shutil.copytree(opened.folder, folder / name / "1")
        (folder / name / "1" / MANIFEST).write_bytes(manifest.to_bytes())
    return names


@contextmanager
def running(models: Path, options: Mapping[str, object]) -> Iterator[Running]:
    """Start a server of a folder of models with options of `lingon serve`, and end it after the block."""
    command = lingon_command(models, {"device": "auto", **options})
    with serving(command, frozenset(os.sched_getaffinity(0))) as server:
        yield Running(server.pid, server.address)


def first_calls(server: Running, client: Client, models: Sequence[str]) -> dict[str, float]:
    """Call cold models one after the other, and return the median of the time and of the CPU time of a call."""
    times, cpu = list[float](), list[float]()
    for model in models:
        server.wait_until_quiet()  # the checks that follow a load must not count for the next one
        before = cpu_seconds(server.pid)
        times.append(server.call(client, model))
        cpu.append(1000 * (cpu_seconds(server.pid) - before))
    return {
        "ms": round(statistics.median(times), 1),
        "ms_p90": round(percentile(times, 90), 1),
        "cpu_ms": round(statistics.median(cpu), 1),
    }


def warm_calls(server: Running, client: Client, seconds: float) -> list[float]:
    """Call the warm model for some seconds, and return the milliseconds of each call."""
    end, times = time.monotonic() + seconds, list[float]()
    while time.monotonic() < end:
        times.append(server.call(client, WARM))
    return times


@contextmanager
def calling_cold(server: Running, models: Iterator[str]) -> Iterator[Callable[[], int]]:
    """Call cold models one after the other on another thread during the block. Gives the number of calls so far."""
    stop, calls = threading.Event(), list[float]()

    def work() -> None:
        with Client(server.address) as client:
            while not stop.is_set():
                calls.append(server.call(client, next(models)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: len(calls)
    finally:
        stop.set()
        thread.join()


def beside_loads(
    server: Running, client: Client, models: Sequence[str], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure calls of the warm model in alternate rounds, without loads of other models and beside them."""
    times: dict[str, list[float]] = {"no load": [], "loads": []}
    loads, cold = 0, cycle(models)
    for _ in range(rounds):
        times["no load"] += warm_calls(server, client, seconds)
        with calling_cold(server, cold) as count:
            times["loads"] += warm_calls(server, client, seconds)
            loads += count()
    return [
        {
            "measured": f"warm model, {name}",
            "calls": len(found),
            "loads": loads if name == "loads" else 0,
            **{f"ms_p{rank}": round(percentile(found, rank), 2) for rank in (50, 90, 99)},
        }
        for name, found in times.items()
    ]


def main(
    bundle: Annotated[Path, typer.Argument(help="The bundle that is copied: models/NAME or models/NAME/VERSION.")],
    count: Annotated[int, typer.Option(min=3, max=520, help="Models.")] = 100,
    model_memory: Annotated[int, typer.Option(min=1, help="Memory of loaded models, in MiB.")] = 600,
    measured: Annotated[int, typer.Option(min=1, help="Cold models whose first calls are timed.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of calls of the warm model.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each half of a round.")] = 4.0,
    results: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
) -> None:
    """Measure, print a table, and write the results."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        models = copy_models(bundle, Path(folder), count)
        bound = {"model_memory": model_memory}
        with running(Path(folder), bound) as server:
            rows.append({"measured": f"{count} cold models", **server.memory()})
            with Client(server.address) as client:
                server.call(client, WARM)  # imports what the first call of a server needs
                rows.append({"measured": "first call", **first_calls(server, client, models[1 : 1 + measured])})
                again = [model for model in models[1 : 1 + measured] if not _is_loaded(client, model)]
                if again:
                    rows.append({"measured": "call of an unloaded model", **first_calls(server, client, again)})
                rows.append({"measured": "with loaded models", **server.memory()})
        with running(Path(folder), {**bound, "pinned_models": WARM}) as server, Client(server.address) as client:
            warm_calls(server, client, 1)
            rows += beside_loads(server, client, models[1:], rounds, seconds)
            rows.append({"measured": "after all loads", **server.memory()})
    show(rows)
    name = f"many-models-{open_bundle(bundle).manifest.name}"
    save(name, rows, results_folder(results, quick=results is None), count=count, model_memory=model_memory)


def _is_loaded(client: Client, name: str) -> bool:
    return any(model.loaded for model in client.list_models() if model.name == name)


if __name__ == "__main__":
    typer.run(main)
