"""A small bundle of invented files, and copies of the shipped bundle that were tampered with."""

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

from lingon.bundle.manifest import Alignment, Defaults, Limits, Manifest, Precision, State
from lingon.bundle.names import MANIFEST as MANIFEST_FILE
from lingon.bundle.store import Bundle, use_highest_whole, write_bundle
from lingon.errors import BundleError
from lingon.serving.models.loading import LoadOptions, load_translator, model_folders
from tests.support.shipped_model import bundle

FILES = {
    "MODEL_CARD.md": b"# A model\n",
    "tokenizer.model": b"pieces",
    "fp32/encoder.onnx": b"encoder",
    "fp32/decoder.onnx": b"decoder",
    "fp32/scorer.onnx": b"scorer",
    "weights/fp16.bin": bytes(range(256)) * 8,
    "weights/fp32.bin": b"the few that 16 bits do not hold",
    "shortlist.npz": b"pieces by piece",
}

MANIFEST = Manifest(
    name="en-de",
    version=1,
    created="2026-01-02T03:04:05Z",
    source_language="en",
    target_language="de",
    architecture="transformer é",
    source_vocab=4000,
    target_vocab=4000,
    special_ids={"pad": 0, "bos": 1, "eos": 2, "unk": 3},
    limits=Limits(128, 256, 1.5, 10, 8),
    defaults=Defaults(beam_size=4, num_hypotheses=1, length_penalty=0.6),
    candidates=16,
    states=(
        State(name="memory.0.key", kind="memory", shape=(4, "source_length", 64)),
        State(name="cache.0.key", kind="cache", shape=(4, "capacity", 64)),
    ),
    precisions={
        "fp32": Precision(
            "CPUExecutionProvider",
            "passed",
            ("fp16.bin", "fp32.bin"),
            {"greedy": {"sentences": 500, "excused": []}},
        ),
        "fp16": Precision("CUDAExecutionProvider", "not run on cuda", ("fp16.bin",)),
    },
    alignment=Alignment(layer=2, heads=(0, 3)),
    shortlist={"fp32": {"bleu": 40.5}},
)


def write_small_bundle(folder: Path) -> Bundle:
    """Write the files above at folder."""
    return write_bundle(folder, MANIFEST, FILES)


PROMPT = 2.0  # seconds of CPU time within which a bundle is refused
PATIENCE = 30  # seconds after which loading counts as hanging


def copy(folder: Path) -> Path:
    """Copy the shipped bundle below folder, and return the folder of the copy."""
    where = folder / bundle().manifest.name / str(bundle().manifest.version)
    shutil.copytree(bundle().folder, where)
    return where


def write_manifest(folder: Path, values: dict[str, Any]) -> None:
    """Write values as a manifest with a valid digest."""
    body = {name: value for name, value in values.items() if name != "digest"}
    digest = hashlib.sha256(_dump(body)).hexdigest()
    (folder / MANIFEST_FILE).write_bytes(_dump({**body, "digest": digest}))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of a manifest and update its digest."""
    values = json.loads((folder / MANIFEST_FILE).read_bytes())
    change(values)
    write_manifest(folder, values)


def sign(folder: Path) -> None:
    """Update checksums and digest to the files of the bundle."""

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


def refusal(folder: Path, precision: str | None = "int8", *, golden: bool = False) -> str:
    """Return the message of the BundleError with which a server refuses a bundle; the test fails for any other
    outcome.
    """
    outcome: queue.SimpleQueue[object] = queue.SimpleQueue()

    def load() -> None:
        try:
            (found,) = model_folders([folder])
            options = LoadOptions(device="cpu", precision=precision, engines=1, threads=1, golden=golden)
            outcome.put(use_highest_whole(found, lambda bundle: load_translator(bundle, options)))
        except BaseException as error:
            outcome.put(error)

    start = time.process_time()  # seconds of this process alone, because other processes slow the machine
    threading.Thread(target=load, daemon=True).start()  # daemon, because loading may hang
    found = outcome.get(timeout=PATIENCE)
    seconds = time.process_time() - start
    assert isinstance(found, BundleError), repr(found)
    assert seconds < PROMPT, f"refused after {seconds:.1f} s: {found}"
    assert "\n" not in str(found)
    assert len(str(found)) < 1000
    return str(found)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
