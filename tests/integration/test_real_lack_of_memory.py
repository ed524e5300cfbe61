"""A real lack of memory: a process that may have no more address space."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from tests.support.random_models import device_runner, encode, random_runner

PAIRS, TOKENS = 4000, 60
LEFT = 64 << 20  # bytes of address space that the process has left


def test_a_runner_without_memory_raises_memory_error_and_stays_usable() -> None:
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, check=True)
    for found in json.loads(done.stdout):
        assert found == {"encode": "MemoryError", "score": "MemoryError", "open": "MemoryError", "usable": True}


def _measure(runner: OnnxRunner) -> dict[str, Any]:
    """Run the methods of a runner without memory, then with memory."""
    ids, lengths = np.full((PAIRS, TOKENS), 5), np.full(PAIRS, TOKENS)
    expected = encode(runner, [(5, 2)])["memory_lengths"].tolist()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + LEFT, before[1]))
    found: dict[str, Any] = {
        "encode": _error_of(lambda: runner.encode(ids, lengths)),
        "score": _error_of(lambda: runner.score(ids, lengths, ids, lengths)),
        "open": _error_of(lambda: runner.open(BatchShape(100_000, 4, 128, 128))),
    }
    resource.setrlimit(resource.RLIMIT_AS, before)
    return {**found, "usable": encode(runner, [(5, 2)])["memory_lengths"].tolist() == expected}


def _error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except MemoryError:  # NumPy raises a subclass
        return "MemoryError"
    except Exception as error:
        return repr(error)
    return "none"


if __name__ == "__main__":
    sys.stdout.write(json.dumps([_measure(random_runner()), _measure(device_runner())]))
