"""The results of a run of a benchmark: their file, the file to resume from, tables, charts and percentiles.

The results are JSON with everything that is needed to repeat the run.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingon.errors import SettingsError
from lingon.files import write_json, write_text
from lingon.machine import usable_cores

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 160  # columns of a terminal at least, so that no table is cut

Row = dict[str, Any]
"""One row of the results, by the names of its columns."""


def save(name: str, rows: Sequence[Row], folder: Path, **more: Any) -> Path:
    """Write rows and `more` to folder/DATE-name.json with date, machine, commit and command. Return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    head = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "commit": commit()}
    write_json(path, {**head, "command": command(sys.argv), **more, "rows": rows})
    print(f"written: {path}")
    return path


def keep(name: str, rows: Sequence[Row], results: Path | None, **more: Any) -> None:
    """Save rows if there is a folder for results. See `save`."""
    if results is not None:
        save(name, rows, results, **more)


def terminal() -> Console:
    """Return a console of at least WIDTH columns."""
    from rich.console import Console

    console = Console()
    console.width = max(console.width, WIDTH)
    return console


def note(line: str) -> None:
    """Print a line about the progress of a run."""
    terminal().print(line, style="dim", highlight=False)


def new_table(names: Sequence[str], figures: Sequence[str], **style: Any) -> Table:
    """Return an empty table: columns of names to the left, columns of figures to the right."""
    from rich.table import Table

    table = Table(**style)
    for name in names:
        table.add_column(name)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def show(rows: Sequence[Mapping[str, Any]], *, title: str | None = None) -> None:
    """Print rows as a table with a column for each key. Numbers have up to three decimals."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = new_table(keys, (), title=title)
    for row in rows:
        table.add_row(*(_shown(row.get(key, "")) for key in keys))
    terminal().print(table)


def _shown(value: object) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def search_name(beam_size: int) -> str:
    """Return the name of a search in tables."""
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def signature_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each score in rows, with its signature of sacreBLEU."""
    return sorted({f"{name}: {text}" for row in rows for name, text in row["signatures"].items()})


def command(arguments: Sequence[str]) -> str:
    """Return the command line as the user types it: `lingon bench ...`, or `python -m lingon.bench.NAME ...`.

    arguments: sys.argv of the process
    """
    _, module, name = arguments[0].rpartition("lingon/bench/")
    name, source, _ = name.partition(".py")
    name = name.replace("/", ".")
    prefix = ["python", "-m", f"lingon.bench.{name}"] if module and source else ["lingon"]
    return shlex.join([*prefix, *arguments[1:]])


def machine(described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor, its vector extensions for matrix products, and the number of cores, in one line.

    A provider may give all its processors one name, so that only the family distinguishes Zen 5 (26) from Zen 4 (25).
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
    """Return the measured commit, followed by "+" if the working tree differs from it.

    tree: a checkout, by default this one
    """
    command = ["git", "describe", "--always", "--dirty=+"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
    return answer.stdout.strip()


class ResumeFile:
    """Records by key, written to disk as soon as they are added."""

    def __init__(self, path: Path, head: dict[str, Any], *, resume: bool) -> None:
        """Open the file.

        head: the options and the machine, which must be the same to resume a run
        resume: keep the records of the last run; otherwise start with an empty file
        """
        self._path = path
        self._records: dict[str, Any] = _read(path, head) if resume else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = (_line(key, record) for key, record in self._records.items())
        write_text(path, "".join([json.dumps({"head": head}) + "\n", *kept]))

    @classmethod
    def of(cls, path: Path, options: Mapping[str, object], *, resume: bool) -> ResumeFile:
        """Open the file of a run with these options, on this machine and of this commit."""
        values = {name: str(value) for name, value in options.items()}
        head = {"commit": commit(), "machine": machine(), "cores": usable_cores(), **values}
        return cls(path, head, resume=resume)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def record(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the record of a key. Without one, add the result of `make` and append it to the file."""
        if key not in self._records:
            self._records[key] = make()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(key, self._records[key]))
        return self._records[key]

    def delete(self) -> None:
        """Delete the file, once the results are written."""
        self._path.unlink()


def _line(key: str, record: Any) -> str:
    return json.dumps({"key": key, "record": record}) + "\n"


def _read(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """Return the records of a killed run, without an incomplete last line; empty if there is no file."""
    if not path.is_file():
        return {}
    first, *lines = path.read_text(encoding="utf-8").split("\n")
    begun = json.loads(first)["head"]
    changed = [name for name in head if begun.get(name) != head[name]]
    if changed:
        name = changed[0]
        raise SettingsError(
            f"--resume: {path} was begun with {name} {begun.get(name)!r}, this is {head[name]!r}; run without --resume"
        )
    complete = [json.loads(line) for line in lines[:-1]]
    return {line["key"]: line["record"] for line in complete}


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that at least `percent` percent of the values do not exceed (nearest rank).

    Returns nan if there are no values.
    """
    ranked = sorted(values)
    if not ranked:
        return math.nan
    return ranked[max(math.ceil(percent / 100 * len(ranked)), 1) - 1]


def load_pyplot() -> Any:
    """Return matplotlib.pyplot, with the backend that draws to files and needs no display. It takes a second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save_chart(figure: Any, path: Path) -> None:
    """Write a chart of pyplot, print its path and free its memory. The suffix of path selects SVG, PNG or PDF."""
    # Without a date, the same figures give the same file.
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    load_pyplot().close(figure)
    print(f"written: {path}")
