"""Where results go: one JSON file a run, with what is needed to run it again."""

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


def save(name: str, rows: list[dict[str, Any]], folder: Path, **more: Any) -> Path:
    """Write rows to folder/DATE-name.json, with date, machine, commit, command and more; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    head = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "commit": commit()}
    write_json(path, {**head, "command": command(sys.argv), **more, "rows": rows})
    return path


def command(arguments: Sequence[str]) -> str:
    """The command line of a process as it is typed: `lingon bench ...`, or `python -m lingon.bench.tools.NAME ...`.

    arguments: its sys.argv
    """
    program = Path(arguments[0])
    typed = ["python", "-m", f"lingon.bench.tools.{program.stem}"] if program.parent.name == "tools" else ["lingon"]
    return shlex.join([*typed, *arguments[1:]])


def machine() -> str:
    """Processor, its vector extensions that matter here, and cores, in one line."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()}, {os.cpu_count()} cores"
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    extensions = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if flag in flags]
    return f"{facts.get('model name', platform.machine())}, {os.cpu_count()} cores, {' '.join(extensions)}"


def commit() -> str:
    """The commit that was measured; "+" where the tree differs from it."""
    answer = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
