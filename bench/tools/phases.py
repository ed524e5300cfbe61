"""Time, CPU time and memory of a command of Lingon, by the lines that it prints.

    python -m lingon.bench.tools.phases -- import opus-mt-en-de models/en-de --gate-source sentences.en
    python -m lingon.bench.tools.phases -- export runs/en-de models/en-de

A row has what the command and its processes took until a line. Memory is sampled every 20 ms. Its anonymous part is
what the processes hold besides files; the resident part has the mapped files too, which the system takes back when it
needs the memory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bench.options import results_folder
from lingon.bench.results_file import note, save
from lingon.bench.worker_process import cpu_seconds, processes_of
from lingon.machine import read_or_empty

PERIOD = 0.02  # seconds between two samples
MEMORY = {"anonymous": re.compile(r"Rss(?:Anon|Shmem):\s+(\d+) kB"), "resident": re.compile(r"VmRSS:\s+(\d+) kB")}
"""The lines of /proc/PID/status whose numbers are added."""


@dataclass(slots=True)
class Watched:
    """What a process and its children took so far; memory in bytes, at its peak."""

    process: int
    peaks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEMORY, 0))
    cpu: dict[int, float] = field(default_factory=dict)  # seconds, by process; those that ended are kept

    def sample(self) -> None:
        """Look at all processes once."""
        found = processes_of(self.process)
        texts = [read_or_empty(Path(f"/proc/{each}/status")) for each in found]
        for kind, pattern in MEMORY.items():
            used = sum(1024 * int(number) for text in texts for number in pattern.findall(text))
            self.peaks[kind] = max(self.peaks[kind], used)
        for each in found:
            with suppress(OSError):  # a process that has ended meanwhile
                self.cpu[each] = cpu_seconds(each)

    def facts(self) -> dict[str, float]:
        """Return seconds of CPU and peaks of memory in MB."""
        peaks = {f"{kind}_mb": round(peak / 1e6) for kind, peak in self.peaks.items()}
        return {"cpu_s": round(sum(self.cpu.values()), 1), **peaks}


def measure(command: Sequence[str]) -> list[dict[str, Any]]:
    """Run a command and return a row for each line that it prints, and one for its end.

    Raises CalledProcessError, with the lines, if the command fails.
    """
    begun, rows = time.monotonic(), list[dict[str, Any]]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        watched, done = Watched(process.pid), threading.Event()

        def watch() -> None:
            while not done.wait(PERIOD):
                watched.sample()

        watcher = threading.Thread(target=watch)
        watcher.start()
        for line in process.stdout:
            rows.append({"seconds": round(time.monotonic() - begun, 1), **watched.facts(), "line": line.strip()})
            note(" ".join(map(str, rows[-1].values())))
        done.set()
        watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, "\n".join(row["line"] for row in rows))
    rows.append({"seconds": round(time.monotonic() - begun, 1), **watched.facts(), "line": "(end)"})
    note(" ".join(map(str, rows[-1].values())))
    return rows


def main(
    command: Annotated[list[str], typer.Argument(help="A command of Lingon with its arguments, after --.")],
    results: Annotated[Path | None, typer.Option(help="Folder for the results. Default: none are written.")] = None,
) -> None:
    """Run the command, print its phases as they end, and write the results."""
    load = os.getloadavg()[0]
    try:
        rows = measure([sys.executable, "-m", "lingon", *command])
    except subprocess.CalledProcessError as error:
        typer.echo(error.output)
        raise typer.Exit(error.returncode) from None
    if results is not None:
        save(f"phases-{command[0]}", rows, results_folder(results, quick=False), load=round(load, 2))


if __name__ == "__main__":
    typer.run(main)
