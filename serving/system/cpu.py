"""How many cores this process may use: what the scheduler allows it and what its cgroup grants."""

from __future__ import annotations

import math
import os
from pathlib import Path

MOST_ENGINES = 4
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Whole cores for computing: a container with 1.5 of 64 has 1, for a thread more would wait at every barrier."""
    allowed = len(os.sched_getaffinity(0))
    granted = granted_cores()
    return allowed if granted is None else max(min(allowed, math.floor(granted)), 1)


def engines_by_default() -> int:
    """Engines of one model on the CPU: one a core, and no more than take turns with Python's lock without waiting."""
    return min(usable_cores(), MOST_ENGINES)


def threads_for(engines: int) -> int:
    """Threads of each of several engines, so that together they use the usable cores."""
    return max(usable_cores() // engines, 1)


def granted_cores(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """The tightest CPU limit of this process' cgroup and those above it; None where there is no limit."""
    limits = [limit for folder in _folders(root, membership) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _folders(root: Path, membership: Path) -> list[Path]:
    """The folders that may hold a limit: of cgroup v2 and v1, from the process' own to the root."""
    found = [root, root / "cpu"]
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / "cpu"
        if not controllers or "cpu" in controllers.split(","):
            own = base / path.lstrip("/")
            found += [own, *(parent for parent in own.parents if parent.is_relative_to(base))]
    return found


def _limit(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")  # v2: "150000 100000" or "max 100000"
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return None
    return int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
