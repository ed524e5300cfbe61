"""Runs the goodput measurement on one server, and keeps both sides of the comparison in one file and one picture."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.callers.goodput import Point, draw, measure, rows
from chaos.cpu_pinning import CpuPinning
from chaos.server import Server
from lingon.bench.results_file import commit, machine
from lingon.errors import SettingsError
from lingon.files import write_json

SIDES = ("before", "after")


def measure_side(tree: Path | None, side: str, seconds: float, model: Path, results: Path) -> Iterator[str]:
    """Measure the server of a checkout, by default this one; yields the lines to print.

    The file keeps the other side, so that two checkouts are compared.
    """
    if side not in SIDES:
        raise SettingsError(f"--side is before or after, got {side!r}")
    points = asyncio.run(_measured(tree, side, seconds, model))
    for point in points:
        load = f"{point.times:g}x, {point.offered:.0f}/s offered" if point.times else "64 calls at once"
        yield f"{side} {point.method}, {load}: {point.goodput:.1f}/s"
    yield f"written: {_merge(points, side, seconds, tree, results)}"


async def _measured(tree: Path | None, side: str, seconds: float, model: Path) -> list[Point]:
    pinning = CpuPinning.choose()
    with tempfile.TemporaryDirectory() as folder:
        async with Server(folder=Path(folder), model=model, cores=pinning.server, tree=tree) as server:
            return await measure(server, side, pinning.clients, seconds)


def _merge(points: list[Point], side: str, seconds: float, tree: Path | None, results: Path) -> Path:
    path = results / f"{datetime.now(UTC):%Y-%m-%d}-goodput.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    checkout = " --tree CHECKOUT" if tree else ""
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(tree),
        "seconds": seconds,
        "command": f"python -m chaos goodput --side {side} --seconds {seconds:g}{checkout}",
    }
    known |= {"machine": machine(), side: found}
    known["rows"] = [row for row in known["rows"] if row["side"] != side] + rows(points)
    results.mkdir(parents=True, exist_ok=True)
    write_json(path, known)
    draw(known["rows"], path.with_suffix(".svg"))
    return path
