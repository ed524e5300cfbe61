"""The number of cases in tests with random input: few in `make test`, many with TEST_SCALE=full."""

from __future__ import annotations

import os

FULL = os.environ.get("TEST_SCALE", "") == "full"


def scaled(gate: int, full: int) -> int:
    """The number of cases: `gate`, or `full` with TEST_SCALE=full."""
    return full if FULL else gate
