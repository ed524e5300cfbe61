"""The memory of large runs of the scorer: kept for the next run, freed on request."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from lingon.bundle.store import open_bundle
from lingon.machine import resident_bytes
from lingon.serving.runtime.onnx_runner import load_runner
from tests.support.shipped_model import MODEL

PAIRS, TOKENS = 4, 200
LOGITS = 4 * PAIRS * (TOKENS + 1) * 8000  # bytes, of a vocabulary of 8,000 tokens


def test_a_run_reuses_the_memory_of_the_one_before_and_a_request_frees_it():
    # glibc returns large blocks to the system at once, as in a server; see lingon.serving.models.memory
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(256 * 1024)}
    done = subprocess.run([sys.executable, "-m", __name__], env=environment, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert found["faults of the first run"] > LOGITS / resource.getpagesize()
    assert found["faults of the second run"] < found["faults of the first run"] / 10
    assert found["freed bytes"] > LOGITS


def _measure(model: Path) -> dict[str, int]:
    """Measure the scorer in this process: page faults of its runs, and the memory that it frees."""
    runner = load_runner(open_bundle(model), "int8", threads=1)
    sources, source_lengths = np.full((PAIRS, 2), 5), np.full(PAIRS, 2)
    targets, target_lengths = np.full((PAIRS, TOKENS), 7), np.full(PAIRS, TOKENS)
    faults = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        runner.score(sources, source_lengths, targets, target_lengths)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    kept = resident_bytes()
    runner.free_memory()
    return {
        "faults of the first run": faults[0],
        "faults of the second run": faults[1],
        "freed bytes": kept - resident_bytes(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(MODEL)))
