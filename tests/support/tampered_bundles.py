"""Bundles that were tampered with: copies of the one that ships, with something changed, and signed anew on demand.

A digest is no signature: who can write a bundle can make it fit. What was forged so is refused for what it says.
"""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lingon.bundle import MANIFEST
from lingon.errors import BundleError
from lingon.serving.models.loading import LoadOptions, bundles, load_translator
from tests.support.shipped_model import bundle

PROMPT = 2.0  # seconds within which a bundle is refused
PATIENCE = 30


def copy(folder: Path) -> Path:
    """The bundle that ships, in folder; returns where."""
    where = folder / bundle().manifest.name / str(bundle().manifest.version)
    shutil.copytree(bundle().folder, where)
    return where


def write_manifest(folder: Path, values: dict[str, Any]) -> None:
    """Values as a manifest whose digest fits."""
    body = {name: value for name, value in values.items() if name != "digest"}
    digest = hashlib.sha256(_dump(body)).hexdigest()
    (folder / MANIFEST).write_bytes(_dump({**body, "digest": digest}))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of a manifest, and make its digest fit."""
    values = json.loads((folder / MANIFEST).read_bytes())
    change(values)
    write_manifest(folder, values)


def sign(folder: Path) -> None:
    """Make checksums and digest fit the files that are there."""

    def renew(values: dict[str, Any]) -> None:
        for name in values["checksums"]:
            values["checksums"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    edit(folder, renew)


def put(values: Any, path: str, value: Any) -> None:
    """Set the value at a path such as states.0.shape."""
    *parents, last = path.split(".")
    for parent in parents:
        values = values[int(parent) if isinstance(values, list) else parent]
    values[int(last) if isinstance(values, list) else last] = value


def refusal(folder: Path, precision: str | None = None) -> str:
    """The line with which a server refuses a bundle, in time; anything else but a BundleError fails."""
    outcome: queue.SimpleQueue[object] = queue.SimpleQueue()

    def load() -> None:
        try:
            (found,) = bundles([folder])
            options = LoadOptions(device="cpu", precision=precision, engines=1, threads=1)
            outcome.put(load_translator(found, options))
        except BaseException as error:
            outcome.put(error)

    start = time.process_time()  # other processes have nothing to do with it
    threading.Thread(target=load, daemon=True).start()  # that may hang
    found = outcome.get(timeout=PATIENCE)
    seconds = time.process_time() - start
    assert isinstance(found, BundleError), repr(found)
    assert seconds < PROMPT, f"refused after {seconds:.1f} s: {found}"
    assert "\n" not in str(found)
    assert len(str(found)) < 1000
    return str(found)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
