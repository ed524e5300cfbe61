"""The folders of the repository, and how many cases a test with random input tries."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("lingon", "training", "export", "importers", "serving", "gateway", "bulk", "bench")
"""Folders of product code. All but the first are installed as subpackages of `lingon`, which holds links to them."""


FULL = os.environ.get("TEST_SCALE", "") == "full"


def scaled(gate: int, full: int) -> int:
    """Return the number of cases: `gate`, or `full` with TEST_SCALE=full."""
    return full if FULL else gate
