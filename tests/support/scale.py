"""How much the tests do whose force is in numbers: what `make test` has time for, or what `make chaos` has."""

from __future__ import annotations

import os

FULL = os.environ.get("TEST_SCALE", "") == "full"


def scaled(gate: int, full: int) -> int:
    """A number of cases: `full` where TEST_SCALE=full."""
    return full if FULL else gate
