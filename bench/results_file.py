"""The results file of a run: JSON with everything that is needed to repeat the run."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingon.files import write_json


def results_folder(given: Path | None, *, quick: bool) -> Path:
    """The folder for the results of a run; a trial run writes none beside the results that are kept."""
    return given or Path("build/bench" if quick else "bench/results")


def save(name: str, rows: list[dict[str, Any]], folder: Path, **more: Any) -> Path:
    """Write rows to folder/DATE-name.json with date, machine, commit, command and `more`; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    head = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "commit": commit()}
    write_json(path, {**head, "command": command(sys.argv), **more, "rows": rows})
    return path


def command(arguments: Sequence[str]) -> str:
    """The command line as the user types it: `lingon bench ...`, or `python -m lingon.bench.NAME ...`.

    arguments: sys.argv of the process
    """
    _, module, name = arguments[0].rpartition("lingon/bench/")
    name, source, _ = name.partition(".py")
    name = name.removesuffix("/__main__").replace("/", ".")
    prefix = ["python", "-m", f"lingon.bench.{name}"] if module and source else ["lingon"]
    return shlex.join([*prefix, *arguments[1:]])


def machine(described: Path = Path("/proc/cpuinfo")) -> str:
    """The processor, its vector extensions for matrix products, and the number of cores, in one line.

    A provider may give all its processors one name, so that family and model alone tell Zen 5 (26) from Zen 4 (25).
    """
    try:
        lines = described.read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()}, {os.cpu_count()} cores"
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    extensions = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if flag in flags]
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        name += f" (family {facts['cpu family']}, model {facts.get('model', '?')})"
    return f"{name}, {os.cpu_count()} cores, {' '.join(extensions)}"


def commit(tree: Path | None = None) -> str:
    """The measured commit, followed by "+" if the working tree differs from it; tree: a checkout, by default this."""
    command = ["git", "describe", "--always", "--dirty=+"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
    return answer.stdout.strip()
