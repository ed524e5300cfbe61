"""Time and memory of an import with its gates, of a model of OPUS-MT's size that copies its source.

    python -m lingon.bench.tools.jobs.import_time gates.en text.en text.de

The first file has the sentences for the gates; sentencepiece models are trained on the other two. See
`lingon.bench.workloads.copying_model` for the model: its translations are about as long as their sources, as those of a
trained model are. The options of the import are the default ones. Memory is what the process holds besides its files,
sampled every 50 ms. A row has the time until each line that the import prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bench.options import shared
from lingon.bench.results_file import results_folder, save
from lingon.bench.tools.engine.imported_shapes import OPUS, TINY
from lingon.bench.workloads.copying_model import write_copying_model
from lingon.lines import read_lines

PERIOD = 0.05  # seconds between two samples of the memory


def anonymous_bytes(process: int) -> int:
    """Return the memory of a process that is not of a file; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def run(command: list[str]) -> dict[str, Any]:
    """Run an import; return its seconds, its peak memory and its lines with their times. Raises CalledProcessError."""
    begun, peak = time.monotonic(), 0
    lines: list[dict[str, Any]] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(PERIOD):
                peak = max(peak, anonymous_bytes(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for line in process.stderr:
            lines.append({"seconds": round(time.monotonic() - begun, 1), "peak_mb": peak >> 20, "line": line.strip()})
        done.set()
        watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(
            process.returncode, command, stderr="\n".join(each["line"] for each in lines)
        )
    return {"seconds": round(time.monotonic() - begun, 1), "peak_mb": peak >> 20, "lines": lines}


def main(
    gates: Annotated[Path, typer.Argument(help="Sentences of the source language for the gates, one a line.")],
    source: Annotated[Path, typer.Argument(help="Text of the source language, to train a sentencepiece model on.")],
    target: Annotated[Path, typer.Argument(help="Text of the target language, to train a sentencepiece model on.")],
    runs: Annotated[int, typer.Option(min=1, help="Number of imports of each kind.")] = 1,
    alone: Annotated[bool, typer.Option("--alone", help="Only without the comparison with other toolkits.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model, to try it out.")] = False,
    results: shared.Results = None,
) -> None:
    """Write the model, import it with and without the comparison with other toolkits, and write the results."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "opus"
        shape = replace(TINY["opus"], vocab=2_000, dim=128) if quick else OPUS
        write_copying_model(folder, shape, (list(read_lines(source)), list(read_lines(target))))
        for number in range(runs):
            for compare in ("--no-compare",) if alone else ("--no-compare", "--compare"):
                written = Path(scratch) / "models" / f"{number}{compare}"
                command = [sys.executable, "-m", "lingon", "import", str(folder), str(written)]
                try:
                    found = run([*command, "--gate-source", str(gates), compare])
                except subprocess.CalledProcessError as error:
                    raise SystemExit(f"the import failed: {error.stderr}") from None
                rows.append({"compare": compare, "load": os.getloadavg()[0], **found})
                typer.echo(f"{compare}: {found['seconds']:.0f} s, {found['peak_mb']:,} MB")
    path = save("import-time", rows, results_folder(results, quick=quick))
    typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
